"""From logits to tokens, events and endings: the part of a step that comes after the model."""

from __future__ import annotations

from collections.abc import Sequence as SequenceOf
from dataclasses import dataclass, field

from torch import Tensor

from reference_engine.admission import end_ids, finish_reason, resolved_seed
from reference_engine.audit import Audit
from reference_engine.model import LoadedModel
from reference_engine.numerics import finite_rows, log_softmax
from reference_engine.request import FinishReason, Request, TokenEvent, TokenLogprobs
from reference_engine.sampler import Sampler, describe_logprobs
from reference_engine.scheduler import Chunk, Plan, Scheduler
from reference_engine.sequence import Sequence

NOT_FINITE = "the model computed NaN or infinite logits for this request"


@dataclass(slots=True)
class LiveRequest:
    """A request between `Engine.submit` and its last event, and its sequences by choice.

    The sequence of choice 0 computes the prompt; those of the others begin, sharing its pages,
    with their first token.
    """

    request: Request
    seed: int
    end_ids: frozenset[int]
    sequences: dict[int, Sequence] = field(default_factory=dict)
    open_choices: set[int] = field(default_factory=set)
    prompt_scores: list[TokenLogprobs | None] | None = None


class Generation:
    """Samples for the rows that a step brought to the end of their known tokens."""

    def __init__(
        self, model: LoadedModel, scheduler: Scheduler, sampler: Sampler, audit: Audit
    ) -> None:
        self._model = model
        self._scheduler = scheduler
        self._sampler = sampler
        self._audit = audit
        self._live: dict[str, LiveRequest] = {}
        self._arrivals = 0

    def __contains__(self, request_id: str) -> bool:
        return request_id in self._live

    def begin(self, request: Request) -> Sequence:
        """Take the request in; returns the sequence that computes its prompt."""
        sequence = Sequence(request, 0, self._arrivals, list(request.prompt_ids))
        self._arrivals += 1
        live = LiveRequest(request, resolved_seed(request.params), end_ids(self._model, request))
        live.sequences[0] = sequence
        live.open_choices.update(range(request.params.n))
        if request.params.prompt_logprobs is not None:
            live.prompt_scores = [None] * len(request.prompt_ids)
        self._live[request.request_id] = live
        self._audit.requests += 1
        self._audit.prompt_tokens += len(request.prompt_ids)
        return sequence

    def cancel(self, request_id: str, choice: int | None = None) -> list[TokenEvent]:
        """End one open choice of a request, or all of them; no event if there is none."""
        live = self._live.get(request_id)
        if live is None or (choice is not None and choice not in live.open_choices):
            return []
        self._audit.cancelled += choice is None
        choices = sorted(live.open_choices) if choice is None else [choice]
        return self._abandon(live, choices, FinishReason.CANCELLED)

    def wanted_logits(self, chunk: Chunk) -> int:
        """How many of the chunk's last rows need logits."""
        return chunk.count if self._scores_prompt(chunk.sequence) else int(chunk.reaches_end)

    def advance(
        self, plan: Plan, logits: Tensor, wanted: SequenceOf[int] | None = None
    ) -> list[TokenEvent]:
        """Sample for every chunk that reached its end. logits: rows as `wanted_logits` asked.

        ``wanted``: what it asked when the step began, if anything may have been cancelled since.
        """
        events: list[TokenEvent] = []
        finite = finite_rows(logits)
        counts = [self.wanted_logits(c) for c in plan.chunks] if wanted is None else wanted
        logprobs = self._logprobs(plan, logits, counts)
        stop = 0
        for chunk, count in zip(plan.chunks, counts, strict=True):
            start, stop = stop, stop + count
            if chunk.sequence.finished:
                continue  # cancelled while the step ran, or ended by another of its choices
            live = self._live[chunk.sequence.request.request_id]
            if not all(finite[start:stop]):
                choices = sorted(live.open_choices)
                events += self._abandon(live, choices, FinishReason.ERROR, NOT_FINITE)
                continue
            if self._scores_prompt(chunk.sequence):
                for offset, row in enumerate(range(start, stop)):
                    self.score_prompt(live, chunk, offset, logprobs[row])
            if chunk.reaches_end:
                events += self._extend(chunk.sequence, logits[stop - 1], logprobs.get(stop - 1))
        return events

    def score_prompt(self, live: LiveRequest, chunk: Chunk, offset: int, logprobs: Tensor) -> None:
        """Note what the chunk's row ``offset`` says of the prompt token after it."""
        position = chunk.start + offset + 1
        if live.prompt_scores is not None and position < len(live.request.prompt_ids):
            token = live.request.prompt_ids[position]
            top = live.request.params.prompt_logprobs or 0
            live.prompt_scores[position] = describe_logprobs(logprobs, token, top)

    def ending(self, live: LiveRequest, token: int, output_tokens: int) -> FinishReason | None:
        """Why a choice is over after ``token``, its ``output_tokens``-th; None if it goes on."""
        return finish_reason(token, output_tokens, live.request, live.end_ids)

    def _logprobs(self, plan: Plan, logits: Tensor, counts: SequenceOf[int]) -> dict[int, Tensor]:
        """Logprobs of the rows whose requests want any, by row."""
        rows: list[int] = []
        stop = 0
        for chunk, count in zip(plan.chunks, counts, strict=True):
            start, stop = stop, stop + count
            wants = chunk.sequence.request.params.logprobs is not None
            if wants or self._scores_prompt(chunk.sequence):
                rows += range(start, stop)
        if not rows:
            return {}
        return dict(zip(rows, log_softmax(logits[rows]), strict=True))

    def _scores_prompt(self, sequence: Sequence) -> bool:
        live = self._live.get(sequence.request.request_id)
        return live is not None and live.prompt_scores is not None and not sequence.output_tokens

    def _extend(
        self, sequence: Sequence, logits: Tensor, logprobs: Tensor | None
    ) -> list[TokenEvent]:
        """Sample the sequence's next token; at the end of a prompt, the first of every choice."""
        live = self._live[sequence.request.request_id]
        if sequence.output_tokens:
            return [self._append(live, sequence, logits, logprobs)]
        choices = sorted(live.open_choices)
        children = [
            Sequence(sequence.request, choice, sequence.arrival, list(sequence.tokens))
            for choice in choices
            if choice > 0
        ]
        for child in children:
            self._scheduler.fork(sequence, child)
            live.sequences[child.choice] = child
        if 0 not in choices:  # cancelled while it computed the prompt for the others
            self._scheduler.finish(sequence)
            return [self._append(live, child, logits, logprobs) for child in children]
        return [self._append(live, s, logits, logprobs) for s in (sequence, *children)]

    def _append(
        self, live: LiveRequest, sequence: Sequence, logits: Tensor, logprobs: Tensor | None
    ) -> TokenEvent:
        wanted = live.request.params.logprobs
        output = sequence.tokens[sequence.prompt_tokens :]
        token = self._sampler.choose(logits, live, sequence.choice, output)
        scores = None
        if wanted is not None and logprobs is not None:
            scores = describe_logprobs(logprobs, token, wanted)
        sequence.tokens.append(token)
        self._audit.generated_tokens += 1
        reason = self.ending(live, token, len(output) + 1)
        if reason is not None:
            self._scheduler.finish(sequence)
            self._close(live, sequence.choice)
            self._audit.ended(len(sequence.tokens) - 1, idle=not self._live)
        first = not output
        return TokenEvent(
            request_id=live.request.request_id,
            choice=sequence.choice,
            token_id=token,
            logprobs=scores,
            finish_reason=reason,
            cached_tokens=sequence.cached_tokens or 0,
            prompt_logprobs=tuple(live.prompt_scores) if first and live.prompt_scores else None,
        )

    def _abandon(
        self,
        live: LiveRequest,
        choices: list[int],
        reason: FinishReason,
        error: str | None = None,
    ) -> list[TokenEvent]:
        """End these open choices without a token. The sequence of choice 0 goes on while it still
        computes the prompt for choices that stay open.
        """
        request_id = live.request.request_id
        if not live.open_choices.difference(choices):
            ended = list(live.sequences.values())
        elif len(live.sequences) == 1:
            ended = []
        else:
            ended = [live.sequences[choice] for choice in choices]
        for sequence in ended:
            if not sequence.finished:
                self._scheduler.finish(sequence)
        events = []
        for choice in choices:
            self._close(live, choice)
            events.append(TokenEvent(request_id, choice, None, finish_reason=reason, error=error))
        return events

    def _close(self, live: LiveRequest, choice: int) -> None:
        live.open_choices.discard(choice)
        if not live.open_choices:
            del self._live[live.request.request_id]
            self._audit.finished += 1
