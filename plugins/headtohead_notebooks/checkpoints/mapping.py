"""Mapping of a notebook's state dict to headtohead's model: names, sizes and weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headtohead.data.tokeniser import Side
from headtohead.errors import HeadToHeadError
from headtohead.model.layers import StackedLinear
from headtohead.plugins.norm import Norm
from headtohead_notebooks.recipes.notebook_recipe import Checkpoint

NAMES_SHOWN = 5
"""Largest number of names of a kind that an error lists."""


class MismatchError(HeadToHeadError):
    """A tensor of the checkpoint that does not fit the model; the text names it."""


@dataclass(frozen=True)
class CheckpointMapping:
    """A state dict and one form of checkpoint.

    ``tensors`` maps each tensor of headtohead's model to the names that it consists of in the state
    dict. ``missing`` names are declared by the form, ``unknown`` ones are not.
    """

    form: Checkpoint
    state: Mapping[str, Tensor]
    tensors: Mapping[str, tuple[str, ...]]
    layers: Mapping[str, int]
    heads: int | None
    missing: list[str]
    unknown: list[str]

    @property
    def problems(self) -> str:
        """Missing and unknown names; empty if the names match."""
        kinds = {"missing": self.missing, "unknown": self.unknown}
        return "; ".join(
            f"{kind}: {', '.join(names[:NAMES_SHOWN])}" for kind, names in kinds.items() if names
        )

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the run configuration that the form and the shapes of the tensors decide."""
        fields = dict(self.form.config)
        fields |= {f"model.{stack}_layers": count for stack, count in self.layers.items()}
        fields["model.d_model"] = self._size("target_embedding.weight", 1)
        if "encoder.0.feed_forward.inner.weight" in self.tensors:
            fields["model.d_ff"] = self._size("encoder.0.feed_forward.inner.weight", 0)
        if self.heads is not None:
            fields["model.heads"] = self.heads
        positions = self.positions
        if self.form.positions_field:
            fields[self.form.positions_field] = positions
        if all(tensor.dtype == torch.float64 for tensor in self.state.values()):
            fields["train.precision"] = "float64"
        return fields

    @property
    def vocabulary_sizes(self) -> dict[Side, int]:
        """Rows of the embeddings; one embedding can serve both sides."""
        target = self._size("target_embedding.weight", 0)
        shared = "source_embedding.weight" not in self.tensors
        return {
            "source": target if shared else self._size("source_embedding.weight", 0),
            "target": target,
        }

    @property
    def positions(self) -> int | None:
        """Number of positions of the table in the state dict, if there is one."""
        name = self.form.positions
        if name is None:
            return None
        shape = self.state[name].shape
        if len(shape) < 2:
            raise MismatchError(
                f"wrong shape: {name} {list(shape)} instead of [..., positions, d_model]"
            )
        return shape[-2]

    def _size(self, ours: str, axis: int) -> int:
        (name,) = self.tensors[ours]
        shape = self.state[name].shape
        if len(shape) != 2:
            raise MismatchError(f"wrong shape: {name} {list(shape)} instead of a matrix")
        return shape[axis]


def map_names(state: Mapping[str, Tensor], form: Checkpoint) -> CheckpointMapping:
    """Assign the names of a state dict to headtohead's tensors; layers and heads are counted."""
    declared: dict[str, tuple[str, ...]] = {
        ours: (theirs,) for ours, theirs in form.tensors.items()
    }
    for ours, theirs in form.modules.items():
        parts = [theirs] if isinstance(theirs, str) else theirs
        for kind in ("weight", "bias"):
            declared[f"{ours}.{kind}"] = tuple(f"{part}.{kind}" for part in parts)
    layers = {
        stack: _count(
            "layer",
            (name for ours in declared if ours.startswith(f"{stack}.") for name in declared[ours]),
            state,
        )
        for stack in ("encoder", "decoder")
    }
    heads = _count("head", (name for names in declared.values() for name in names), state)
    tensors = {
        ours.format(layer=layer): tuple(
            name.format(layer=layer, head=head)
            for name in names
            for head in range(heads if "{head}" in name else 1)
        )
        for ours, names in declared.items()
        for layer in range(layers[ours.partition(".")[0]] if "{layer}" in ours else 1)
    }
    expected = dict.fromkeys(name for names in tensors.values() for name in names)
    if form.positions:
        expected[form.positions] = None
    per_head = any("{head}" in name for names in declared.values() for name in names)
    return CheckpointMapping(
        form,
        state,
        tensors,
        layers,
        heads if per_head else None,
        missing=[name for name in expected if name not in state],
        unknown=[name for name in state if name not in expected],
    )


def convert(mapping: CheckpointMapping, model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of one member of ``model``, by headtohead's names.

    Args:
        mapping: A mapping without missing or unknown names.
        model: The model that the configuration builds; only its shapes are used.

    Raises:
        MismatchError: If a tensor is missing or left over, or has another shape than the model's.
    """
    ours = model.state_dict()
    _require_same_names(mapping, ours)
    weights, faults = {}, []
    for name, tensor in ours.items():
        parts = {part: mapping.state[part] for part in mapping.tensors[name]}
        shape, transposed = _notebook_shape(model, name, tensor, len(parts))
        for part, value in parts.items():
            if not value.is_floating_point():
                faults.append(f"{part} has type {str(value.dtype).removeprefix('torch.')}")
            elif list(value.shape) != shape:
                faults.append(f"{part} {list(value.shape)} instead of {shape}")
        if faults:
            continue
        values = list(parts.values())
        if transposed:
            values = [value.t() for value in values]
        weights[name] = torch.cat(values, dim=-1).reshape(tensor.shape[1:])
    if faults:
        raise MismatchError(f"wrong shape: {', '.join(faults[:NAMES_SHOWN])}")
    return weights


def _require_same_names(mapping: CheckpointMapping, ours: Mapping[str, Tensor]) -> None:
    """Raise if the configuration has a tensor that the checkpoint lacks, or does not use one of its tensors."""
    for name in ours:
        if name not in mapping.tensors:
            raise MismatchError(f"the configuration has '{name}', which the checkpoint lacks")
    for name, theirs in mapping.tensors.items():
        if name not in ours:
            raise MismatchError(
                f"the checkpoint has '{theirs[0]}', which the configuration does not use"
            )


def _notebook_shape(
    model: nn.Module, name: str, tensor: Tensor, parts: int
) -> tuple[list[int], bool]:
    """Return the shape of each part of a tensor in the state dict, and whether it is transposed."""
    module = model.get_submodule(name.rpartition(".")[0])
    *inputs, outputs = tensor.shape[1:]
    if isinstance(module, StackedLinear):
        is_weight = name.endswith(".weight")
        return [outputs // parts, *(inputs if is_weight else ())], is_weight
    return [outputs] if isinstance(module, Norm) else [*inputs, outputs], False


def _count(placeholder: str, patterns: Iterable[str], state: Mapping[str, Tensor]) -> int:
    """Return how many different numbers stand for a placeholder in the state dict, at least 1."""
    numbers = set()
    for pattern in patterns:
        if f"{{{placeholder}}}" in pattern:
            expression = re.sub(r"\\{(\w+)\\}", r"(?P<\1>0|[1-9][0-9]*)", re.escape(pattern))
            numbers |= {
                match[placeholder] for name in state if (match := re.fullmatch(expression, name))
            }
    return max(1, len(numbers))
