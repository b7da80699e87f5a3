"""Positional encodings: base class, and what the core passes to a component when it builds it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar

import torch
from torch import Tensor, nn

from headtohead.errors import HeadToHeadError, shown_path
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
"""Fills a tensor with random numbers from a generator and returns it; or returns another tensor of its shape."""


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
        filled = init_member(member, generator)
        if filled is not member:
            member.copy_(filled)
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

        Assign the results of ``self.parameter``, ``self.buffer`` and ``self.constant``. The core refuses every
        other tensor, because it has no member axis.
        """

    def formula(self) -> str:
        """Return the mathematics as one line of symbols, for traces and the catalogue.

        ``_`` precedes a subscript and ``^`` a superscript; braces group several characters, as in
        ``w_{ij}``. An empty text prints no formula.
        """
        return ""

    def parameter(
        self, *shape: int, std: float = 1.0, mean: float = 0.0, init: Initializer | None = None
    ) -> nn.Parameter:
        """Return a parameter ``[member, *shape]``, sampled from a normal for each member.

        Args:
            *shape: Shape without the member axis.
            std: Standard deviation; with 0, all numbers are ``mean``.
            mean: Mean.
            init: Replaces the normal: receives the tensor and the generator of a member, and returns the filled tensor.
        """
        return per_member(nn.Parameter(init_per_member(self.context.generators, shape, init or normal(std, mean))))

    def buffer(self, *shape: int, std: float = 1.0, mean: float = 0.0, init: Initializer | None = None) -> Tensor:
        """Return a tensor ``[member, *shape]`` that is not trained, and is saved with the weights.

        The arguments are those of ``parameter``.
        """
        return per_member(nn.Buffer(init_per_member(self.context.generators, shape, init or normal(std, mean))))

    def constant(self, values: Tensor) -> Tensor:
        """Return a tensor that all members share, for example a table of sinusoids.

        It is not trained and not saved, because ``build`` computes the same values again. It moves to the
        device and dtype of the model.
        """
        has_data = self.context.generators[0] is not None
        return per_member(nn.Buffer(values if has_data else values.to("meta"), persistent=False))

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


AnyTensor = TypeVar("AnyTensor", bound=Tensor)

_SHAPE = "_headtohead_shape"
"""Attribute of the tensors that a component may register: their shape when they were created."""


def per_member(tensor: AnyTensor) -> AnyTensor:
    """Mark a tensor that depends on members correctly, so that ``require_members`` accepts it."""
    setattr(tensor, _SHAPE, tensor.shape)
    return tensor


def require_members(component: Component) -> None:
    """Refuse parameters and buffers that ``parameter``, ``buffer`` and ``constant`` did not return.

    A plain ``torch.nn.Parameter`` or ``torch.nn.Linear`` has no member axis. Members would share it, or its first axis
    would be used as the member axis.

    Raises:
        HeadToHeadError: With the file, the attribute and the call that replaces it; or if a number is not finite.
    """
    for name, tensor in (*component.named_parameters(), *component.named_buffers()):
        trained, shape = isinstance(tensor, nn.Parameter), ", ".join(map(str, tensor.shape))
        where = f"{_file(component)}: {type(component).__name__}.{name}"
        if getattr(tensor, _SHAPE, None) != tensor.shape:
            kind = "torch.nn.Parameter" if trained else "buffer"
            remedy = f"self.parameter({shape})" if trained else f"self.constant(tensor), or with self.buffer({shape})"
            more = "" if trained else " if its values depend on the seed"
            raise HeadToHeadError(
                f"{where} is a plain {kind} without a member axis; create it in build with {remedy}{more}"
            )
        if not tensor.is_meta and bool(
            (tensor.detach().isfinite() if trained else ~tensor.isnan()).logical_not().any()
        ):
            raise HeadToHeadError(f"{where} has NaN{' or infinite numbers' if trained else ''} at initialisation")


