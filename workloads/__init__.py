"""Workloads: ragged requests with due times and cancel points, drawn, read or preset."""
