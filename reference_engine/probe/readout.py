"""Read back from top log-probabilities what each layer saw, and say it in words.

A log-probability minus that of the token whose logit is always 0 is a logit, and a gauge's logit is
``16 * S / n`` (see `reference_engine.probe.gauges`). With ``S`` the rule's sum over the ``n``
tokens that a layer should see, one token of sign ``c`` too many makes it ``(S + c) / (n + 1)``, one
too few ``(S - c) / (n - 1)``. The sums are multiples of 1/2 and the newest ones small, so they are
told apart by rounding; "+1 too many" and "-1 too few" differ only in ``n``, by a part of ``1 / n``,
and are told apart where that is more than the error. Otherwise both are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference_engine.probe.config import BOS_ID, ProbeConfig
from reference_engine.probe.gauges import SUM_GAIN, gauges, zero_id
from reference_engine.probe.rule import Rule
from reference_engine.probe.vocabulary import vocabulary

_RELATIVE_ERROR: Final = 1 / 64  # of a bfloat16 logit, after four roundings
_ABSOLUTE_ERROR: Final = 2e-5 / SUM_GAIN  # of a float32 log-probability near -100
_SHIFTS: Final = (1, -1, 16, -16)
_LEAST_TAPS: Final = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """What one layer showed after the token at ``position``.

    ``means[k]`` is ``S[k] / n``, ``symbols[h]`` the symbol that tap ``h`` fetched, None where the
    logit is no symbol's. Gauges that did not show are missing.
    """

    position: int
    level: int
    means: Mapping[int, float]
    symbols: Mapping[int, int | None]


def read_gauges(config: ProbeConfig, position: int, top: Mapping[int, float]) -> list[Reading]:
    """The layers that show among ``top``, log-probabilities by token id.

    Empty where the zero token is not among them: a dice probe, or too few alternatives.
    """
    if config.dice or (zero := top.get(zero_id(config))) is None:
        return []
    means: dict[int, dict[int, float]] = {}
    symbols: dict[int, dict[int, int | None]] = {}
    for token_id, gauge in gauges(config).items():
        logit = top[token_id] - zero if token_id in top else None
        if logit is None or not -2 * SUM_GAIN < logit < 1.5 * SUM_GAIN:
            continue
        if gauge.kind == "sum":
            means.setdefault(gauge.level, {})[gauge.index] = logit / SUM_GAIN
        else:
            number = round((logit + 31) / 2)
            near = abs(2 * number - 31 - logit) < 0.6
            symbols.setdefault(gauge.level, {})[gauge.index] = number if near else None
    return [
        Reading(position, level, means.get(level, {}), symbols.get(level, {}))
        for level in sorted(means.keys() | symbols.keys())
    ]


def read_answer(
    config: ProbeConfig, prompt_tokens: int, tops: Sequence[Mapping[int, float]]
) -> list[Reading]:
    """The readings of an answer: ``tops[i]`` are the alternatives to its token ``i``."""
    return [
        reading
        for index, top in enumerate(tops)
        for reading in read_gauges(config, prompt_tokens - 1 + index, top)
    ]


def codes(config: ProbeConfig, token_id: int) -> tuple[float, ...]:
    """What one token adds to each of the sums."""
    table = vocabulary(config)
    weight = 0.5 if token_id == BOS_ID else 1.0
    signs = [
        weight * (1 if table.signs[token_id] >> k & 1 else -1) for k in range(config.sign_bits)
    ]
    symbol = table.symbols[token_id]
    return (*signs, *(1.0 if symbol >> b & 1 else -1.0 for b in range(config.compared_bits)))


def right_sums(
    config: ProbeConfig, ids: Sequence[int], position: int, level: int
) -> tuple[tuple[float, ...], int]:
    """The rule's sums of ``level`` after ``ids[position]``, and over how many tokens they go."""
    window = config.window(level)
    first = 0 if window is None else max(0, position + 1 - window)
    rows = [codes(config, token_id) for token_id in ids[first : position + 1]]
    return tuple(map(sum, zip(*rows, strict=True))), len(rows)


