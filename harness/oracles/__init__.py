"""Oracles: who knows the right answer, and how a server's answer is judged against it."""
