"""Positional encodings: base class, and what the core passes to a component when it builds it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from headtohead.errors import HeadToHeadError
from headtohead.plugins.entry import Cost, Entry, Options

Result = TypeVar("Result")


@dataclass(frozen=True)
class Geometry:
    """Numbers of heads and head widths of one multi-head attention.

    Args:
        heads: Query heads.
        kv_heads: Key and value heads; divides ``heads``. Query head i attends with key/value head
            ``i // (heads // kv_heads)``.
        key_width: Width of one query or key. With 0 there are no queries and no keys, so scores do
            not depend on the tokens.
        value_width: Width of one value.
        scale: Factor of the dot products, usually ``key_width ** -0.5``.
        mixed_heads: Number of heads after ``Attention.mix``, a divisor of ``heads``, where ``mix``
            reduces it. The number of value heads is reduced by the same factor.
    """

    heads: int
    kv_heads: int
    key_width: int
    value_width: int
    scale: float
    mixed_heads: int | None = None

    @property
    def output_heads(self) -> int:
        """Heads that are concatenated and projected: ``mixed_heads``, by default ``heads``."""
        return self.heads if self.mixed_heads is None else self.mixed_heads

    @property
    def value_heads(self) -> int:
        """Value heads: ``kv_heads``, reduced as ``mix`` reduces the heads."""
        return self.kv_heads * self.output_heads // self.heads

    def parameters(self, d_model: int, bias: bool) -> int:
        """Return the number of weights of the four projections of one attention.

        ``bias`` adds their biases.
        """
        keys, values = self.kv_heads * self.key_width, self.value_heads * self.value_width
        outputs = self.heads * self.key_width + keys + values
        weights = d_model * (outputs + self.output_heads * self.value_width)
        return weights + (outputs + d_model if bias else 0)


@dataclass(frozen=True)
class BuildContext:
    """What a component may depend on when it is built.

    Args:
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        layers: Number of layers of the role.
        d_model: Width of the model.
        geometry: Heads of the role's attention.
        generators: One random generator per member, on the CPU. Sampling member by member gives
            each member of a stack the initial weights of the same run trained alone. A generator
            is None on torch's device ``meta``, where tensors have shapes but no data.
        layer: Index of the layer, from 0; None for a component that all layers of a role share.
    """

    role: str
    layers: int
    d_model: int
    geometry: Geometry
    generators: Sequence[torch.Generator | None]
    layer: int | None = None

    @property
    def members(self) -> int:
        """Number of runs in the stack, the size of the ``member`` axis."""
        return len(self.generators)


Initializer = Callable[[Tensor, torch.Generator], Tensor]
"""Fills a tensor in place with random numbers from a generator, and returns it."""


def normal(std: float, mean: float = 0.0) -> Initializer:
    """Return an initialiser that samples from a normal distribution."""
    return lambda out, generator: out.normal_(mean, std, generator=generator)


def uniform(bound: float) -> Initializer:
    """Return an initialiser that samples uniformly from ``[-bound, bound]``."""
    return lambda out, generator: out.uniform_(-bound, bound, generator=generator)


def init_per_member(
    generators: Sequence[torch.Generator | None], shape: Sequence[int], init: Initializer | Sequence[Initializer]
) -> Tensor:
    """Return ``[member, *shape]``, each member sampled from its own generator.

    ``init`` is a single initialiser for all members, or one per member.
    """
    if generators[0] is None:
        return torch.empty(len(generators), *shape, device="meta")
    out = torch.empty(len(generators), *shape)
    inits = [init] * len(generators) if callable(init) else init
    for member, generator, init_member in zip(out, generators, inits, strict=True):
        assert generator is not None
        init_member(member, generator)
    return out


class Component(nn.Module, Entry):
    """Base of encodings and attention styles: a ``torch.nn.Module`` with a leading member axis.

    Life cycle:

    1. A plan calls the class methods ``incompatible_with``, ``limit`` and ``parameter_count``. No
       object exists yet.
    2. The model is built: ``__init__`` stores ``options`` and ``context`` and calls ``build``.
    3. Training and evaluation call the hooks of the family in every forward pass.
    4. Parameters and persistent buffers are saved in checkpoints and loaded from them.

    Override ``build`` instead of ``__init__``.
    """

    cost: ClassVar[Cost | None] = None
    """Optional cost formulas. The catalogue prints them and verifies them against counted costs."""

    def __init__(self, options: Options, context: BuildContext) -> None:
        super().__init__()
        self.options = options
        self.context = context
        self.build()

    def build(self) -> None:
        """Create parameters and buffers. Called once per object; by default there are none.

        Create parameters with ``self.parameter``. Register buffers as persistent
        if a resumed training needs their values.
        """

    def formula(self) -> str:
        """Return the mathematics as one line of symbols, for traces and the catalogue.

        ``_`` precedes a subscript and ``^`` a superscript; braces group several characters, as in
        ``w_{ij}``. An empty text prints no formula.
        """
        return ""

    def parameter(self, *shape: int, std: float = 1.0, mean: float = 0.0) -> nn.Parameter:
        """Return a parameter ``[member, *shape]``, sampled from a normal for each member."""
        return nn.Parameter(init_per_member(self.context.generators, shape, normal(std, mean)))

    @classmethod
    def parameter_count(cls, options: Options, context: BuildContext) -> int:
        """Return the number of weights per member, in closed form, without building the object.

        The four projections of an attention are not counted here. The invariant ``parameters``
        compares this number with the object.
        """
        return 0

    @classmethod
    def limit(cls, options: Options) -> int | None:
        """Return the largest number of positions that the entry supports, or None for any number.

        The default is the option ``max_length``, if there is one. Longer sentences are excluded by
        the plan, and raise in a forward pass. With ``index`` "row" the limit counts batch rows.
        """
        limit: int | None = getattr(options, "max_length", None)
        return limit


def require_shape(component: Component, hook: str, result: object, **axes: int | None) -> None:
    """Refuse the result of a hook whose shape would fail, or broadcast to other axes, later.

    Args:
        component: The object whose hook was called.
        hook: The name of the hook.
        result: What the hook returned.
        axes: Name and size of each axis. ``member`` and ``head`` may also be 1; None permits any size.

    Raises:
        HeadToHeadError: If the result is no tensor of this shape.
    """
    if isinstance(result, Tensor) and result.dim() == len(axes):
        sizes = zip(result.shape, axes.items(), strict=True)
        if all(wanted in (None, size) or (size == 1 and name in SHARED_AXES) for size, (name, wanted) in sizes):
            return
    found = f"a tensor {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
    wanted = ", ".join(
        name + ("" if size is None else f" 1 or {size}" if name in SHARED_AXES and size > 1 else f" {size}")
        for name, size in axes.items()
    )
    raise HeadToHeadError(f"{type(component).__name__}.{hook} returned {found}; return a tensor [{wanted}]")


SHARED_AXES = ("member", "head")
"""Axes of size 1 if all members or heads have the same values."""

MECHANISMS = ("embed", "rotate", "bias", "score", "values", "draw")
"""Hooks by which a positional encoding can act."""


class Positional(Component):
    """A positional encoding; override the hooks that it needs and no others.

    The core computes ``softmax(scale · q kᵀ + score + bias) v + values``. An encoding acts by at
    least one of these hooks (its *mechanisms*); the base class leaves each of them inactive:

    ==========  =====================  ==============================================
    hook        called                 effect
    ==========  =====================  ==============================================
    ``embed``   before layer 0         added to the embeddings
    ``rotate``  in every layer, for    transforms queries and keys (training uses the
                queries, then keys     fused kernel)
    ``bias``    in every layer         added to the scores (fused kernel)
    ``score``   in every layer         added to the scores, depends on queries
                                       (explicit path)
    ``values``  in every layer         added to the weighted values (explicit path)
    ``draw``    in every training      replaces the positions by sampled ones
                pass, first
    ==========  =====================  ==============================================

    An experiment sets an encoding per role (encoder, decoder, cross). One object serves all layers
    of its role; hooks that act in a layer receive its index.

    Positions are integer tensors ``[batch or 1, time]``, increasing along time and starting at 0.
    A cached decoding step passes the position of the new token alone as query position, and those
    of all tokens so far as key positions, so return values may depend on positions only, never on
    their number. In cross-attention, queries are target positions and keys source positions.

    Two exceptions:

    - With ``index`` "row", ``embed`` receives batch rows ``[batch, 1]`` instead of positions. Its
      result is added to every token of a row.
    - With ``draw``, members have different positions in training: ``[member · batch, time]``,
      member after member. The argument of ``rotate`` and all results then have a member axis of 1
      and a batch axis of ``member · batch``.
    """

    role_defaults: ClassVar[dict[str, str]] = {"cross": "none"}

    properties: ClassVar[frozenset[str]] = frozenset()
    """Declared properties, which the invariants verify.

    - ``order-invariant``: an encoder without a mask is a bag of words.
    - ``relative``: shifting all positions by the same number changes nothing.
    - ``mirror-invariant``: the encoding depends on distance and not on direction, so an encoder
      cannot distinguish a sentence from its mirror image.
    - ``falls-with-distance``: on equal tokens, attention weights fall with distance.

    An encoding without ``order-invariant`` must make the output depend on word order.
    """

    @classmethod
    def mechanisms_of(cls, options: Options) -> frozenset[str]:
        """Return the names of the hooks by which the encoding acts, a subset of ``MECHANISMS``.

        The default is the set of overridden hooks. Override it where options disable a hook, or
        where hooks delegate to another encoding.
        """
        return frozenset(name for name in MECHANISMS if getattr(cls, name) is not getattr(Positional, name))

    @property
    def mechanisms(self) -> frozenset[str]:
        """Names of the hooks by which this object acts."""
        return type(self).mechanisms_of(self.options)

    @property
    def parts(self) -> Sequence[Positional]:
        """This encoding, or the encodings of the members where they differ within a stack."""
        return [self]

    @classmethod
    def index(cls, options: Options) -> Literal["time", "row"]:
        """Return what ``embed`` receives: positions in the sentence, or rows of the batch."""
        return "time"

    def draw(self, batch: int, time: int) -> Tensor | None:
        """Return sampled positions ``[member, batch, time]`` for a training pass, or None.

        Called once per step in the roles encoder and decoder, before the other hooks and for the
        whole batch; micro-batches use their rows of the result. Use ``PerMemberRNG`` for random
        numbers. Evaluation does not call it and uses the positions 0, 1, 2, ... It can be combined
        with ``embed``, ``rotate`` and ``bias``.
        """
        return None

    def cached(self, compute: Callable[..., Result], *arguments: Any) -> Result:
        """Return ``compute(*arguments)``, computed once for the same tensor objects.

        Use it for tables that do not depend on parameters: the core passes the same position
        tensors in every step. Sampled positions do not recur, so their tables are not cached.
        """
        if any(isinstance(value, Tensor) and value.dim() == 2 and min(value.shape) > 1 for value in arguments):
            return compute(*arguments)
        memory: dict[Any, Any] = self.__dict__.setdefault("_cache", {})
        key = (compute, *(id(value) if isinstance(value, Tensor) else value for value in arguments))
        if key not in memory:
            if len(memory) >= 512:
                memory.clear()
            # The arguments are stored with the result: an id is unique among living objects only.
            memory[key] = (arguments, compute(*arguments))
        result: Result = memory[key][1]
        return result

    def embed(self, positions: Tensor, role: str) -> Tensor | None:
        """Return the term added to the embeddings, ``[member or 1, batch or 1, time, d_model]``."""
        return None

    def rotate(self, x: Tensor, positions: Tensor, role: str) -> Tensor:
        """Return transformed queries or keys, ``[member, batch, head, time, key width]``.

        Called twice per layer, for queries with query positions and for keys with key positions.
        """
        return x

    def bias(self, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return the term added to scaled scores, ``[member|1, batch|1, head|1, query, key]``."""
        return None

    def score(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int) -> Tensor | None:
        """Return the term added to scaled scores that depends on the queries.

        The core does not scale it: multiply by ``context.geometry.scale`` where the paper does.

        Args:
            q: Queries after ``rotate``, ``[member, batch, head, query, key width]``.
            query_positions: ``[batch or 1, query]``.
            key_positions: ``[batch or 1, key]``.
            role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
            layer: Index of the layer, from 0.

        Returns:
            ``[member, batch, head, query, key]``.
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, role: str, layer: int
    ) -> Tensor | None:
        """Return the term added to ``weights · v``, ``[member, batch, head, query, value width]``.

        ``weights`` are ``[member, batch, head, query, key]``, after masking and dropout.
        """
        return None
