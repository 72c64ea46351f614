"""Read back from top log-probabilities what each layer saw, and say it in words.

A log-probability minus that of the token whose logit is always 0 is a logit, and a gauge's logit is
``16 * S / n`` (see `reference_engine.probe.gauges`). With ``S`` the rule's sum over the ``n``
tokens that a layer should see, one token of sign ``c`` too many makes it ``(S + c) / (n + 1)``, one
too few ``(S - c) / (n - 1)``. The sums are multiples of 1/2 and the newest ones small, so they are
told apart by rounding; "+1 too many" and "-1 too few" differ only in ``n``, by a part of ``1 / n``,
and are told apart where that is more than the error. Otherwise both are named.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from reference_engine.probe.config import BOS_ID, ProbeConfig
from reference_engine.probe.gauges import ONE_LOGIT, SUM_GAIN, gauges, one_id, zero_id
from reference_engine.probe.rule import Rule
from reference_engine.probe.vocabulary import vocabulary

_RELATIVE_ERROR: Final = 1 / 64  # of a bfloat16 logit, after four roundings
_ABSOLUTE_ERROR: Final = 4e-5  # of a mean: a float32 log-probability near -100, with room
_HEALTHY_TOKENS: Final = 0.1  # a sum that is off by less is right: slips are of 1/2 or more
_CALM: Final = 0.97
_SHIFTS: Final = (1, -1, 16, -16)
_LEAST_TAPS: Final = 6


@dataclass(frozen=True, slots=True)
class Reading:
    """What one layer showed after the token at ``position``.

    ``means[k]`` is ``S[k] / n``, ``symbols[h]`` the symbol that tap ``h`` fetched, None where the
    logit is no symbol's. Gauges that did not show are missing. ``error`` is that of a mean near 0;
    ``alarmed`` says that a layer raised the alarm, after which what layers above it store is wrong.
    """

    position: int
    level: int
    means: Mapping[int, float]
    symbols: Mapping[int, int | None]
    error: float = _ABSOLUTE_ERROR
    alarmed: bool = False


def read_gauges(config: ProbeConfig, position: int, top: Mapping[int, float]) -> list[Reading]:
    """The layers that show among ``top``, log-probabilities by token id.

    Empty where the zero or the one token is not among them: a dice probe, or too few alternatives.
    """
    zero, one = top.get(zero_id(config)), top.get(one_id(config))
    if config.dice or zero is None or one is None or one <= zero:
        return []
    scale = (one - zero) / ONE_LOGIT
    error = _ABSOLUTE_ERROR + 2 * abs(zero) * 2**-23 / scale / SUM_GAIN
    means: dict[int, dict[int, float]] = {}
    symbols: dict[int, dict[int, int | None]] = {}
    for token_id, gauge in gauges(config).items():
        logit = (top[token_id] - zero) / scale if token_id in top else None
        if logit is None or not -2 * SUM_GAIN < logit < 1.5 * SUM_GAIN:
            continue
        if gauge.kind == "sum":
            means.setdefault(gauge.level, {})[gauge.index] = logit / SUM_GAIN
        else:
            number = round((logit + 31) / 2)
            near = abs(2 * number - 31 - logit) < 0.6
            symbols.setdefault(gauge.level, {})[gauge.index] = number if near else None
    return [
        Reading(position, level, means.get(level, {}), symbols.get(level, {}), error, scale < _CALM)
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
    found: dict[str, list[tuple[Reading, str]]] = {}
    for reading in readings:
        slip = _slip(config, ids, reading)
        if slip:
            found.setdefault(slip[0], []).append((reading, slip[1]))
    if any(reading.alarmed for reading in readings):
        found = _lowest(found)
    read = {reading.level for reading in readings if reading.means}
    sentences = []
    for what, seen in sorted(found.items(), key=lambda row: -len(row[1])):
        levels = sorted({reading.level for reading, _ in seen})
        named = ("layer " if len(levels) == 1 else "layers ") + ", ".join(map(str, levels))
        who = "every layer that was read" if len(levels) > 1 and set(levels) == read else named
        most = max(len(reading.means) for reading, _ in seen)  # values as complete as they come
        values = {value for reading, value in seen if len(reading.means) == most}
        value = values.pop() if len(values) == 1 else ", of a value that changes"
        first = min(reading.position for reading, _ in seen)
        sentences.append(f"{who} {what}{value} (seen from position {first} on)")
    shifted = _taps_in_words(config, ids, readings)
    return ([shifted] if shifted else []) + sentences[:3]


def _lowest(
    found: Mapping[str, Sequence[tuple[Reading, str]]],
) -> dict[str, list[tuple[Reading, str]]]:
    """Only what the lowest layer shows: an alarm spoils what the layers above it store."""
    level = min((reading.level for seen in found.values() for reading, _ in seen), default=0)
    kept = {what: [s for s in seen if s[0].level == level] for what, seen in found.items()}
    return {what: seen for what, seen in kept.items() if seen}


def _slip(config: ProbeConfig, ids: Sequence[int], reading: Reading) -> tuple[str, str] | None:
    """What could have made these means, and a value; None where they are right or unreadable."""
    sums, n = right_sums(config, ids, reading.position, reading.level)
    means = reading.means
    if not means or _fits(means, sums, n, max(reading.error, _HEALTHY_TOKENS / n)):
        return None
    if all(value == 0 for value in means.values()):
        return "saw nothing: an empty slot took its attention", ""
    if _fits(means, sums, n + 1, reading.error):
        return "attended an empty slot besides its tokens", ""
    newest = codes(config, ids[reading.position])
    if n > 1 and _fits(
        means, [s - c for s, c in zip(sums, newest, strict=True)], n - 1, reading.error
    ):
        return "did not see the newest token", ""
    without_bos = [s - c for s, c in zip(sums, codes(config, BOS_ID), strict=True)]
    if n == reading.position + 1 and _fits(means, without_bos, n - 1, reading.error):
        return "did not see BOS", ""
    return _one_token_in_words(means, sums, n, reading.error) or _off_in_words(means, sums, n)


def _one_token_in_words(
    means: Mapping[int, float], sums: Sequence[float], n: int, room: float
) -> tuple[str, str] | None:
    """One token too many or too few, or either where the error leaves it open."""
    options = []
    for change, verb in ((1, "too many"), (-1, "too few")):
        token = _one_token(means, sums, n, change, room)
        if token is not None:
            error, signs = token
            options.append((error, verb, "(" + ", ".join(f"{s:+d}" for s in signs) + ")"))
    options.sort()
    if not options:
        return None
    if len(options) == 2 and options[1][0] > 20 * options[0][0] + 2 * room:
        options.pop()
    verbs = ", or one ".join(verb for _, verb, _ in options)
    value = ", or ".join(value for _, _, value in options)
    return f"attended one token {verbs}", f", of value {value}"


def _off_in_words(means: Mapping[int, float], sums: Sequence[float], n: int) -> tuple[str, str]:
    """By how much the sums are off, where no single token explains it."""
    off = ", ".join(f"{mean * n - sums[k]:+.1f}" for k, mean in sorted(means.items()))
    return "saw other tokens than it should", f": its sums are off by about ({off})"


def _fits(
    means: Mapping[int, float], sums: Sequence[float], n: int, room: float = _ABSOLUTE_ERROR
) -> bool:
    """Whether the means are those of ``sums`` over ``n`` tokens, up to rounding."""
    return n > 0 and all(
        abs(mean - sums[k] / n) <= room + _RELATIVE_ERROR * abs(sums[k] / n)
        for k, mean in means.items()
    )


def _one_token(
    means: Mapping[int, float], sums: Sequence[float], n: int, change: int, room: float
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
        if error > room + _RELATIVE_ERROR * value:
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
