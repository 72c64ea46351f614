"""The rule: the right answer, in integers.

For position ``i`` of a prompt and its answer, with ``s`` and ``b[k]`` the symbol and sign bits of a
token and ``code = +1`` or ``-1`` by the sign bit (BOS: ``+1/2``, so no sum is ever 0)::

    A[-1][i] = s(token i)
    S[l][k][i] = sum over the j <= i that layer l sees of code[k](token j)
    g[l][k][i] = 1 if S[l-1][k][i] > 0 else 0          (l > 0)
    A[l][i]  = rot(A[l-1][i], own) xor constant[l]
               xor (xor over taps h of rot(A[l-1][max(i - d[l][h], 0)], rotations[h]))
               xor (g[l][.][i] if l > 0 else 0)
    next(i)  = the output token with the low bits of A[L-1][i] and the sign bits 1 - g[L-1][.][i]

Without windows every layer sees every token. Where layer ``l`` sees no token of the sign that
``S[l-1]`` has (possible if its window is the narrower), ``g[l]`` is the sign that it does see.

Every answer drives every sum back towards zero, where one token more or less flips it; every tap
makes one exact position of one exact layer matter. No float, no torch.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from reference_engine.probe.config import BOS_ID, EOS_ID, ProbeConfig
from reference_engine.probe.vocabulary import Vocabulary, vocabulary


@dataclass(frozen=True, slots=True)
class RuleAnswer:
    """What a right server answers, as ids. An EOS that ended the answer is its last id."""

    token_ids: tuple[int, ...]
    finish_reason: Literal["stop", "length"]


@dataclass(frozen=True, slots=True)
class RuleStep:
    """Why one token follows one position.

    ``doubled_sums[k]`` is ``2 * S[k]``; ``symbols[l + 1]`` is ``A[l]``, the first the token's own.
    """

    position: int
    token_id: int
    doubled_sums: tuple[int, ...]
    symbols: tuple[int, ...]
    following: int

    def to_json(self) -> dict[str, object]:
        """A plain JSON object; the sums as they are, multiples of 1/2."""
        return {
            "position": self.position,
            "token_id": self.token_id,
            "sums": [value / 2 for value in self.doubled_sums],
            "symbols": list(self.symbols),
            "next": self.following,
        }


@dataclass(slots=True)
class RuleState:
    """The rule's state after some tokens: for diagnosis and for going on one token at a time.

    ``symbols[l + 1][i]`` is ``A[l][i]``. ``sums[w][k]`` is ``2 * S[k]`` over window ``w`` after the
    last token, where windows are numbered in order of size; ``plus[w][k]`` counts its tokens of
    sign +. ``signs[i]`` holds the bits ``g[L-1][k][i]``, those that the answer turns round.
    """

    symbols: list[list[int]]
    sums: list[list[int]]
    plus: list[list[int]]
    deciding: int
    signs: list[int] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)

    @property
    def doubled_sums(self) -> list[int]:
        """``2 * S[L-2][k]``, the sums whose signs the answer turns round."""
        return self.sums[self.deciding]

    @property
    def length(self) -> int:
        """How many tokens were seen."""
        return len(self.signs)


class Rule:
    """The integer rule of one probe."""

    def __init__(self, config: ProbeConfig) -> None:
        self.config = config
        self.vocabulary: Vocabulary = vocabulary(config)
        bits = config.symbol_bits
        rotated = [[_rotate(value, by, bits) for value in range(1 << bits)] for by in range(bits)]
        self._own = rotated[config.own_rotation % bits]
        self._taps = [
            [(d, rotated[config.rotations[h] % bits]) for h, d in enumerate(layer)]
            for layer in config.taps
        ]
        sign_bits = config.sign_bits
        self._feedback = [_fold(g, bits) for g in range(1 << sign_bits)]
        self._steps = [
            [1 if sign >> k & 1 else -1 for k in range(sign_bits)] for sign in range(1 << sign_bits)
        ]
        seen = [config.window(level) for level in range(config.layers)]
        self._windows = sorted(set(seen), key=lambda window: window or config.max_context_tokens)
        views = [self._windows.index(window) for window in seen]
        self._views = list(zip([views[0], *views], views, strict=False))

    def begin(self) -> RuleState:
        """The state before any token."""
        zeros = [[0] * self.config.sign_bits for _ in self._windows]
        return RuleState(
            symbols=[[] for _ in range(self.config.layers + 1)],
            sums=zeros,
            plus=[list(row) for row in zeros],
            deciding=self._views[-1][0],
        )

    def push(self, state: RuleState, token_id: int) -> int:
        """Add one token to ``state`` and return the token that follows.

        Raises ValueError for an unknown id and for a BOS that is missing or not at the start.
        """
        at = state.length
        self._refuse_bad(token_id, at)
        state.token_ids.append(token_id)
        for view, window in enumerate(self._windows):
            self._count(state, view, token_id, 1)
            if window is not None and at >= window:
                self._count(state, view, state.token_ids[at - window], -1)
        seen = {pair: self._signs(state, *pair) for pair in set(self._views)}
        signs = seen[self._views[-1]]
        state.signs.append(signs)
        below = self.vocabulary.symbols[token_id]
        state.symbols[0].append(below)
        for level, taps in enumerate(self._taps):
            row = state.symbols[level]
            symbol = self._own[below] ^ layer_constant(self.config, level)
            for distance, rotated in taps:
                symbol ^= rotated[row[at - distance if at > distance else 0]]
            if level:
                symbol ^= self._feedback[seen[self._views[level]]]
            state.symbols[level + 1].append(symbol)
            below = symbol
        return self._emit(state.symbols[-2][-1], below, signs)

    def _count(self, state: RuleState, view: int, token_id: int, times: int) -> None:
        """Let a token enter (``times`` 1) or leave (-1) a window."""
        sums, plus = state.sums[view], state.plus[view]
        weight = times if token_id == BOS_ID else 2 * times
        for k, code in enumerate(self._steps[self.vocabulary.signs[token_id]]):
            sums[k] += weight * code
            if code > 0:
                plus[k] += times

    def _signs(self, state: RuleState, summed: int, seen: int) -> int:
        """``g`` as bits: the signs of window ``summed``'s sums, found among ``seen``'s tokens."""
        signs = sum(1 << k for k, value in enumerate(state.sums[summed]) if value > 0)
        if summed == seen:
            return signs
        window = self._windows[seen]
        tokens = len(state.token_ids) if window is None else min(window, len(state.token_ids))
        for k, plus in enumerate(state.plus[seen]):
            if plus == 0:
                signs &= ~(1 << k)
            elif plus == tokens:
                signs |= 1 << k
        return signs

    def _emit(self, previous: int, symbol: int, signs: int) -> int:
        config = self.config
        if config.ends_itself and ends(config, previous, symbol):
            return EOS_ID
        all_signs = (1 << config.sign_bits) - 1
        shown = symbol & ((1 << config.shown_bits) - 1)
        return self.vocabulary.output_ids[shown << config.sign_bits | (all_signs ^ signs)]

    def _refuse_bad(self, token_id: int, at: int) -> None:
        if not 0 <= token_id < self.vocabulary.size:
            raise ValueError(
                f"id {token_id} is not in the vocabulary of {self.vocabulary.size} ids"
            )
        if (token_id == BOS_ID) != (at == 0):
            raise ValueError(f"a prompt begins with BOS (id {BOS_ID}) and has no other")

    def read(self, ids: Iterable[int]) -> tuple[RuleState, int]:
        """The state after ``ids`` and the token that follows. Raises ValueError as `push` does."""
        state = self.begin()
        following = None
        for token_id in ids:
            following = self.push(state, token_id)
        if following is None:
            raise ValueError("the prompt is empty: it needs at least BOS")
        return state, following

    def next_token(self, ids: Sequence[int]) -> int:
        """The token that follows ``ids``. Raises ValueError as `push` does."""
        return self.read(ids)[1]

    def followers(self, ids: Sequence[int]) -> list[int]:
        """For every position of ``ids``, the token that the model should put after it."""
        state = self.begin()
        return [self.push(state, token_id) for token_id in ids]

    def explain(self, ids: Sequence[int], start: int = 0) -> list[RuleStep]:
        """The sums and symbols behind every token from position ``start`` on.

        Raises ValueError as `push` does.
        """
        state = self.begin()
        steps = []
        for position, token_id in enumerate(ids):
            following = self.push(state, token_id)
            if position >= start:
                symbols = tuple(row[-1] for row in state.symbols)
                sums = tuple(state.doubled_sums)
                steps.append(RuleStep(position, token_id, sums, symbols, following))
        return steps

    def generate(
        self, prompt_ids: Sequence[int], max_tokens: int, *, ignore_eos: bool = False
    ) -> RuleAnswer:
        """What a right server answers at temperature 0.

        Generation ends with EOS (the last id, reason ``stop``) or after ``max_tokens`` (reason
        ``length``). With ``ignore_eos`` an EOS is a token like any other and generation goes on.
        Raises ValueError as `push` does.
        """
        state, following = self.read(prompt_ids)
        answer: list[int] = []
        while len(answer) < max_tokens:
            answer.append(following)
            if following == EOS_ID and not ignore_eos:
                return RuleAnswer(tuple(answer), "stop")
            if len(answer) < max_tokens:
                following = self.push(state, following)
        return RuleAnswer(tuple(answer), "length")


def _rotate(value: int, by: int, bits: int) -> int:
    """Bit ``q`` of the result is bit ``(q + by) % bits`` of ``value``."""
    return (value >> by | value << (bits - by)) & ((1 << bits) - 1)


def _fold(signs: int, bits: int) -> int:
    """Bit ``q`` is the parity of sign bits ``q``, ``q + bits``, ...: none is lost."""
    folded = 0
    while signs:
        folded ^= signs & ((1 << bits) - 1)
        signs >>= bits
    return folded


def layer_constant(config: ProbeConfig, layer: int) -> int:
    """The constant that layer ``layer`` adds, so that no two layers compute the same."""
    return (5 * layer + 3) & config.symbol_mask


def ends(config: ProbeConfig, previous: int, symbol: int) -> bool:
    """Whether the last two layers' symbols (``A[L-2]``, ``A[L-1]``) say that the answer ends."""
    return all(
        (value >> bit & 1) == wanted
        for value, condition in zip((previous, symbol), end_condition(config), strict=True)
        for bit, wanted in condition
    )


def end_condition(
    config: ProbeConfig,
) -> tuple[tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]]:
    """(bit, value) pairs that ``A[L-2]`` and ``A[L-1]`` must show: five, so one state in 32."""
    hidden = range(config.shown_bits, config.symbol_bits)
    own = tuple((bit, 1) for bit in hidden)[:5]
    rest = tuple((bit, bit & 1) for bit in range(config.symbol_bits))[: 5 - len(own)]
    return rest, own
