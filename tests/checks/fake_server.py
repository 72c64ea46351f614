"""A server that is none: rounds of one token a row, answers from the integer rule, virtual time.

It stands where an HTTP server stands, so that the suite's own machinery can be tested in
milliseconds. A defect is a subclass that overrides one hook.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from harness.client.discover import Discovery
from harness.transcript import (
    ChoiceTranscript,
    Ending,
    RequestTranscript,
    TokenChunk,
    Transcript,
    Usage,
)
from reference_engine.probe import ProbeConfig, Rule, RuleState, decode_tokens, encode_text
from workloads.workload import Workload, WorkloadRequest

ROUND_S = 0.001


@dataclass(eq=False)
class Row:
    """One choice of one request while it is being answered."""

    request: WorkloadRequest
    choice: int
    prompt_ids: tuple[int, ...]
    transcript: RequestTranscript
    token_ids: list[int] = field(default_factory=list)
    unsent_ids: list[int] = field(default_factory=list)
    sent_text: str = ""
    finish_reason: str | None = None
    state: RuleState | None = None

    @property
    def stops(self) -> list[str]:
        stop = self.request.params.get("stop") or []
        return [stop] if isinstance(stop, str) else list(stop)


class FakeServer:
    """Answers `Target.run` rightly; see the hooks at the end for what a defect may change."""

    name = "fake"

    def __init__(self, config: ProbeConfig, running_limit: int = 64) -> None:
        self.config = config
        self.model = config.name
        self.rule = Rule(config)
        self.running_limit = running_limit
        self.finished_prompts: list[tuple[int, ...]] = []
        self.requests_seen = 0

    async def metrics(self) -> dict[str, float]:
        return {}

    async def close(self) -> None:
        return None

    async def run(self, workload: Workload) -> Transcript:
        self.requests_seen += len(workload.requests)
        transcript = Transcript()
        for r in workload.requests:
            transcript.requests[r.key] = RequestTranscript(r.key, Ending.COMPLETE, r.due_s)
        pending, waiting, running = list(workload.requests), [], []
        now_s = 0.0
        while pending or waiting or running:
            for request in [r for r in pending if self._due(r, transcript, now_s)]:
                pending.remove(request)
                waiting += self._admitted(request, transcript, now_s)
            while waiting and len(running) < self.running_limit:
                running.append(waiting.pop(0))
            for row in running:
                self._advance(row, [r for r in running if r is not row], now_s)
            running = self._retire(running, now_s)
            now_s += ROUND_S
            if not running and not waiting and pending:
                now_s = max(now_s, min(r.due_s for r in pending))
        transcript.duration_s = now_s
        return transcript

    def _due(self, request: WorkloadRequest, transcript: Transcript, now_s: float) -> bool:
        if request.after is None:
            return request.due_s <= now_s
        other = transcript[request.after.key]
        seen = sum(len(c.chunks) for c in other.choices.values())
        return seen >= request.after.tokens or other.t_end_s is not None

    def _admitted(
        self, request: WorkloadRequest, transcript: Transcript, now_s: float
    ) -> list[Row]:
        answer = transcript[request.key]
        answer.t_sent_s = now_s
        if self.refuses(request):
            answer.ending, answer.status, answer.t_end_s = Ending.REFUSED, 400, now_s
            return []
        ids = request.prompt_ids
        if ids is None:
            ids = tuple(encode_text(self.config, request.prompt_text or ""))
        answer.status, answer.response_id = 200, self.response_id(request)
        rows = range(int(request.params.get("n", 1)))
        return [Row(request, choice, tuple(ids), answer) for choice in rows]

    def _advance(self, row: Row, others: list[Row], now_s: float) -> None:
        token = self._next_token(row, self.visible(row, others))
        row.token_ids.append(token)
        row.unsent_ids.append(token)
        params = row.request.params
        text = self.decoded(row.token_ids)
        cut = min((text.index(s) for s in self.stops_now(row) if s in text), default=None)
        if cut is not None:
            text, row.finish_reason = text[:cut], "stop"
        elif (
            token == self.config.eos_id and not params.get("ignore_eos")
        ) or token in self.stop_ids(row):
            row.finish_reason = "stop"
        elif len(row.token_ids) >= self.most_tokens(row):
            row.finish_reason = "length"
        safe = text if row.finish_reason else text[: len(text) - self.held_back(row, text)]
        self._send(row, safe, now_s)

    def _ends(self, row: Row, token: int) -> bool:
        ignored = bool(row.request.params.get("ignore_eos"))
        return token in self.stop_ids(row) or (token == self.config.eos_id and not ignored)

    def _next_token(self, row: Row, seen: tuple[int, ...]) -> int:
        """The rule's next token; read token by token as long as the row sees what it should."""
        if seen != (*row.prompt_ids, *row.token_ids):
            return self.rule.next_token(seen)
        if row.state is None:
            row.state = self.rule.begin()
        following = None
        for token in seen[row.state.length :]:
            following = self.rule.push(row.state, token)
        assert following is not None
        return following

    def _send(self, row: Row, safe: str, now_s: float) -> None:
        entry = row.transcript.choices.setdefault(row.choice, ChoiceTranscript())
        delta = safe[len(row.sent_text) :]
        row.sent_text = safe
        if row.request.stream or row.finish_reason:
            ids, row.unsent_ids = tuple(row.unsent_ids), []
            entry.chunks.append(TokenChunk(now_s, delta, ids, tokens=len(ids)))
        else:
            row.sent_text = ""
        if row.finish_reason:
            entry.finish_reasons.append(row.finish_reason)

    def _retire(self, running: list[Row], now_s: float) -> list[Row]:
        for answer in {id(r.transcript): r.transcript for r in running}.values():
            rows = [r for r in running if r.transcript is answer]
            cut = rows[0].request.cancel_after_tokens
            seen = sum(len(c.chunks) for c in answer.choices.values())
            if cut is not None and seen >= cut:
                answer.ending, answer.t_end_s = Ending.CANCELLED, now_s
                running = [r for r in running if r.transcript is not answer]
        for row in [r for r in running if r.finish_reason]:
            row.transcript.t_end_s = now_s
            used = row.transcript.usage.completion_tokens if row.transcript.usage else 0
            row.transcript.usage = Usage(
                len(row.prompt_ids), used + self.counted(row), self.cached(row)
            )
            row.transcript.usages_seen = row.transcript.terminators = 1
            self.finished_prompts.append(row.prompt_ids)
        return [r for r in running if not r.finish_reason]

    def decoded(self, token_ids: list[int]) -> str:
        kept = [i for i in token_ids if i != self.config.eos_id]
        return bytes(decode_tokens(self.config, kept)).decode("utf-8", errors="replace")

    # What a defect may override -------------------------------------------------------------

    def visible(self, row: Row, others: list[Row]) -> tuple[int, ...]:
        """The tokens that the model sees when it chooses the row's next one."""
        return (*row.prompt_ids, *row.token_ids)

    def refuses(self, request: WorkloadRequest) -> bool:
        params = request.params
        most = params.get("max_tokens", 16)
        known = params.get("model", self.model) == self.model
        return not (
            isinstance(most, int)
            and most >= 1
            and isinstance(params.get("temperature", 0), int | float)
            and known
            and isinstance(params.get("stop_token_ids", []), list | tuple)
            and all(0 <= i < self.rule.vocabulary.size for i in request.prompt_ids or ())
        )

    def response_id(self, request: WorkloadRequest) -> str:
        return f"cmpl-{self.requests_seen}-{request.key}"

    def most_tokens(self, row: Row) -> int:
        return int(row.request.params.get("max_tokens", 16))

    def stop_ids(self, row: Row) -> tuple[int, ...]:
        """The tokens that end the row's answer, besides EOS; shown in it, as some servers do."""
        return tuple(row.request.params.get("stop_token_ids") or ())

    def stops_now(self, row: Row) -> list[str]:
        """The stop strings that may end the answer where it stands."""
        return row.stops

    def held_back(self, row: Row, text: str) -> int:
        """How many characters might still become a stop string."""
        longest = 0
        for stop in row.stops:
            for k in range(1, len(stop)):
                if text.endswith(stop[:k]):
                    longest = max(longest, k)
        return longest

    def counted(self, row: Row) -> int:
        """How many tokens usage counts."""
        return len(row.token_ids)

    def cached(self, row: Row) -> int:
        """How many prompt tokens came from a prefix cache."""
        return 0


