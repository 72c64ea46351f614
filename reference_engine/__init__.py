"""The reference engine: continuous batching, outputs bitwise those of unbatched decoding."""
