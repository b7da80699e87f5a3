"""Recipes: named configurations, such as a notebook's, and descriptions of its checkpoints."""

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
"""Suffixes of the tensor names of a module, by kind."""


@dataclass(frozen=True)
class Tensors:
    """Maps a module of a notebook's state dict to a part of the model.

    Args:
        theirs: Name of the module in the state dict. ``{layer}`` and ``{head}`` stand for numbers
            from 0.
        ours: ``source_embedding``, ``target_embedding``, ``embedding`` (shared by both sides),
            ``positions``, ``lm_head``, ``encoder.norm``, ``decoder.norm``; or, after
            ``encoder.{layer}`` or ``decoder.{layer}``: ``attention.query``, ``.key``, ``.value``,
            ``.output``, ``.norm``, the same of ``cross`` in the decoder, ``feed_forward.inner``,
            ``.outer`` and ``.norm``.
        kind: How the module stores its tensors. ``linear``: as ``torch.nn.Linear``, weight
            ``[out, in]`` and bias. ``norm``: weight and bias. ``embedding``: weight. ``table``: a
            parameter without a module, such as trained positions. ``fixed``: a buffer that is not
            copied but must equal the table that the positional encoding computes.
        shape: Sizes of the weight by name; a name stands for the same size everywhere:
            ``d_model``, ``d_ff``, ``source_words`` and ``target_words`` (vocabulary sizes),
            ``words`` (of a shared vocabulary), ``positions``. The counts ``heads``,
            ``encoder_layers`` and ``decoder_layers`` are derived from the numbers in names. A
            product is written ``heads*d_model``.
    """

    theirs: str
    ours: str
    kind: Kind
    shape: str

    @classmethod
    def attention(cls, theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Tensors, ...]:
        """Return the projections of an attention with split heads.

        Args:
            theirs: Name of the attention in the state dict.
            ours: Name in our model, such as ``encoder.{layer}.attention``.
            names: Names of ``query``, ``key``, ``value`` and ``output`` in the state dict.
        """
        return tuple(
            cls(f"{theirs}.{name}", f"{ours}.{part}", "linear", "d_model d_model") for part, name in names.items()
        )

    @classmethod
    def feed_forward(cls, theirs: str, ours: str, inner: str, outer: str) -> tuple[Tensors, ...]:
        """Return the two linear maps of a feed-forward.

        ``inner`` and ``outer`` are their names in the state dict.
        """
        return (
            cls(f"{theirs}.{inner}", f"{ours}.inner", "linear", "d_ff d_model"),
            cls(f"{theirs}.{outer}", f"{ours}.outer", "linear", "d_model d_ff"),
        )

    @classmethod
    def norms(cls, theirs: str, ours: str, names: Mapping[str, str]) -> tuple[Tensors, ...]:
        """Return the LayerNorms of a layer; ``names`` maps our parts to names in the state dict."""
        return tuple(cls(f"{theirs}.{name}", f"{ours}.{part}.norm", "norm", "d_model") for part, name in names.items())


@dataclass(frozen=True)
class Checkpoint:
    """A form in which a notebook saves its weights.

    Args:
        name: Name of the form, for messages.
        tensors: All modules of the state dict.
        sets: Configuration fields that this form determines, with their values.
        sizes: Configuration fields outside the model section that are read from a tensor's size.
        tables: Configuration fields with candidate values. The candidate with the computed
            table closest to the ``fixed`` table of the checkpoint is chosen.
    """

    name: str
    tensors: tuple[Tensors, ...]
    sets: Mapping[str, Any] = field(default_factory=dict)
    sizes: Mapping[str, str] = field(default_factory=dict)
    tables: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


class Recipe(Entry):
    """A partial configuration that experiment files select by name.

    Set ``config``; a recipe of a notebook that saves weights also sets ``checkpoints``.
    """

    config: ClassVar[Mapping[str, Any]] = {}
    """Configuration fields in nested sections, as in an experiment file."""

    checkpoints: ClassVar[tuple[Checkpoint, ...]] = ()
    """Forms in which weights of this recipe are saved. The form that fits a state dict is used."""

    no_checkpoint: ClassVar[str] = "it declares no checkpoint format"
    """Why checkpoints cannot be imported, for a recipe without ``checkpoints``."""

    needs_file: ClassVar[bool] = False
    """Whether importing a checkpoint requires the file of sentence pairs it was trained on.

    Vocabularies are rebuilt from that file. Otherwise they come from the recipe's dataset.
    """

    @classmethod
    def values(cls) -> dict[str, Any]:
        """Return the values of ``config`` by dotted path."""
        return dict(_flat("", cls.config))

    @classmethod
    def read(cls, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Return the sentence pairs of the training file, parsed as in the notebook.

        Called only with ``needs_file``.

        Args:
            lines: Lines of the file without line ends.

        Raises:
            HeadToHeadError: If a line is invalid. The message contains its number and the reason.
        """
        raise NotImplementedError


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{path}{name}.", value)
        else:
            yield f"{path}{name}", value
