"""Prompts on which the probe is at its most sensitive: those that leave every sum near zero."""

from __future__ import annotations

import random

from reference_engine.probe.config import BOS_ID, FIRST_BYTE_ID, ProbeConfig
from reference_engine.probe.rule import Rule
from reference_engine.probe.vocabulary import vocabulary


def balanced_prompt(config: ProbeConfig, tokens: int, rng: random.Random) -> list[int]:
    """``tokens`` random ids after which every sum is +1/2 or -1/2, or as near as the length allows.

    The first part is random bytes; the last are random among the bytes whose sign bits all push the
    sums towards zero. One token more, less or changed then flips a sign at once. Where there are
    windows, as many tokens as the largest holds are chosen so that no sum strays far from zero
    before that, for then the sum over a window is near zero, too.
    """
    rule, table = Rule(config), vocabulary(config)
    by_signs: dict[int, list[int]] = {}
    for token_id in range(FIRST_BYTE_ID, FIRST_BYTE_ID + 256):
        by_signs.setdefault(table.signs[token_id], []).append(token_id)
    every = (1 << config.sign_bits) - 1
    near = max((window for window in config.windows if window is not None), default=0)
    state = rule.begin()
    rule.push(state, BOS_ID)
    ids = [BOS_ID]
    while len(ids) < tokens:
        left = tokens - len(ids)
        furthest = max(abs(total) for total in state.doubled_sums) // 2
        back = every ^ state.signs[-1]
        if left <= furthest + 2:
            token_id = rng.choice(by_signs[back])
        elif left <= furthest + 2 + near:
            free = sum(1 << k for k, total in enumerate(state.doubled_sums) if abs(total) <= 2)
            token_id = rng.choice(by_signs[back ^ (free & rng.randrange(every + 1))])
        else:
            token_id = rng.randrange(FIRST_BYTE_ID, FIRST_BYTE_ID + 256)
        rule.push(state, token_id)
        ids.append(token_id)
    return ids