class LargePages(FakeServer):
    """No defect: a prefix cache of pages of 128 tokens, as vLLM's on a CPU."""

    def cached(self, row: Row) -> int:
        prompt = row.prompt_ids
        sizes = range(128, len(prompt), 128)
        return max(
            (n for n in sizes if any(p[:n] == prompt[:n] for p in self.finished_prompts)), default=0
        )


class NeighbourVisible(FakeServer):
    """The last token of another row is seen as well."""

    def visible(self, row: Row, others: list[Row]) -> tuple[int, ...]:
        ids = super().visible(row, others)
        if not others or not row.token_ids:
            return ids
        return (*ids[:-1], others[0].prompt_ids[-1], ids[-1])


class PositionShifted(FakeServer):
    """From the second output token on, the model misses the token after BOS."""

    def visible(self, row: Row, others: list[Row]) -> tuple[int, ...]:
        ids = super().visible(row, others)
        return ids[:1] + ids[2:] if row.token_ids else ids


class PageReused(FakeServer):
    """Once anything has finished, the first page of a long prompt is that of another."""

    page = 16

    def visible(self, row: Row, others: list[Row]) -> tuple[int, ...]:
        ids = super().visible(row, others)
        used = [p for p in self.finished_prompts if len(p) >= self.page]
        if len(ids) > self.page and used and row.token_ids:
            return used[-1][: self.page] + ids[self.page :]
        return ids


