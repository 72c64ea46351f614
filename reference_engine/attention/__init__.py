"""Attention backends: ragged queries over a paged cache, behind one interface."""
