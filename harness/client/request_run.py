"""One request of a workload on the wire: connect, send, read, hang up, and name the ending."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from harness.client.answer_reader import AnswerReader
from harness.client.clock import now
from harness.client.connection import HttpConnection
from harness.client.exchange import Exchange
from harness.client.limits import Limits
from harness.client.pool import ConnectFailed, ConnectionPool
from harness.transcript import Ending, RequestTranscript
from workloads.workload import WorkloadRequest

DONE_GRACE_S: Final = 1.0
"""How long a server may take from ``[DONE]`` to the end of its HTTP answer before we hang up."""


class RequestRun:
    """Carries one request to its ending. `transcript` is complete after `perform` and `settle`."""

    def __init__(
        self,
        request: WorkloadRequest,
        payload: bytes,
        pool: ConnectionPool,
        limits: Limits,
        origin_s: float,
        on_tokens: Callable[[int], None] | None,
        keep_raw: bool,
        ends_by_closing: bool = False,
    ) -> None:
        """``ends_by_closing``: a stream that gave its finish reasons needs no terminal event."""
        self._request = request
        self._payload = payload
        self._pool = pool
        self._limits = limits
        self._origin_s = origin_s
        self._listener = on_tokens
        self._keep_raw = keep_raw
        self._ends_by_closing = ends_by_closing
        self._exchange: Exchange | None = None
        self._connection: HttpConnection | None = None
        self._cancelled = False
        self._settled = False
        self.transcript = RequestTranscript(request.key, Ending.COMPLETE, request.due_s)
        if request.prompt_ids is not None:
            self.transcript.planned_prompt_tokens = len(request.prompt_ids)
        self.transcript.planned_output_tokens = _planned_output(request)
        self._reader = self._new_reader()

    @property
    def token_events(self) -> int:
        """Token-bearing events read so far."""
        return self._reader.token_events

    @property
    def backlog_pieces(self) -> int:
        """Pieces of the answer that wait to be parsed."""
        return len(self._reader.backlog)

    async def perform(self) -> None:
        """Send the request and wait for its end. Never raises for what the server does."""
        await self._attempt(fresh=False)
        exchange = self._exchange
        if (
            exchange is not None
            and exchange.failure is not None
            and exchange.failure[0] is Ending.DISCONNECTED
            and not exchange.answered
            and self.transcript.t_connect_s is None
            and not self._cancelled
        ):
            # The server closed an idle connection just as we used it: no answer was begun, so
            # the request is sent again, once, and counted.
            self.transcript.retries += 1
            self._reader = self._new_reader()
            await self._attempt(fresh=True)

    def settle(self) -> None:
        """Parse what was put aside and name the ending. Called again, no effect."""
        transcript, exchange, reader = self.transcript, self._exchange, self._reader
        if exchange is None or self._settled:
            return
        self._settled = True
        if exchange.t_end_s is not None:
            transcript.t_end_s = exchange.t_end_s - self._origin_s
        transcript.status = exchange.status
        if exchange.status is not None and exchange.status != 200:
            self._settle_refusal(exchange)
            return
        if self._wrong_kind(exchange):
            kind = exchange.headers.get("content-type", "nothing")
            said = reader.read_error_body()
            transcript.ending = Ending.PROTOCOL_ERROR
            transcript.error = f"a stream was asked for, {kind} came: {said}"
            return
        if exchange.status == 200 and (exchange.failure is None or self._request.stream):
            reader.catch_up()
        ending, sentence = self._ending(exchange)
        transcript.ending, transcript.error = ending, sentence

    def check_limits(self, t_s: float) -> None:
        """Give up if a time limit has passed. Called by the run's watchdog."""
        exchange = self._exchange
        if exchange is None or exchange.done.done() or exchange.t_sent_s is None:
            return
        since_sent = t_s - exchange.t_sent_s
        silence = t_s - (exchange.t_last_read_s or exchange.t_sent_s)
        if exchange.body_bytes > self._limits.body_bytes:
            self._give_up(
                Ending.PROTOCOL_ERROR, f"a body of more than {self._limits.body_bytes} bytes"
            )
        elif since_sent > self._limits.total_s:
            self._give_up(Ending.TIMEOUT, f"not finished {self._limits.total_s:g} s after sending")
        elif self._request.stream and self._reader.token_events == 0:
            if since_sent > self._limits.first_token_s:
                self._give_up(
                    Ending.TIMEOUT, f"no token within {self._limits.first_token_s:g} s of sending"
                )
        elif self._request.stream and silence > DONE_GRACE_S and self._reader.may_be_done:
            self._end_after_done(exchange)
        elif self._request.stream and silence > self._limits.idle_s:
            self._give_up(Ending.TIMEOUT, f"nothing came for {self._limits.idle_s:g} s mid-stream")

    def cancel(self) -> None:
        """Hang up because the workload says so."""
        self._cancelled = True
        self._give_up(Ending.CANCELLED, "cancelled by the workload")

    def interrupt(self) -> None:
        """Hang up because the whole run is stopped."""
        self._cancelled = True
        stopped = (Ending.CANCELLED, "the run was stopped")
        if self._exchange is None:
            self.transcript.ending, self.transcript.error = stopped
        elif self._exchange.t_end_s is None:
            self._exchange.failure, self._exchange.t_end_s = stopped, now()
            if self._connection is not None:
                self._connection.abandon()

    # ------------------------------------------------------------------------------------------

    def _new_reader(self) -> AnswerReader:
        return AnswerReader(
            self.transcript,
            stream=self._request.stream,
            origin_s=self._origin_s,
            on_tokens=self._listener,
            keep_raw=self._keep_raw,
        )

    async def _attempt(self, *, fresh: bool) -> None:
        try:
            self._connection, connect_s = await self._pool.acquire(fresh=fresh)
        except ConnectFailed as failed:
            self.transcript.ending = Ending.CONNECT_FAILED
            self.transcript.error = str(failed)
            self.transcript.t_end_s = now() - self._origin_s
            return
        self.transcript.t_connect_s = connect_s
        exchange = self._exchange = Exchange(self._payload, self._first_piece)
        self._connection.begin(exchange)
        if exchange.t_sent_s is not None:
            self.transcript.t_sent_s = exchange.t_sent_s - self._origin_s
        if self._request.cancel_after_tokens == 0 or self._cancelled:
            # One turn of the loop, so that the bytes leave before the connection goes.
            await asyncio.sleep(0)
            self.cancel()
        await exchange.done
        self._pool.release(self._connection)

    def _first_piece(self, t_s: float, data: bytes) -> None:
        exchange = self._exchange
        if exchange is None:
            return
        if exchange.status != 200 or self._wrong_kind(exchange):
            self._reader.defer_everything()
        exchange.sink = self._next_piece
        self._next_piece(t_s, data)

    def _wrong_kind(self, exchange: Exchange) -> bool:
        """Whether a whole answer came that is no event stream, though one was asked for."""
        return (
            self._request.stream
            and exchange.status == 200
            and exchange.failure is None
            and not exchange.headers.get("content-type", "").lower().startswith("text/event-stream")
        )

    def _next_piece(self, t_s: float, data: bytes) -> None:
        self._reader.feed(t_s, data)
        if self._exchange is not None and not self._reader.eager:
            self._exchange.pieces = self._reader.backlog

    def _give_up(self, ending: Ending, sentence: str) -> None:
        if self._exchange is not None and not self._exchange.done.done():
            self._exchange.fail(now(), ending, sentence)
            if self._connection is not None:
                self._connection.abandon()

    def _end_after_done(self, exchange: Exchange) -> None:
        self._reader.catch_up()
        if self._reader.done:
            exchange.finish(exchange.t_last_read_s or now())
            if self._connection is not None:
                self._connection.abandon()

    def _settle_refusal(self, exchange: Exchange) -> None:
        status = exchange.status or 0
        said = self._reader.read_error_body()
        transcript = self.transcript
        if exchange.failure is not None and exchange.failure[0] is Ending.CANCELLED:
            transcript.ending, transcript.error = exchange.failure
        elif status >= 500:
            transcript.ending, transcript.error = Ending.SERVER_ERROR, said
        elif status >= 400:
            transcript.ending, transcript.error = Ending.REFUSED, said
        else:
            place = exchange.headers.get("location")
            transcript.ending = Ending.PROTOCOL_ERROR
            transcript.error = f"HTTP status {status}" + (f", sends us to {place}" if place else "")

    def _ending(self, exchange: Exchange) -> tuple[Ending, str | None]:
        """The ending of an exchange whose status was 200 or that brought no status."""
        if exchange.failure is not None and exchange.failure[0] is Ending.CANCELLED:
            return exchange.failure
        if (encoding := exchange.headers.get("content-encoding", "identity")) != "identity":
            return Ending.PROTOCOL_ERROR, f"compressed with {encoding}, though identity was asked"
        if self._reader.failure is not None:
            return self._reader.failure
        if exchange.failure is not None:
            return exchange.failure
        if self._request.stream and not self._reader.done:
            choices = self.transcript.choices.values()
            if self._ends_by_closing and choices and all(c.finish_reasons for c in choices):
                self.transcript.closed_without_done = True
                return Ending.COMPLETE, None
            return Ending.DISCONNECTED, "the stream ended without its terminal event [DONE]"
        return Ending.COMPLETE, None


def _planned_output(request: WorkloadRequest) -> int | None:
    """How many tokens the answer must have, None where the model may end it."""
    wanted = request.params.get("max_tokens", request.params.get("max_completion_tokens"))
    if not isinstance(wanted, int) or request.params.get("n", 1) != 1:
        return None
    fills = request.params.get("ignore_eos") is True or request.params.get("min_tokens") == wanted
    return wanted if fills else None
