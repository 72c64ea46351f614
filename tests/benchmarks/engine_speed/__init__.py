"""The reference engine against other ways to serve the same model: one workload, one machine."""