def require_registered(entry: Entry) -> None:
    """Refuse tensors and modules in plain attributes of an object, in lists too: they are not saved.

    Raises:
        HeadToHeadError: With the file, the attribute and what replaces it.
    """
    modules = entry.named_modules() if isinstance(entry, nn.Module) else [("", entry)]
    for path, module in modules:
        for name, value in vars(module).items():
            found = None if name in _OF_MODULES else next(_tensors(value), None)
            if found is not None:
                kind = "tensor" if isinstance(found, Tensor) else "module"
                remedy = (
                    _REMEDIES[kind] if isinstance(entry, nn.Module) else "create it in mask, which has no other state"
                )
                raise HeadToHeadError(
                    f"{_file(entry)}: {type(entry).__name__}.{f'{path}.' if path else ''}{name} holds a plain {kind}, "
                    f"which is not saved and does not move to the model's device; {remedy}"
                )


_OF_MODULES = frozenset(vars(nn.Module()))
_REMEDIES = {
    "tensor": "assign self.constant(tensor), or self.parameter(*shape) to train it",
    "module": "assign it to an attribute, or use torch.nn.ModuleList",
}


def _tensors(value: object) -> Iterator[Tensor | nn.Module]:
    """Yield the tensors and modules in nested lists, tuples, sets and dictionaries."""
    if isinstance(value, Tensor | nn.Module):
        yield value
    elif isinstance(value, dict | list | tuple | set):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _tensors(item)


def _file(entry: Entry) -> str:
    try:
        return shown_path(inspect.getfile(type(entry)))
    except (OSError, TypeError):  # a class of a notebook cell
        return type(entry).__module__


def require_shape(entry: Entry, hook: str, result: object, /, **axes: int | tuple[int, ...] | None) -> None:
    """Refuse the result of a hook whose shape would fail, or broadcast to other axes, later.

    Args:
        entry: The object whose hook was called.
        hook: The name of the hook.
        result: What the hook returned.
        axes: Name of each axis with its size or permitted sizes; None permits any size.

    Raises:
        HeadToHeadError: If the result is no tensor of this shape.
    """
    if isinstance(result, Tensor) and result.dim() == len(axes):
        sizes = zip(result.shape, axes.values(), strict=True)
        if all(
            size == wanted or wanted is None or (wanted.__class__ is tuple and size in wanted) for size, wanted in sizes
        ):
            return
    raise HeadToHeadError(
        f"{type(entry).__name__}.{hook} returned {_described(result)}; return a tensor {_listed_axes(axes)}"
    )


def require_like(entry: Entry, hook: str, result: object, like: Tensor, axes: str) -> None:
    """Refuse the result of a hook that is no floating-point tensor of the shape of ``like``.

    Args:
        entry: The object whose hook was called.
        hook: The name of the hook.
        result: What the hook returned.
        like: A tensor of the shape and dtype that the core needs next.
        axes: Names of its axes, separated by spaces.

    Raises:
        HeadToHeadError: If the shape or the dtype differs. Autocast converts floating-point dtypes.
    """
    if isinstance(result, Tensor) and result.shape == like.shape:
        if result.dtype == like.dtype:
            return
        if result.is_floating_point() and torch.is_autocast_enabled(result.device.type):
            return
        raise HeadToHeadError(
            f"{type(entry).__name__}.{hook} returned a tensor of {result.dtype}; return {like.dtype}, the dtype of its "
            "arguments"
        )
    require_shape(entry, hook, result, **dict(zip(axes.split(), like.shape, strict=True)))


def _described(result: object) -> str:
    return f"a tensor {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__


def _listed_axes(axes: dict[str, Any]) -> str:
    def text(name: str, wanted: int | tuple[int, ...] | None) -> str:
        sizes = [] if wanted is None else sorted({*wanted} if isinstance(wanted, tuple) else {wanted})
        return f"{name} {' or '.join(map(str, sizes))}".rstrip()

    return f"[{', '.join(text(name, wanted) for name, wanted in axes.items())}]"


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
