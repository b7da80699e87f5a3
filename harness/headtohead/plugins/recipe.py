"""Recipes: named starting configurations, such as a notebook's, and the tensor names of its checkpoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headtohead.plugins.entry import Entry


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


class Recipe(Entry):
    """A partial configuration that the ``base`` of an experiment file can name."""

    config: ClassVar[Mapping[str, Any]] = {}
    """The same nested mapping as ``base`` in an experiment file."""

    checkpoints: ClassVar[tuple[Checkpoint, ...]] = ()
    """Forms of checkpoints that ``h2h import-checkpoint`` reads; the form whose names match is used."""

    no_checkpoint: ClassVar[str] = "the recipe does not declare the names of its tensors"
    """Reason why no checkpoint can be imported, if ``checkpoints`` is empty."""

    needs_file: ClassVar[bool] = False
    """Whether the vocabularies are rebuilt from a file of sentence pairs (``read``).

    Otherwise they are the vocabularies of the recipe's dataset.
    """

    @classmethod
    def values(cls) -> dict[str, Any]:
        """Return the fields of ``config`` by dotted path."""
        return dict(_flat("", cls.config))

    @classmethod
    def read(cls, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Parse the raw sentence pairs of a file as the notebook does.

        Args:
            lines: Lines without line ends.

        Raises:
            HeadToHeadError: If a line cannot be parsed, with its number and the reason.
        """
        raise NotImplementedError


def _flat(path: str, values: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, Mapping):
            yield from _flat(f"{path}{name}.", value)
        else:
            yield f"{path}{name}", value
