"""Base class of the components of a model, what the core passes to it, and the checks of its tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import torch
from torch import Tensor, nn

from headtohead.errors import HeadToHeadError
from headtohead.plugins.entry import Entry, Options
from headtohead.plugins.reads import code_name
from headtohead.plugins.watched_reads import WatchedConstruction
from headtohead.schema.run_config import ModelConfig


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
        if self.mixed_heads is None:
            return self.heads
        return self.mixed_heads

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
    """The sizes, the role and the random generators that a component may use in ``build``.

    Args:
        role: ``"encoder"``, ``"decoder"`` or ``"cross"``.
        layers: Number of layers of the role.
        d_model: Width of the model.
        geometry: Heads of the role's attention.
        generators: One random generator per member, on the CPU. Sampling member by member gives
            each member of a stack the initial weights of the same run trained alone. A generator
            is None on torch's device ``meta``, where tensors have shapes but no data.
        layer: Index of the layer, from 0; None for a component that all layers of a role share.
        model: The section ``model`` of the configuration.
        words: Rows of the embedding table of the role's tokens.
    """

    role: str
    layers: int
    d_model: int
    geometry: Geometry
    generators: Sequence[torch.Generator | None]
    layer: int | None = None
    model: ModelConfig = field(default_factory=ModelConfig)
    words: int = 1

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


@dataclass(frozen=True, eq=False)
class Fixed:
    """An initialiser that fills a tensor with the same values for every seed, and samples nothing.

    Args:
        values: A number, or a tensor that broadcasts to the shape of the parameter.
    """

    values: float | Tensor

    def __call__(self, out: Tensor, generator: torch.Generator) -> Tensor:
        """Return ``out``, filled with the values."""
        return out.copy_(torch.as_tensor(self.values))


def init_per_member(
    generators: Sequence[torch.Generator | None],
    shape: Sequence[int],
    init: Initializer | Sequence[Initializer],
) -> Tensor:
    """Return ``[member, *shape]``, each member sampled from its own generator.

    ``init`` is a single initialiser for all members, or one per member.

    Raises:
        HeadToHeadError: If an initialiser other than `Fixed` returns different numbers and samples nothing from its
            generator: they would be the same for every seed, or come from another source of random numbers.
    """
    if generators[0] is None:
        return torch.empty(len(generators), *shape, device="meta")
    out = torch.empty(len(generators), *shape)
    inits = [init] * len(generators) if callable(init) else init
    for member, generator, init_member in zip(out, generators, inits, strict=True):
        assert generator is not None
        before = generator.get_state()
        filled = init_member(member, generator)
        if filled is not member:
            member.copy_(filled)
        has_sampled = not torch.equal(before, generator.get_state())
        if not (has_sampled or isinstance(init_member, Fixed) or _is_constant(member)):
            raise HeadToHeadError(
                "an initialiser samples nothing from its generator, so its values do not depend on "
                "the seed; sample with generator=generator, or pass init=Fixed(values) for values "
                "that all seeds share"
            )
    return out


def _is_constant(tensor: Tensor) -> bool:
    """Return whether all numbers of a tensor are equal, as in a gain of ones; also without numbers."""
    return tensor.numel() == 0 or bool((tensor == tensor.flatten()[0]).all())


class Component(nn.Module, Entry, metaclass=WatchedConstruction):
    """Base of the components of a model: a ``torch.nn.Module`` with a leading member axis.

    Life cycle:

    1. A plan calls the class methods ``incompatible_with`` and ``limit``. No object exists yet.
    2. The model is built: ``__init__`` stores ``options`` and ``context`` and calls ``build``.
    3. Training and evaluation call the hooks of the family in every forward pass.
    4. Parameters and persistent buffers are saved in checkpoints and loaded from them.

    Override ``build`` instead of ``__init__``.
    """

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
        self,
        *shape: int,
        std: float = 1.0,
        mean: float = 0.0,
        init: Initializer | None = None,
        weight_decay: bool = True,
    ) -> nn.Parameter:
        """Return a parameter ``[member, *shape]``, sampled from a normal for each member.

        Args:
            *shape: Shape without the member axis.
            std: Standard deviation; with 0, all numbers are ``mean``.
            mean: Mean.
            init: Replaces the normal: receives the tensor and the generator of a member, and returns the filled tensor.
                Different numbers that are not sampled from the generator are refused, except those of `Fixed`.
            weight_decay: With False, the optimizer applies no weight decay, whatever ``train.decay`` is.
        """
        values = init_per_member(self.context.generators, shape, init or normal(std, mean))
        parameter = mark_accepted(nn.Parameter(values))
        setattr(parameter, _WEIGHT_DECAY, weight_decay)
        return parameter

    def buffer(
        self, *shape: int, std: float = 1.0, mean: float = 0.0, init: Initializer | None = None
    ) -> Tensor:
        """Return a tensor ``[member, *shape]`` that is not trained, and is saved with the weights.

        The arguments are those of ``parameter`` with the same name.
        """
        return mark_accepted(
            nn.Buffer(init_per_member(self.context.generators, shape, init or normal(std, mean)))
        )

    def constant(self, values: Tensor) -> Tensor:
        """Return a tensor that all members share, for example a table of sinusoids.

        It is not trained and not saved, because ``build`` computes the same values again. It moves to the
        device and dtype of the model.
        """
        has_data = self.context.generators[0] is not None
        return mark_accepted(nn.Buffer(values if has_data else values.to("meta"), persistent=False))

    @classmethod
    def limit(cls, options: Options) -> int | None:
        """Return the largest number of positions that the entry supports, or None for any number.

        The default is the option ``max_length``, if there is one. Longer sentences are excluded by
        the plan, and raise in a forward pass. With ``Positional.by_row`` the limit counts batch rows.
        """
        limit: int | None = getattr(options, "max_length", None)
        return limit


AnyTensor = TypeVar("AnyTensor", bound=Tensor)

_SHAPE = "_headtohead_shape"
"""Attribute of the tensors that a component may register: their shape when they were created."""

_WEIGHT_DECAY = "_headtohead_weight_decay"
"""Attribute of the parameters of a component: whether they take weight decay."""


def mark_accepted(tensor: AnyTensor) -> AnyTensor:
    """Store a tensor's shape on it, so that ``require_members`` accepts it: it has a member axis or is a constant."""
    setattr(tensor, _SHAPE, tensor.shape)
    return tensor


