"""The harness: drives any server with workloads, checks what it answers and measures how fast."""
