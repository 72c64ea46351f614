"""The regression gate: correctness first, then paired measurements and one stated rule."""
