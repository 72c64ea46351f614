"""The suite's own test: it must kill every fault, and must not accuse a healthy server."""
