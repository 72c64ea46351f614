"""Every claim of "Continuous batching from first principles", measured on our own engine."""