def takes_weight_decay(parameter: Tensor) -> bool:
    """Return whether a parameter takes weight decay: unless a component created it with ``weight_decay=False``."""
    return bool(getattr(parameter, _WEIGHT_DECAY, True))


def require_members(entry: Entry, attributes: bool = True) -> None:
    """Check the tensors of an entry after its construction.

    Every tensor is one that ``parameter``, ``buffer`` or ``constant`` returned: members would share a plain tensor, or
    its first axis would be used as the member axis. A tensor or a module in a plain attribute, in a list too, is not
    saved and does not move to the model's device. Parameters are finite. Buffers and constants may hold infinite
    numbers, such as masked scores, but no NaN. Tensors on the device ``meta`` have no values to check.

    Args:
        entry: The entry; one that is no module may hold no tensor at all.
        attributes: Whether plain attributes are checked too.

    Raises:
        HeadToHeadError: If a tensor is none of these, or has a value that it may not have.
    """
    remedy = "create it in mask, which has no other state"
    if isinstance(entry, nn.Module):
        remedy = "create it in build with self.parameter, self.buffer or self.constant"
    if attributes:
        name = _unregistered(entry)
        if name is not None:
            raise HeadToHeadError(
                f"{code_name(type(entry))}.{name} holds a tensor or module that is not registered; {remedy}"
            )
    if not isinstance(entry, nn.Module):
        return
    for name, tensor in (*entry.named_parameters(), *entry.named_buffers()):
        if getattr(tensor, _SHAPE, None) != tensor.shape:
            raise HeadToHeadError(
                f"{code_name(type(entry))}.{name} is a plain tensor without a member axis; {remedy}"
            )
        if not tensor.is_meta and not _is_valid_start(tensor):
            raise HeadToHeadError(
                f"{code_name(type(entry))}.{name} has {_refused_values(tensor)} at initialisation"
            )


def _unregistered(entry: Entry) -> str | None:
    """Return the name of a plain attribute with a tensor or a module, of the object or its modules, or None."""
    objects: list[tuple[str, object]] = [("", entry)]
    if isinstance(entry, nn.Module):
        objects = list(entry.named_modules())
    for path, part in objects:
        for name, value in vars(part).items():
            if name not in _OF_MODULES and _has_tensors(value):
                return f"{path}.{name}".lstrip(".")
    return None


def _refused_values(tensor: Tensor) -> str:
    """Return the values that an initial tensor may not have: a buffer may hold infinite scores."""
    if isinstance(tensor, nn.Parameter):
        return "NaN or infinite numbers"
    return "NaN"


def _is_valid_start(tensor: Tensor) -> bool:
    """Return whether an initial tensor has no `_refused_values`."""
    if isinstance(tensor, nn.Parameter):
        return bool(tensor.detach().isfinite().all())
    return not bool(tensor.isnan().any())


_OF_MODULES = frozenset(vars(nn.Module()))
"""Attributes of every module, and the tables of `Positional.cached`."""


def _has_tensors(value: object) -> bool:
    """Return whether a value is a tensor or module, or a nested list, tuple, set or dictionary with one."""
    if isinstance(value, dict):
        return any(_has_tensors(item) for item in value.values())
    if isinstance(value, list | tuple | set):
        return any(_has_tensors(item) for item in value)
    return isinstance(value, Tensor | nn.Module)


def require_shape(
    entry: Entry, hook: str, result: object, /, **axes: int | tuple[int, ...] | None
) -> None:
    """Refuse the result of a hook whose shape would fail, or broadcast to other axes, later.

    ``axes`` has the name of each axis with its size or permitted sizes; None permits any size.
    """
    if isinstance(result, Tensor) and result.dim() == len(axes):
        sizes = zip(result.shape, axes.values(), strict=True)
        if all(
            size == wanted or wanted is None or (wanted.__class__ is tuple and size in wanted)
            for size, wanted in sizes
        ):
            return
    got = f"a tensor {list(result.shape)}" if isinstance(result, Tensor) else type(result).__name__
    expected = ", ".join(
        f"{name} {' or '.join(map(str, sorted({*size}))) if isinstance(size, tuple) else size or ''}".rstrip()
        for name, size in axes.items()
    )
    raise HeadToHeadError(
        f"{type(entry).__name__}.{hook} returned {got}; return a tensor [{expected}]"
    )


def require_like(entry: Entry, hook: str, result: object, like: Tensor, axes: str) -> None:
    """Refuse the result of a hook that is no floating-point tensor of the shape of ``like``.

    The dtype must be equal, too, except under autocast. ``axes`` has the names of its axes, separated by spaces.
    """
    if isinstance(result, Tensor) and result.shape == like.shape and result.dtype == like.dtype:
        return
    require_shape(entry, hook, result, **dict(zip(axes.split(), like.shape, strict=True)))
    assert isinstance(result, Tensor)
    if not (result.is_floating_point() and torch.is_autocast_enabled(result.device.type)):
        raise HeadToHeadError(
            f"{type(entry).__name__}.{hook} returned a tensor of {result.dtype}; return {like.dtype}, the dtype of its "
            "arguments"
        )
