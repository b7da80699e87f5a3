"""Recipes of notebooks: a configuration, and the tensor names of the notebook's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from headtohead.config.yaml_text import parse
from headtohead.plugin import Recipe


@dataclass(frozen=True)
class Checkpoint:
    """A form in which a notebook saves its weights: tensor names and what they imply.

    ``modules`` maps modules of headtohead's model (``weight`` and ``bias``) to modules of the
    notebook's state dict, ``tensors`` maps single tensors. Keys are headtohead's names. A value is
    a name, or several whose outputs are concatenated in this order. ``{layer}`` and ``{head}``
    stand for numbers from 0. ``target_embedding.weight`` must be mapped, because its shape gives
    d_model. Weights of linear layers are transposed, because ``torch.nn.Linear`` stores ``[out, in]``.

    ``config`` holds the fields of the run configuration that this form decides, by dotted path.

    ``positions`` is the name of the table ``[..., positions, d_model]`` in the state dict, if there
    is one, and ``positions_field`` the field that takes its number of positions.
    ``positions_computed`` maps a field to its possible values where the table is a buffer: the
    table is not copied, and the value under which headtohead computes the nearest table is taken.
    """

    name: str
    modules: Mapping[str, Sequence[str]]
    tensors: Mapping[str, str]
    config: Mapping[str, Any] = field(default_factory=dict)
    positions: str | None = None
    positions_field: str | None = None
    positions_computed: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


class NotebookRecipe(Recipe):
    """A recipe whose notebook saves checkpoints that ``h2h import-checkpoint`` reads."""

    checkpoints: ClassVar[tuple[Checkpoint, ...]] = ()
    """Forms of checkpoints that ``h2h import-checkpoint`` reads; the form whose names match is used."""

    no_checkpoint: ClassVar[str] = "the recipe does not declare the names of its tensors"
    """Reason why no checkpoint can be imported, if ``checkpoints`` is empty."""

    needs_file: ClassVar[bool] = False
    """Whether the vocabularies are rebuilt from a file of sentence pairs (``read``).

    Otherwise they are the vocabularies of the recipe's dataset.
    """

    @classmethod
    def read(cls, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Parse the raw sentence pairs of a file as the notebook does.

        Args:
            lines: Lines without line ends.

        Raises:
            HeadToHeadError: If a line cannot be parsed, with its number and the reason.
        """
        raise NotImplementedError


EMBEDDINGS = {
    "source_embedding.weight": "encoder_embedding.weight",
    "target_embedding.weight": "decoder_embedding.weight",
}
"""Names of the embeddings in the state dicts of nearly all notebooks."""


def read_config(file_name: str) -> dict[str, Any]:
    """Return the configuration that a YAML file of this folder holds in the notation of ``base``."""
    text = Path(__file__).with_name(file_name).read_text(encoding="utf-8")
    config, _ = parse(text, file_name)
    return dict(config)


def layer_modules(
    encoder: str,
    decoder: str,
    attentions: Sequence[str],
    projections: Sequence[str],
    feed_forward: tuple[str, str, str],
    *,
    decoder_feed_forward: str = "",
    joint_cross: bool = False,
) -> dict[str, str | tuple[str, ...]]:
    """Return ``modules`` of a form of checkpoint for the layers of encoder and decoder.

    Args:
        encoder: Path of an encoder layer, with ``{layer}``.
        decoder: Path of a decoder layer.
        attentions: Names of the attentions of the encoder, the decoder, and from decoder to encoder.
        projections: Names of the projections for queries, keys, values and outputs.
        feed_forward: Name of the feed-forward network and of its two linear layers.
        decoder_feed_forward: Its name in the decoder, if it differs.
        joint_cross: Whether the second attention of the decoder attends to the decoder itself.
    """
    *inputs, output = projections
    encoder_attention, decoder_attention, cross_attention = attentions
    modules: dict[str, str | tuple[str, ...]] = {}

    def add_attention(ours: str, theirs: str, norm: str, joint: bool = True) -> None:
        names = tuple(f"{theirs}.{name}" for name in inputs)
        if joint:
            modules[f"{ours}.queries_keys_values"] = names
        else:
            modules[f"{ours}.queries"] = names[0]
            modules[f"{ours}.keys_values"] = names[1:]
        modules[f"{ours}.output"] = f"{theirs}.{output}"
        modules[f"{ours}_branch.norm"] = norm

    def add_feed_forward(ours: str, theirs: str, norm: str) -> None:
        _, inner, outer = feed_forward
        modules[f"{ours}.inner"] = f"{theirs}.{inner}"
        modules[f"{ours}.outer"] = f"{theirs}.{outer}"
        modules[f"{ours}_branch.norm"] = norm

    network = feed_forward[0]
    layer = "encoder.{layer}"
    add_attention(f"{layer}.attention", f"{encoder}.{encoder_attention}", f"{encoder}.norm1")
    add_feed_forward(f"{layer}.feed_forward", f"{encoder}.{network}", f"{encoder}.norm2")
    layer = "decoder.{layer}"
    network = decoder_feed_forward or network
    add_attention(f"{layer}.attention", f"{decoder}.{decoder_attention}", f"{decoder}.norm1")
    cross = f"{decoder}.{cross_attention}"
    add_attention(f"{layer}.cross", cross, f"{decoder}.norm2", joint_cross)
    add_feed_forward(f"{layer}.feed_forward", f"{decoder}.{network}", f"{decoder}.norm3")
    return modules
