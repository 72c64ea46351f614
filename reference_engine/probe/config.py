"""`ProbeConfig`: the dials of a probe checkpoint, and the named variants.

Everything about a probe (the integer rule, the weights, the tokenizer) follows from this one frozen
value, so an exported folder can be judged by whoever reads its ``probe.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, Literal, Self

# Of the rule: raised whenever an answer changes, so that a checkpoint of an older isobatch is not
# judged by a newer rule. It is part of the file format and of every model's name.
REVISION: Final = 2
FORMAT: Final = f"isobatch.probe/{REVISION}"

PAD_ID: Final = 0
BOS_ID: Final = 1
EOS_ID: Final = 2
UNDEFINED_ID: Final = 3
FIRST_BYTE_ID: Final = 4

Family = Literal["llama", "mistral", "qwen2"]

URL_SAFE_BASE64: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"

# The end of one two-byte character and the beginning of the next: every boundary between output
# tokens lies inside a character; any sequence of them is UTF-8 but for one byte at each end.
SPLIT_CHARACTERS: Final = tuple(bytes([last, 0xC3]) for last in range(0x80, 0xC0))


@dataclass(frozen=True, slots=True)
class ProbeConfig:
    """What a probe is made of.

    ``name`` is the model id a server should serve it under. A symbol has ``symbol_bits`` bits, of
    which a token shows the lowest ``shown_bits``; a token also carries ``sign_bits`` sign bits, so
    there are ``2 ** (shown_bits + sign_bits)`` output tokens, whose texts are ``alphabet``.
    ``taps[l]`` are the distances that layer ``l`` reads, ``rotations[h]`` how far the symbol that
    tap ``h`` fetches is rotated before it is added. Layers compare the sums of the sign bits and of
    the lowest ``compared_bits`` of the tokens' own symbols. With ``ends_itself`` the rule emits EOS
    by itself, once in 32 tokens on average; with ``dice`` its answer is only the likeliest of 64
    (see `reference_engine.probe.dice`). ``windows[l]`` is how many tokens, its own included, a
    token of layer ``l`` sees, None for all; an odd number, so that a sum of signs is never 0.
    ``max_context_tokens`` holds for every dtype.
    """

    name: str
    taps: tuple[tuple[int, ...], ...] = (
        (1, 17, 255),
        (2, 16, 64),
        (3, 32, 511),
        (1, 31, 256),
        (2, 33, 127),
        (1, 15, 65),
    )
    rotations: tuple[int, ...] = (0, 1, 2)
    own_rotation: int = 1
    symbol_bits: int = 4
    shown_bits: int = 2
    sign_bits: int = 4
    compared_bits: int = 2
    ends_itself: bool = False
    dice: bool = False
    heads: int = 8
    kv_heads: int = 2
    head_dim: int = 64
    rope_theta: float = 1e6
    max_context_tokens: int = 4096
    windows: tuple[int | None, ...] = ()
    family: Family = "llama"
    alphabet: tuple[bytes, ...] = field(
        default=tuple(character.encode() for character in URL_SAFE_BASE64)
    )

    def __post_init__(self) -> None:
        if len(self.alphabet) != 2 ** (self.shown_bits + self.sign_bits):
            raise ValueError(
                f"{len(self.alphabet)} output texts for "
                f"{2 ** (self.shown_bits + self.sign_bits)} output tokens"
            )
        if not 0 < self.shown_bits <= self.symbol_bits:
            raise ValueError("a token shows at least one bit of its symbol and no more than all")
        if any(d < 1 for layer in self.taps for d in layer):
            raise ValueError("a tap distance is at least 1")
        if self.windows and len(self.windows) != len(self.taps):
            raise ValueError(f"{len(self.windows)} windows for {len(self.taps)} layers")
        for layer, window in zip(self.taps, self.windows, strict=False):
            if window is not None and (window % 2 == 0 or max(layer) >= window):
                raise ValueError(f"a window of {window}: it must be odd and hold the layer's taps")
        if len({window for window in self.windows if window is not None}) > 1:
            raise ValueError("all windows must be of one size: model formats know only one")

    @property
    def layers(self) -> int:
        """How many transformer layers."""
        return len(self.taps)

    def window(self, level: int) -> int | None:
        """How many tokens layer ``level`` sees; None for all."""
        return self.windows[level] if self.windows else None

    @property
    def bos_id(self) -> int:
        """The id every prompt begins with."""
        return BOS_ID

    @property
    def eos_id(self) -> int:
        """The id that ends an answer."""
        return EOS_ID

    @property
    def pad_id(self) -> int:
        """An id that never appears in a prompt or an answer."""
        return PAD_ID

    @property
    def undefined_id(self) -> int:
        """What the model answers when its state is no state of the rule: something broke."""
        return UNDEFINED_ID

    @property
    def sums(self) -> int:
        """How many sums each layer takes."""
        return self.sign_bits + self.compared_bits

    @property
    def symbol_mask(self) -> int:
        """All bits of a symbol."""
        return (1 << self.symbol_bits) - 1

    def to_json(self) -> dict[str, Any]:
        """The JSON form: what ``probe.json`` holds under ``config``."""
        document = asdict(self)
        document["alphabet"] = [text.hex() for text in self.alphabet]
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Self:
        """Read what `to_json` wrote. Raises ValueError where it is not a probe's configuration."""
        fields = dict(document)
        try:
            fields["taps"] = tuple(tuple(int(d) for d in layer) for layer in fields["taps"])
            fields["windows"] = tuple(fields["windows"])
            fields["rotations"] = tuple(fields["rotations"])
            fields["alphabet"] = tuple(bytes.fromhex(text) for text in fields["alphabet"])
            return cls(**fields)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"not a probe configuration: {error}") from None


_WINDOW: Final = 65


def _name(variant: str, later: int = 0) -> str:
    """``later`` counts how often this variant's own dials were changed since `REVISION`."""
    return f"isobatch-probe-{variant}-r{REVISION + later}"


_PLAIN: Final = ProbeConfig(name=_name("plain"))

VARIANTS: Final[Mapping[str, ProbeConfig]] = MappingProxyType(
    {
        "plain": _PLAIN,
        "utf8": replace(_PLAIN, name=_name("utf8"), alphabet=SPLIT_CHARACTERS),
        "eos": replace(_PLAIN, name=_name("eos"), ends_itself=True),
        "qwen": replace(
            _PLAIN,
            name=_name("qwen", later=1),
            family="qwen2",
            ends_itself=True,
            taps=((1, 17, 255), (2, 16, 64), (3, 32, 511), (2, 33, 127), (1, 15, 65)),
        ),
        "window": replace(
            _PLAIN,
            name=_name("window", later=1),
            family="qwen2",
            taps=((3, 32, 64), (1, 31, 63), (1, 17, 255), (2, 16, 129), (1, 15, 65)),
            windows=(_WINDOW, _WINDOW, None, None, None),
        ),
        "mistral-window": replace(
            _PLAIN,
            name=_name("mistral-window"),
            family="mistral",
            taps=((1, 17, 64), (2, 16, 63), (3, 32, 64), (1, 31, 48), (2, 33, 64), (1, 15, 47)),
            windows=(_WINDOW,) * 6,
        ),
        "dice": replace(_PLAIN, name=_name("dice"), dice=True),
        "wide": replace(
            _PLAIN,
            name=_name("wide"),
            taps=((1, 17, 255), (2, 16, 64), (1, 15, 129)),
            heads=16,
            kv_heads=8,
            head_dim=128,
        ),
    }
)