class StopLeaks(FakeServer):
    """Text that may become a stop string is sent at once."""

    def stops_now(self, row: Row) -> list[str]:
        """The stop strings that may end the answer where it stands."""
        return row.stops

    def held_back(self, row: Row, text: str) -> int:
        return 0


class UsageShort(FakeServer):
    """The last token is not counted."""

    def counted(self, row: Row) -> int:
        return max(0, len(row.token_ids) - 1)


class OneTokenMore(FakeServer):
    """max_tokens is one off when anything else runs."""

    def most_tokens(self, row: Row) -> int:
        return super().most_tokens(row) + (1 if row.request.stream else 0)


class StopIdsShared(FakeServer):
    """A stop token id given once ends every later answer too."""

    def stop_ids(self, row: Row) -> tuple[int, ...]:
        self._seen = (*getattr(self, "_seen", ()), *super().stop_ids(row))
        return self._seen


class StopIdsLost(FakeServer):
    """Only the model's own EOS ends an answer."""

    def stop_ids(self, row: Row) -> tuple[int, ...]:
        return ()


class Limited(FakeServer):
    """States a context limit; ``room`` is how many tokens it can hold, if less."""

    def __init__(self, config: ProbeConfig, context: int = 240, room: int | None = None) -> None:
        super().__init__(config)
        self.context = context
        self.room = context if room is None else room

    async def discover(self) -> Discovery:
        document = {"id": self.model, "max_model_len": self.context}
        return Discovery("fake", (self.model,), (document,))

    def refuses(self, request: WorkloadRequest) -> bool:
        if super().refuses(request):
            return True
        ids = request.prompt_ids or encode_text(self.config, request.prompt_text or "")
        return len(ids) + int(request.params.get("max_tokens", 16)) > self.room
