"""Faults between the engine and the clients: whose events, whose ids, whose cancellation."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault

_ROUTING = "request ids, n > 1, lost or swapped responses"
_CANCEL = "cancel, abort and disconnect"
_LOGPROBS = "misaligned logprobs"
_PARAMETERS = "parameters lost on the way"


@fault(
    "duplicate-id-overwritten",
    "A second request with the same id takes over the first one's answer",
    imitates=("vllm#10583", "vllm#15041"),
    group=_ROUTING,
)
def duplicate_id_overwritten() -> Mapping[str, Wrapper]:
    """Ids that clients choose are used as they are. The second request with an id gets the rest of
    the first one's answer, and the first one an error.
    """

    taken_over: list[str] = []
    handovers: dict[str, asyncio.Event] = {}

    def take(healthy: Healthy, run: FaultRun) -> Healthy:
        def trusting(prefix: str, client_id: str | None = None) -> Any:
            if client_id is None:
                return healthy(prefix)
            return f"{prefix}-{client_id}"

        return trusting

    def submit(healthy: Healthy, run: FaultRun) -> Healthy:
        host: Any = healthy.__self__  # type: ignore[attr-defined]

        async def overwriting(request: Any, mailbox: Any) -> None:
            handover = handovers.get(request.request_id)
            if handover is not None:
                # Failed any earlier, the first would be cancelled once more than is spared below.
                await handover.wait()
            first = host.mailboxes.get(request.request_id)
            if first is None:
                handovers[request.request_id] = asyncio.Event()
                try:
                    await healthy(request, mailbox)
                finally:
                    handovers.pop(request.request_id).set()
                return
            run.executed()
            host.mailboxes[request.request_id] = mailbox
            taken_over.append(request.request_id)
            first.fail(host.lost("the request was overwritten by another one with its id"))

        return overwriting

    def cancel(healthy: Healthy, run: FaultRun) -> Healthy:
        def spare_the_second(request_id: str) -> None:
            if request_id in taken_over:
                taken_over.remove(request_id)
            else:
                healthy(request_id)

        return spare_the_second

    return {"server_ids.take": take, "server_host.submit": submit, "server_host.cancel": cancel}


@fault(
    "abort-ignored",
    "A client that hangs up is forgotten, its request runs on",
    imitates=("vllm#14326", "sglang#35255", "sglang#36333"),
    group=_CANCEL,
)
def abort_ignored() -> Mapping[str, Wrapper]:
    """The server drops its own state first and never tells the engine: the request decodes for
    nobody until max_tokens, and holds its pages.
    """

    def cancel(healthy: Healthy, run: FaultRun) -> Healthy:
        host: Any = healthy.__self__  # type: ignore[attr-defined]

        def forgetful(request_id: str) -> None:
            if host.mailboxes.pop(request_id, None) is not None:
                run.executed()

        return forgetful

    return {"server_host.cancel": cancel}


@fault(
    "replies-swapped",
    "Two clients get each other's tokens",
    imitates=("vllm#13408", "vllm#9910", "transformers#39149"),
    group=_ROUTING,
)
def replies_swapped() -> Mapping[str, Wrapper]:
    """In every fifth step with two requests or more, the tokens of the first two change places."""

    def deliver(healthy: Healthy, run: FaultRun) -> Healthy:
        crowded = 0

        def swapped(events: Any, stepped_s: float) -> None:
            nonlocal crowded
            running = [e for e in events if e.choice == 0 and e.finish_reason is None]
            if len(running) >= 2:
                crowded += 1
            if len(running) < 2 or crowded % 5:
                healthy(events, stepped_s)
                return
            run.executed()
            first, second = running[:2]
            changed = {
                id(first): replace(first, token_id=second.token_id),
                id(second): replace(second, token_id=first.token_id),
            }
            healthy([changed.get(id(e), e) for e in events], stepped_s)

        return swapped

    return {"server_host.deliver": deliver}


@fault(
    "choices-overwritten",
    "The choices of one request overwrite each other",
    imitates=("vllm#16863", "vllm#14280", "vllm#12584"),
    group=_ROUTING,
)
def choices_overwritten() -> Mapping[str, Wrapper]:
    """All choices of a request with n > 1 share one slot: each step's token of the last choice
    goes to all of them.
    """

    def deliver(healthy: Healthy, run: FaultRun) -> Healthy:
        def overwritten(events: Any, stepped_s: float) -> None:
            last = {e.request_id: e for e in events}
            changed = []
            for event in events:
                other = last[event.request_id]
                if other.choice != event.choice and other.token_id is not None:
                    run.executed()
                    event = replace(event, token_id=other.token_id)
                changed.append(event)
            healthy(changed, stepped_s)

        return overwritten

    return {"server_host.deliver": deliver}


@fault(
    "logprob-row-shifted",
    "Each token is told with the logprobs of the token before it",
    imitates=("vllm#5846", "sglang#2825", "strands-sglang#34"),
    group=_LOGPROBS,
)
def logprob_row_shifted() -> Mapping[str, Wrapper]:
    """Logprob rows are one behind the tokens; the first row comes twice."""

    def deliver(healthy: Healthy, run: FaultRun) -> Healthy:
        rows: defaultdict[str, dict[int, Any]] = defaultdict(dict)

        def shifted(events: Any, stepped_s: float) -> None:
            changed = []
            for event in events:
                before = rows[event.request_id].get(event.choice)
                rows[event.request_id][event.choice] = event.logprobs
                if before is not None and event.logprobs is not None:
                    run.executed()
                    event = replace(event, logprobs=before)
                changed.append(event)
                if event.finish_reason is not None:
                    rows[event.request_id].pop(event.choice)
            healthy(changed, stepped_s)

        return shifted

    return {"server_host.deliver": deliver}


@fault(
    "error-kills-others",
    "A request that does not fit aborts everybody else's",
    imitates=("llama.cpp#23652", "vllm#23683", "vllm#765"),
    group=_ROUTING,
)
def error_kills_others() -> Mapping[str, Wrapper]:
    """When a prompt is too long for the context, every request that runs gets the error too."""

    def refused(healthy: Healthy, run: FaultRun) -> Healthy:
        served: Any = healthy.__self__  # type: ignore[attr-defined]

        def spreading(error: Any) -> Any:
            if error.code == "context_length_exceeded":
                for mailbox in list(served.host.mailboxes.values()):
                    run.executed()
                    mailbox.fail(served.host.lost("context size exceeded"))
            return healthy(error)

        return spreading

    return {"server_model.refused": refused}


def _losing(**lost: Any) -> Wrapper:
    """A submission that forgets some sampling parameters."""

    def submit(healthy: Healthy, run: FaultRun) -> Healthy:
        async def forgetful(request: Any, mailbox: Any) -> None:
            if any(getattr(request.params, name) != value for name, value in lost.items()):
                run.executed()
                request = replace(request, params=replace(request.params, **lost))
            await healthy(request, mailbox)

        return forgetful

    return submit


@fault(
    "seed-ignored",
    "The request's seed never reaches the sampler",
    imitates=("llama.cpp#7381", "vllm#6449"),
    group="seeds and generators shared between rows",
)
def seed_ignored() -> Mapping[str, Wrapper]:
    """Seeded requests draw as unseeded ones do: no two runs agree."""
    return {"server_host.submit": _losing(seed=None)}


@fault(
    "ignore-eos-lost",
    "ignore_eos has no effect",
    imitates=("vllm#4589", "TensorRT-LLM#12166"),
    group="length and count contracts",
)
def ignore_eos_lost() -> Mapping[str, Wrapper]:
    """Answers end at the end-of-sequence token though the client asked to go on."""
    return {"server_host.submit": _losing(ignore_eos=False)}


@fault(
    "min-tokens-lost",
    "min_tokens has no effect",
    imitates=("vllm#5849", "vllm#15407"),
    group="length and count contracts",
)
def min_tokens_lost() -> Mapping[str, Wrapper]:
    """The parameter is lost between the server and the engine."""
    return {"server_host.submit": _losing(min_tokens=0)}


@fault(
    "logit-bias-lost",
    "logit_bias has no effect",
    imitates=("vllm-ascend#7785", "aprender#2027"),
    group=_PARAMETERS,
)
def logit_bias_lost() -> Mapping[str, Wrapper]:
    """The parameter is lost between the server and the engine."""
    return {"server_host.submit": _losing(logit_bias={})}


@fault(
    "salt-lost",
    "cache_salt has no effect",
    imitates=("vllm#44701",),
    group="prefix cache and page lifecycle",
)
def salt_lost() -> Mapping[str, Wrapper]:
    """Tenants that ask for caches of their own share one, so a stranger can time who asked what."""

    def submit(healthy: Healthy, run: FaultRun) -> Healthy:
        async def unsalted(request: Any, mailbox: Any) -> None:
            if request.cache_salt is not None:
                run.executed()
            await healthy(replace(request, cache_salt=None), mailbox)

        return unsalted

    return {"server_host.submit": submit}
