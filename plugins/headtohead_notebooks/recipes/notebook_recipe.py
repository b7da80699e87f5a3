"""Recipes of notebooks: a configuration, and the tensor names of the notebook's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

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


MODEL = {"norm": "post", "final_norm": False, "init": "torch"}
"""Fields of ``model`` with the same values in nearly all notebooks."""

TRAIN = {
    "optimizer": "adam",
    "weight_decay": 0.0,
    "schedule": "constant",
    "warmup_steps": 0,
    "clip_norm": None,
}
"""Fields of ``train`` with the same values in all notebooks that train."""


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
    name, inner, outer = feed_forward
    modules: dict[str, str | tuple[str, ...]] = {}
    for side, at, own in (
        ("encoder", encoder, attentions[:1]),
        ("decoder", decoder, attentions[1:]),
    ):
        for number, (part, attention) in enumerate(
            zip(("attention", "cross"), own, strict=False), 1
        ):
            ours, theirs = (
                f"{side}.{{layer}}.{part}",
                tuple(f"{at}.{attention}.{name}" for name in inputs),
            )
            if part == "attention" or joint_cross:
                modules[f"{ours}.queries_keys_values"] = theirs
            else:
                modules |= {f"{ours}.queries": theirs[0], f"{ours}.keys_values": theirs[1:]}
            modules |= {
                f"{ours}.output": f"{at}.{attention}.{output}",
                f"{ours}_branch.norm": f"{at}.norm{number}",
            }
        ours, theirs_ff = (
            f"{side}.{{layer}}.feed_forward",
            f"{at}.{(side == 'decoder' and decoder_feed_forward) or name}",
        )
        modules |= {
            f"{ours}.inner": f"{theirs_ff}.{inner}",
            f"{ours}.outer": f"{theirs_ff}.{outer}",
        }
        modules[f"{ours}_branch.norm"] = f"{at}.norm{len(own) + 1}"
    return modules
