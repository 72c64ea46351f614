"""What a GPU would run, as far as a machine without one can prove it, and what only a GPU can."""
