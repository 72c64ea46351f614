"""What a fault can show at best: the requests in which anything that the rule reads is different.

A fault that puts one entry in the place of another changes nothing where both hold the same. In an
answer of ``T`` tokens an entry is read

- by the sums, if it differs in a sign bit (in each layer it hits: the sum is off and the answer's
  own sign bits, which drive it to zero, make that bite);
- by the comparison between layers, if it hits one layer only and the lowest bits of the token's own
  symbol differ (or, of a replaced key, its sign bits and those of the value);
- by a tap, if one of the ``T - 1`` new positions lies at one of the layer's distances from it and
  the symbols of the layer below differ there.

A random other token has the same ``b`` bits once in ``2 ** b``, so by sums alone at most 15 of 16
requests (4 sign bits) show an entry that is stale in every layer; the taps add what they reach. A
window that is one token too large moves each of its sums by one code: that shows only where a
sum is within that of zero. Counted here for the requests measured, from integers alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from reference_engine.probe.config import BOS_ID, ProbeConfig
from reference_engine.probe.rule import Rule, RuleState
from reference_engine.probe.sensitivity.fault_kinds import CONTROLS
from reference_engine.probe.vocabulary import vocabulary

REPLACING: Final = (
    "entry-replaced",
    "key-replaced",
    "value-replaced",
    "entry-stale",
    "entry-stale-all",
)
LARGER_WINDOW: Final = "window+1"


class Limit:
    """The rule's view of a batch: ``prompts[r]`` and the right ``answers[r]``, as ids."""

    def __init__(
        self,
        config: ProbeConfig,
        prompts: Sequence[Sequence[int]],
        answers: Sequence[Sequence[int]],
    ) -> None:
        self.config = config
        self._prompts = prompts
        self._answers = answers
        self._vocabulary = vocabulary(config)
        self._states: list[RuleState] = [Rule(config).read(ids)[0] for ids in prompts]

    def may_show(
        self, fault: str, row: int, layers: Sequence[int], slot: int, other: int, tokens: int
    ) -> bool:
        """Whether request ``row`` can show ``fault`` within ``tokens`` answer tokens.

        ``slot`` is the entry that is hit, ``other`` the one that a replacing fault copies. True for
        every kind that this module says nothing about, but for the controls.
        """
        if fault in CONTROLS:
            return False
        if fault == LARGER_WINDOW:
            return self._window_shows(row, tokens)
        if fault not in REPLACING:
            return True
        donor = (row + 1) % len(self._prompts) if fault.startswith("entry-stale") else row
        source = slot if donor != row else other
        bits = self._differing_bits(fault, row, slot, donor, source)
        return bits or any(
            self._tap_shows(fault, row, layer, slot, donor, source, tokens) for layer in layers
        )

    def _differing_bits(self, fault: str, row: int, slot: int, donor: int, source: int) -> bool:
        mine, put = self._prompts[row][slot], self._prompts[donor][source]
        table = self._vocabulary
        if table.signs[mine] != table.signs[put]:
            return True
        compared = (1 << self.config.compared_bits) - 1
        if fault in ("key-replaced", "entry-stale-all"):
            return False
        return bool((table.symbols[mine] ^ table.symbols[put]) & compared)

    def _tap_shows(
        self, fault: str, row: int, layer: int, slot: int, donor: int, source: int, tokens: int
    ) -> bool:
        below, theirs = self._states[row].symbols[layer], self._states[donor].symbols[layer]
        differs = below[slot] != theirs[source]
        moved = fault in ("entry-replaced", "key-replaced")
        if self._is_read(row, layer, slot, tokens) and (moved or differs):
            return True  # a moved key leaves nothing where it was
        return fault == "key-replaced" and differs and self._is_read(row, layer, source, tokens)

    def _is_read(self, row: int, layer: int, slot: int, tokens: int) -> bool:
        """Whether a tap of the layer reads ``slot`` from one of the new positions."""
        start = len(self._prompts[row])
        new = range(start, start + tokens - 1)
        return any(slot + distance in new for distance in self.config.taps[layer])

    def _window_shows(self, row: int, tokens: int) -> bool:
        """Whether the token that is one too many turns a windowed sum's sign, or makes it 0."""
        ids = [*self._prompts[row], *self._answers[row][: tokens - 1]]
        start = len(self._prompts[row])
        window = next(w for w in self.config.windows if w is not None)
        for at in range(start, len(ids)):
            oldest = at - window
            if oldest < 0:
                continue
            for k in range(self.config.sign_bits):
                seen = sum(self._doubled_code(ids[j], k) for j in range(oldest + 1, at + 1))
                if seen * (seen + self._doubled_code(ids[oldest], k)) <= 0:
                    return True
        return False

    def _doubled_code(self, token_id: int, k: int) -> int:
        code = 1 if self._vocabulary.signs[token_id] >> k & 1 else -1
        return code if token_id == BOS_ID else 2 * code
