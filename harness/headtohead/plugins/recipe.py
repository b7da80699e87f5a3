"""Recipes: named starting configurations, such as a notebook's, and how to read its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from headtohead.plugins.entry import Entry

Kind = Literal["linear", "norm", "embedding", "table", "fixed"]

SUFFIXES: Mapping[str, tuple[str, ...]] = {
    "linear": (".weight", ".bias"),
    "norm": (".weight", ".bias"),
    "embedding": (".weight",),
    "table": ("",),
    "fixed": ("",),
}
"""The tensors of a module of each kind, by what its name is continued with."""


@dataclass(frozen=True)
class Tensors:
    """One module of a state dict, and the part of the model that it becomes.

    ``theirs`` is its name in the state dict; ``{layer}`` and ``{head}`` stand for numbers from 0.

    ``ours`` is one of ``source_embedding``, ``target_embedding``, ``embedding`` (of both sides),
    ``positions``, ``words`` (the projection to them), ``encoder.norm``, ``decoder.norm``, and
    inside of ``encoder.{layer}`` and ``decoder.{layer}``: ``attention.query``, ``.key``,
    ``.value``, ``.output`` and ``.norm``, in the decoder the same of ``cross``, and
    ``feed_forward.inner``, ``.outer`` and ``.norm``.

    ``kind`` says how: ``linear`` (as ``torch.nn.Linear``: weight ``[out, in]`` and bias),
    ``norm`` (weight and bias), ``embedding`` (weight), ``table`` (a tensor without a module: the
    trained positions) or ``fixed`` (a buffer: the table that the positional encoding must compute
    too; nothing is copied).

    ``shape`` is that of the weight, in words. The same word is the same size everywhere:
    ``d_model``, ``d_ff``, ``source_words``, ``target_words``, ``words`` (of both sides),
    ``positions``; the counts ``heads``, ``encoder_layers`` and ``decoder_layers`` come from the
    numbers in the names. A product is written ``heads*d_model``.
    """

    theirs: str
    ours: str
    kind: Kind
    shape: str

    @classmethod
    def attention(cls, theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Tensors, ...]:
        """Return the projections of an attention whose heads split d_model.

        Args:
            theirs: Name of the attention in the state dict.
            ours: ``encoder.{layer}.attention`` and so on.
            names: Of ``query``, ``key``, ``value`` and ``output`` in the state dict.
        """
        return tuple(
            cls(f"{theirs}.{name}", f"{ours}.{part}", "linear", "d_model d_model") for part, name in names.items()
        )

    @classmethod
    def feed_forward(cls, theirs: str, ours: str, inner: str, outer: str) -> tuple[Tensors, ...]:
        """Return the two maps of a feed-forward, ``inner`` and ``outer`` in the state dict."""
        return (
            cls(f"{theirs}.{inner}", f"{ours}.inner", "linear", "d_ff d_model"),
            cls(f"{theirs}.{outer}", f"{ours}.outer", "linear", "d_model d_ff"),
        )

    @classmethod
    def norms(cls, theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Tensors, ...]:
        """Return the LayerNorms of a layer, named by the part of ours that each belongs to."""
        return tuple(cls(f"{theirs}.{name}", f"{ours}.{part}.norm", "norm", "d_model") for part, name in names.items())


@dataclass(frozen=True)
class Checkpoint:
    """One form in which a notebook saves its weights.

    ``sets`` are fields of the configuration that this form decides. ``sizes`` are fields that take
    a size of the state dict, beside those of the model section. ``tables`` are fields with the
    values that they may have: the one under which a ``fixed`` table comes out best is taken.
    """

    name: str
    tensors: tuple[Tensors, ...]
    sets: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


class Recipe(Entry):
    """A partial configuration, in the words of an experiment file's ``base``."""

    config: ClassVar[Mapping[str, Any]] = {}

    checkpoints: ClassVar[tuple[Checkpoint, ...]] = ()
    """The forms in which weights of this recipe are saved; the one that fits is taken."""

    no_checkpoint: ClassVar[str] = "it does not say how its weights are named"
    """Why none can be imported, where ``checkpoints`` is empty."""

    needs_file: ClassVar[bool] = False
    """Whether the vocabularies are rebuilt from a file of sentence pairs.

    Otherwise they are those of the recipe's dataset, which brings its sentences with it.
    """

    @classmethod
    def values(cls) -> dict[str, Any]:
        """Return its fields and their values, by dotted path."""
        return dict(_flat("", cls.config))

    @classmethod
    def read(cls, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Return the raw sentence pairs of such a file, as the notebook reads it.

        Args:
            lines: Without line ends.

        Raises:
            HeadToHeadError: If a line cannot be read, with its number and what is wrong with it.
        """
        raise NotImplementedError


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{path}{name}.", value)
        else:
            yield f"{path}{name}", value
