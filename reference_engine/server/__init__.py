"""The OpenAI-compatible HTTP server of the reference engine, on aiohttp.

The path of a request:

1. `app` routes it; its middlewares ask for the key, count the answer and shape every error.
2. `request_body` reads a JSON object in bounded memory and time.
3. `completions` or `chat` checks it against their table of `fields` and plans a `generation`.
4. `generation` submits each prompt to the `engine_host`, whose thread owns the engine.
5. After each step the host puts the events into the `mailbox` of each request, in one call.
6. `generation` turns them into deltas; `text_stream` makes text of tokens and finds stop strings.
7. `chunks` writes them as server-sent events, `event_stream` sends them; or all of it in one piece.
8. However it ends, leaving the `Generation` cancels what is left of it in the engine.

`serving` binds, announces and drains; `run` puts everything together; `limits` holds every bound.
"""

from reference_engine.server.app import create_app
from reference_engine.server.run import run_server

__all__ = ["create_app", "run_server"]
