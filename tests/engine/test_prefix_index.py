"""The prefix cache shares what is equal and nothing else. Wrong sharing of equal tokens changes no
bit of any answer, so equality with ``solo`` cannot see it: the counts of cached tokens can.
"""

from __future__ import annotations

import pytest

from reference_engine.engine import Engine, EngineConfig
from reference_engine.prefix_index import PrefixIndex
from reference_engine.request import Request, SamplingParams
from tests.engine.tiny import tiny_model

PAGE = 8
PROMPT = tuple(range(3, 3 + 3 * PAGE))  # three full pages: at most length - 1 can be a hit


def _cached(engine: Engine, key: str, prompt: tuple[int, ...], salt: str | None) -> int:
    """Serve one request to its end; how many of its prompt tokens came from the cache."""
    engine.submit(Request(key, prompt, SamplingParams(max_tokens=1), cache_salt=salt))
    events = []
    while engine.has_work:
        events += engine.step()
    return events[0].cached_tokens


@pytest.mark.parametrize("owner", ["a", "", None])
def test_only_the_same_salt_shares(owner: str | None) -> None:
    engine = Engine(tiny_model(), EngineConfig(page_size=PAGE, num_pages=40))
    assert _cached(engine, "owner", PROMPT, owner) == 0
    for other in {"a", "b", "", None} - {owner}:
        assert _cached(engine, f"other {other}", PROMPT, other) == 0, f"{other!r} hit {owner!r}"
    hit = _cached(engine, "same", PROMPT, owner)
    assert 2 * PAGE <= hit < len(PROMPT), "the same salt hits, all but the last token at most"


def test_a_page_is_shared_only_after_the_same_pages() -> None:
    engine = Engine(tiny_model(), EngineConfig(page_size=PAGE, num_pages=40))
    _cached(engine, "owner", PROMPT, None)
    assert _cached(engine, "other first token", (1, *PROMPT[1:]), None) == 0
    other_second_page = (*PROMPT[:PAGE], 1, *PROMPT[PAGE + 1 :])
    assert _cached(engine, "other second page", other_second_page, None) == PAGE


def test_a_digest_that_collides_is_a_miss() -> None:
    index = PrefixIndex()
    digest = PrefixIndex.chain(PrefixIndex.root(None), (5, 6))
    index.add(1, digest, (5, 6))
    assert index.find(digest, (5, 6)) == 1
    assert index.find(digest, (5, 7)) is None, "the tokens are compared, not only the digest"
    index.forget(1)
    assert index.find(digest, (5, 6)) is None
    assert not index.knows(1)
