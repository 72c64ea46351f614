"""Workloads: ragged requests with due times and cancel points, from strategies, traces or presets."""
