"""The OpenAI-compatible HTTP server of the reference engine, on aiohttp."""
