"""Positional encodings: how a token's place reaches the model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from headtohead.plugins.entry import Cost, Entry, Options

Result = TypeVar("Result")


@dataclass(frozen=True)
class Geometry:
    """Shape of one multi-head attention: numbers of heads and widths of one head.

    ``kv_heads`` divides ``heads``; query head i reads key/value head ``i // (heads // kv_heads)``.
    ``scale`` multiplies the dot products, usually ``key_width ** -0.5``. A ``key_width`` of 0 means
    that content has no say in the scores. ``mixed_heads`` is how many heads are left where ``mix``
    makes fewer of them, a divisor of ``heads``; value heads are fewer by the same factor.
    """

    heads: int
    kv_heads: int
    key_width: int
    value_width: int
    scale: float
    mixed_heads: int | None = None

    @property
    def output_heads(self) -> int:
        """Heads that read values: all, or those that ``mix`` leaves."""
        return self.heads if self.mixed_heads is None else self.mixed_heads

    @property
    def value_heads(self) -> int:
        """Heads of values."""
        return self.kv_heads * self.output_heads // self.heads

    def parameters(self, d_model: int, bias: bool) -> int:
        """Number of weights of the four projections of one attention, biases counted if present."""
        keys, values = self.kv_heads * self.key_width, self.value_heads * self.value_width
        outputs = self.heads * self.key_width + keys + values
        weights = d_model * (outputs + self.output_heads * self.value_width)
        return weights + (outputs + d_model if bias else 0)


@dataclass(frozen=True)
class BuildContext:
    """What an entry may know when it is built: sizes, its role, and one generator per member.

    ``layer`` is None for what all layers of a role share. Parameters are drawn on the CPU, member
    by member, so that a member of a stack starts where the same run alone starts. A generator that
    is None stands for the meta device: shapes without numbers.
    """

    role: str
    layers: int
    d_model: int
    geometry: Geometry
    generators: Sequence[torch.Generator | None]
    layer: int | None = None

    @property
    def members(self) -> int:
        return len(self.generators)


Initializer = Callable[[Tensor, torch.Generator], Tensor]


def normal(std: float, mean: float = 0.0) -> Initializer:
    """Return a draw from a normal distribution."""
    return lambda out, generator: out.normal_(mean, std, generator=generator)


def uniform(bound: float) -> Initializer:
    """Return a draw from a uniform distribution on ``[-bound, bound]``."""
    return lambda out, generator: out.uniform_(-bound, bound, generator=generator)


def draw(generators: Sequence[torch.Generator | None], shape: Sequence[int], fill: Initializer | Sequence[Initializer]) -> Tensor:
    """Return ``[member, *shape]``, each member filled from its own generator, in its own way."""
    if generators[0] is None:
        return torch.empty(len(generators), *shape, device="meta")
    out = torch.empty(len(generators), *shape)
    fills = [fill] * len(generators) if callable(fill) else fill
    for member, generator, draw_one in zip(out, generators, fills, strict=True):
        assert generator is not None
        draw_one(member, generator)
    return out


class Component(nn.Module, Entry):
    """A registered entry that is part of the model: a module with a leading member axis."""

    cost: ClassVar[Cost | None] = None
    """Optional formulas of the cost, which the catalogue compares with counts and prints."""

    def __init__(self, options: Options, context: BuildContext) -> None:
        super().__init__()
        self.options = options
        self.context = context
        self.build()

    def build(self) -> None:
        """Create parameters and buffers; the default entry has none."""

    def formula(self) -> str:
        """Return how the entry acts in one line of symbols, for a reader of its numbers.

        ``_`` stands before what is written below the line, ``^`` before what is above; several
        letters of these are put in braces.
        """
        return ""

    def parameter(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> nn.Parameter:
        """Return a parameter ``[member, *shape]``, drawn from a normal for each member."""
        return nn.Parameter(draw(self.context.generators, shape, normal(std, mean)))

    @classmethod
    def parameter_count(cls, options: Options, context: BuildContext) -> int:
        """Closed-form number of weights per member, beyond the four projections of attention."""
        return 0

    @classmethod
    def limit(cls, options: Options) -> int | None:
        """Return the largest number of places that the entry is defined for, or None if any.

        If nothing else is said, its option ``max_length``. The core keeps longer sentences away,
        when a study is planned and when a model runs. With ``index`` "row", places are rows.
        """
        limit: int | None = getattr(options, "max_length", None)
        return limit


MECHANISMS = ("embed", "rotate", "bias", "score", "values", "draw")
"""The methods by which a positional encoding may act."""


class Positional(Component):
    """A positional encoding, set per role; override only the ways in which it acts.

    Positions are integer tensors ``[batch or 1, time]``, increasing along time. One object serves
    all layers of its role. With ``index`` "row", ``embed`` is given the rows of the batch instead,
    ``[batch, 1]``, and what it returns is added to every token of a row. An encoding that draws
    positions is told, while it trains, those of the sentences of all members, member after member
    along the batch axis; its member axis is then 1.
    """

    role_defaults: ClassVar[dict[str, str]] = {"cross": "none"}

    properties: ClassVar[frozenset[str]] = frozenset()
    """What the encoding means to be, for the invariants to hold it to.

    ``order-invariant``: an encoder that sees everything is a bag of words; ``relative``: moving all
    positions alike changes nothing; ``mirror-invariant``: distances count and directions do not, so an
    encoder cannot tell a sentence from its mirror image; ``falls-with-distance``: on equal tokens,
    weights fall with distance. One that is not order-invariant must hear the order of words.
    """

    @classmethod
    def mechanisms_of(cls, options: Options) -> frozenset[str]:
        """Return the ways in which the encoding acts: those of ``MECHANISMS`` that it overrides.

        One that is made of another asks that one.
        """
        return frozenset(name for name in MECHANISMS if getattr(cls, name) is not getattr(Positional, name))

    @property
    def mechanisms(self) -> frozenset[str]:
        """The ways in which this object acts."""
        return type(self).mechanisms_of(self.options)

    @property
    def parts(self) -> Sequence[Positional]:
        """The encodings that it is: itself, or those of a stack whose members differ in it."""
        return [self]

    @classmethod
    def index(cls, options: Options) -> Literal["time", "row"]:
        """Return what ``embed`` is given: places in the sentence, or rows of the batch."""
        return "time"

    def draw(self, batch: int, time: int) -> Tensor | None:
        """Return the positions that training tells for the places of a batch, or None for these.

        ``[member, batch, time]``, in the roles encoder and decoder, once in every training pass;
        ``PerMemberRNG`` has the numbers. It goes with ``embed``, ``rotate`` and ``bias``. Evaluation tells
        the places themselves.
        """
        return None

    def cached(self, compute: Callable[..., Result], *arguments: Any) -> Result:
        """Return ``compute(*arguments)``, computed once for the same tensor objects.

        For tables without parameters: the core passes the same position tensors in every step.
        Positions that were drawn never come again, and nothing of them is kept.
        """
        if any(isinstance(one, Tensor) and one.dim() == 2 and min(one.shape) > 1 for one in arguments):
            return compute(*arguments)
        memory: dict[Any, Any] = self.__dict__.setdefault("_remembered", {})
        key = (compute, *(id(a) if isinstance(a, Tensor) else a for a in arguments))
        if key not in memory:
            if len(memory) >= 512:
                memory.clear()
            # The arguments are kept beside the result: an id is only unique among living objects.
            memory[key] = (arguments, compute(*arguments))
        result: Result = memory[key][1]
        return result

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return what is added to the embeddings, ``[member or 1, batch or 1, time, d_model]``."""
        return None

    def rotate(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        """Transform queries or keys, ``[member, batch, head, time, width]``, by their positions."""
        return x

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return what is added to scaled scores, ``[member|1, batch|1, head|1, query, key]``."""
        return None

    def score(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return scores that depend on (rotated) queries, ``[member, batch, head, query, key]``.

        They are added after ``scale · qkᵀ``, so apply ``context.geometry.scale`` to them where the
        paper does. An encoding that has them trains on the explicit path.
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return what is added to ``weights · v``, ``[member, batch, head, query, width]``."""
        return None
