"""The reference engine: continuous batching whose outputs are bitwise those of unbatched decoding."""
