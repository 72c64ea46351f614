"""Faults of the prefix cache: what a page is found by, and when it may be found."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from reference_engine.faults.seam import FaultRun, Healthy, Wrapper, fault, owner

if TYPE_CHECKING:
    from reference_engine.sequence import Sequence as LiveSequence

GROUP: Final = "prefix cache and KV block lifecycle"


def _find_by_digest(healthy: Healthy, run: FaultRun) -> Healthy:
    """`PrefixIndex.find` without the comparison of tokens."""

    def find(digest: bytes, tokens: Sequence[int]) -> Any:
        index: Any = owner(healthy)
        page = index._by_digest.get(digest)
        if page is not None and healthy(digest, tokens) is None:
            run.executed()
        return page

    return find


@fault(
    "hash-without-parent",
    "The prefix hash leaves out what came before the page",
    imitates=("kvcached#451", "openvino.genai#3723"),
    group=GROUP,
)
def hash_without_parent() -> Mapping[str, Wrapper]:
    """A page is found by its own tokens, whatever stands before it in the prompt."""

    def digest(healthy: Healthy, run: FaultRun) -> Healthy:
        def orphan(parent: bytes, tokens: Sequence[int]) -> Any:
            run.executed()
            return healthy(b"", tokens)

        return orphan

    return {"pages.digest": digest}


@fault(
    "hash-without-salt",
    "The prefix hash leaves out the cache salt",
    imitates=("vllm#44701",),
    group=GROUP,
)
def hash_without_salt() -> Mapping[str, Wrapper]:
    """A salted request finds the pages of requests with another salt, and they its own."""

    def root(healthy: Healthy, run: FaultRun) -> Healthy:
        def unsalted(salt: str | None) -> Any:
            if salt is not None:
                run.executed()
            return healthy(None)

        return unsalted

    return {"pages.root_digest": root}


@fault(
    "hash-collision",
    "Prefix hashes collide and tokens are not compared",
    imitates=("vllm#12621", "vllm#54727", "openvino.genai#3723"),
    group=GROUP,
)
def hash_collision() -> Mapping[str, Wrapper]:
    """The hash sees the sum of a page's tokens, and an equal hash counts as a hit."""

    def digest(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda parent, tokens: healthy(parent, [sum(tokens) % 7])

    return {"pages.digest": digest, "prefixes.find": _find_by_digest}


@fault(
    "last-token-of-page-ignored",
    "Pages that differ in their last token count as equal",
    imitates=("mlx-lm#1746", "vllm-mlx#385"),
    group=GROUP,
)
def last_token_of_page_ignored() -> Mapping[str, Wrapper]:
    """The hash of a page leaves out its last token: a partly equal page is shared as a whole."""

    def digest(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda parent, tokens: healthy(parent, tokens[:-1] or tokens)

    return {"pages.digest": digest, "prefixes.find": _find_by_digest}


@fault(
    "evicted-page-still-found",
    "An evicted page is still found under its old hash",
    imitates=("vllm#37076", "TGI#2871"),
    group=GROUP,
)
def evicted_page_still_found() -> Mapping[str, Wrapper]:
    """Eviction forgets to remove the hash: a later prompt reads whatever the page holds now."""

    def forget(healthy: Healthy, run: FaultRun) -> Healthy:
        return lambda page: None

    return {"prefixes.forget": forget, "prefixes.find": _find_by_digest}


@fault(
    "page-found-before-written",
    "A page can be found before it has been computed",
    imitates=("TGI#2489", "vllm#41400", "sglang#24221"),
    group=GROUP,
)
def page_found_before_written() -> Mapping[str, Wrapper]:
    """Pages enter the prefix cache when they are given out, not when their tokens are computed."""

    def grow(healthy: Healthy, run: FaultRun) -> Healthy:
        def eager_grow(sequence: LiveSequence, tokens: int) -> bool:
            pages: Any = owner(healthy)
            if not healthy(sequence, len(sequence.tokens)):
                return bool(healthy(sequence, tokens))
            known = sequence.computed
            full = len(sequence.tokens) // pages.page_size
            if full > known // pages.page_size:
                sequence.computed = full * pages.page_size
                pages.register(sequence)
                sequence.computed = known
                run.executed()
            return True

        return eager_grow

    return {"pages.grow": grow}


@fault(
    "copy-on-write-missing",
    "Choices write into the page they share",
    imitates=("vllm#16863", "MinivLLM#98"),
    group=GROUP,
)
def copy_on_write_missing() -> Mapping[str, Wrapper]:
    """The partly filled page at the end of a prompt is shared by all choices and never copied."""

    def shared_at(healthy: Healthy, run: FaultRun) -> Healthy:
        def nobody(table: Sequence[int], computed: int) -> None:
            if healthy(table, computed) is not None:
                run.executed()

        return nobody

    return {"group.shared_at": shared_at}