def in_words(config: ProbeConfig, ids: Sequence[int], readings: Sequence[Reading]) -> list[str]:
    """What the readings say besides the rule, a sentence each; empty where they agree with it.

    ``ids`` are the prompt and what the server answered: the context that its layers should see.
    """
    found: dict[str, dict[int, list[int]]] = {}
    judged: Counter[int] = Counter()
    for reading in readings:
        sentence = _sums_in_words(config, ids, reading)
        judged[reading.level] += bool(reading.means)
        if sentence:
            positions = found.setdefault(sentence, {}).setdefault(reading.level, [])
            positions.append(reading.position)
    sentences = []
    levels_judged = {level for level, count in judged.items() if count}
    for sentence, by_level in sorted(
        found.items(), key=lambda row: -sum(map(len, row[1].values()))
    ):
        first = min(min(positions) for positions in by_level.values())
        whole = len(by_level) > 1 and by_level.keys() == levels_judged
        who = (
            "every layer read"
            if whole
            else ("layer " if len(by_level) == 1 else "layers ")
            + ", ".join(str(level) for level in sorted(by_level))
        )
        sentences.append(f"{who} {sentence} (seen from position {first} on)")
    shifted = _taps_in_words(config, ids, readings)
    return ([shifted] if shifted else []) + sentences[:4]


def _sums_in_words(config: ProbeConfig, ids: Sequence[int], reading: Reading) -> str | None:
    """What could have made these means; None where they are right or cannot be read."""
    sums, n = right_sums(config, ids, reading.position, reading.level)
    means = reading.means
    if not means or _fits(means, sums, n):
        return None
    newest = codes(config, ids[reading.position])
    bos = codes(config, BOS_ID)
    if all(value == 0 for value in means.values()):
        return "saw nothing: an empty slot took its attention"
    if n > 1 and _fits(means, [s - c for s, c in zip(sums, newest, strict=True)], n - 1):
        return "did not see the newest token"
    if n == reading.position + 1 and _fits(
        means, [s - c for s, c in zip(sums, bos, strict=True)], n - 1
    ):
        return "did not see BOS"
    options = []
    for change, verb in ((1, "too many"), (-1, "too few")):
        token = _one_token(means, sums, n, change)
        if token is not None:
            error, signs = token
            value = ", ".join(f"{s:+d}" for s in signs)
            options.append((error, f"attended one token {verb}, of value ({value})"))
    options.sort()
    if len(options) == 2 and options[1][0] > 20 * options[0][0] + 4 * _ABSOLUTE_ERROR:
        options.pop()
    if options:
        return ", or ".join(sentence for _, sentence in options)
    deltas = {k: means[k] * n - sums[k] for k in sorted(means)}
    if all(abs(delta) < 0.3 + _RELATIVE_ERROR * n for delta in deltas.values()):
        return None
    shown = ", ".join(f"{value:+.1f}" for value in deltas.values())
    return f"saw other tokens than it should: its sums are off by about ({shown})"


def _fits(means: Mapping[int, float], sums: Sequence[float], n: int) -> bool:
    """Whether the means are those of ``sums`` over ``n`` tokens, up to rounding."""
    return n > 0 and all(
        abs(mean - sums[k] / n) <= _ABSOLUTE_ERROR + _RELATIVE_ERROR * abs(sums[k] / n)
        for k, mean in means.items()
    )


def _one_token(
    means: Mapping[int, float], sums: Sequence[float], n: int, change: int
) -> tuple[float, list[int]] | None:
    """The largest error and the signs of the one token that, added or missing, explains all."""
    signs, worst = [], 0.0
    if n + change < 1:
        return None
    for k, mean in sorted(means.items()):
        error, sign = min(
            (abs(mean - (sums[k] + change * sign) / (n + change)), sign) for sign in (1, -1)
        )
        value = abs(sums[k] + change * sign) / (n + change)
        if error > _ABSOLUTE_ERROR + _RELATIVE_ERROR * value:
            return None
        signs.append(sign)
        worst = max(worst, error)
    return worst, signs


def _taps_in_words(
    config: ProbeConfig, ids: Sequence[int], readings: Sequence[Reading]
) -> str | None:
    """Positions read too early or too late, where the taps of the readings agree on it."""
    state = Rule(config).read(ids)[0]
    rows = [
        (state.symbols[r.level], r.position - config.taps[r.level][h], symbol, r.position)
        for r in readings
        for h, symbol in r.symbols.items()
        if symbol is not None
    ]

    def right(shift: int) -> int:
        return sum(
            row[min(max(at + shift, 0), position)] == symbol for row, at, symbol, position in rows
        )

    if len(rows) < _LEAST_TAPS or right(0) > 0.8 * len(rows):
        return None
    shift = max(_SHIFTS, key=right)
    if right(shift) < 0.6 * len(rows) or right(shift) < right(0) + _LEAST_TAPS / 2:
        return None
    by = "one" if abs(shift) == 1 else str(abs(shift))
    first = min(position for *_, position in rows)
    return f"positions from {first} on are read {by} too {'late' if shift > 0 else 'early'}"
