"""Mapping of a notebook's state dict to headtohead's model: names, sizes and weights."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
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
        problems = []
        for kind, names in kinds.items():
            if names:
                shown = ", ".join(names[:NAMES_SHOWN])
                problems.append(f"{kind}: {shown}")
        return "; ".join(problems)

    @property
    def fields(self) -> dict[str, Any]:
        """Fields of the run configuration that the form and the shapes of the tensors decide."""
        fields = dict(self.form.config)
        for stack, count in self.layers.items():
            fields[f"model.{stack}_layers"] = count
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
        source = target
        if "source_embedding.weight" in self.tensors:
            source = self._size("source_embedding.weight", 0)
        return {"source": source, "target": target}

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
    patterns = _declared_patterns(form)
    all_patterns = list(chain.from_iterable(patterns.values()))
    layers = {}
    for stack in ("encoder", "decoder"):
        stack_patterns: list[str] = []
        for ours, theirs in patterns.items():
            if ours.startswith(f"{stack}."):
                stack_patterns.extend(theirs)
        layers[stack] = _count("layer", stack_patterns, state)
    heads = _count("head", all_patterns, state)

    tensors: dict[str, tuple[str, ...]] = {}
    for ours, theirs in patterns.items():
        copies = 1
        if "{layer}" in ours:
            stack = ours.partition(".")[0]
            copies = layers[stack]
        for layer in range(copies):
            tensors[ours.format(layer=layer)] = _layer_names(theirs, layer, heads)

    expected = dict.fromkeys(chain.from_iterable(tensors.values()))
    if form.positions:
        expected[form.positions] = None
    names_heads = any("{head}" in pattern for pattern in all_patterns)
    return CheckpointMapping(
        form,
        state,
        tensors,
        layers,
        heads=heads if names_heads else None,
        missing=[name for name in expected if name not in state],
        unknown=[name for name in state if name not in expected],
    )


def _declared_patterns(form: Checkpoint) -> dict[str, tuple[str, ...]]:
    """Return the names of a form by headtohead's name, with placeholders for layer and head."""
    patterns: dict[str, tuple[str, ...]] = {}
    for ours, tensor in form.tensors.items():
        patterns[ours] = (tensor,)
    for ours, modules in form.modules.items():
        parts = [modules] if isinstance(modules, str) else modules
        for kind in ("weight", "bias"):
            patterns[f"{ours}.{kind}"] = tuple(f"{part}.{kind}" for part in parts)
    return patterns


def _layer_names(patterns: Iterable[str], layer: int, heads: int) -> tuple[str, ...]:
    """Return the names of one layer; a pattern with a head stands for a name per head."""
    names = []
    for pattern in patterns:
        copies = heads if "{head}" in pattern else 1
        for head in range(copies):
            names.append(pattern.format(layer=layer, head=head))
    return tuple(names)


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
    weights: dict[str, Tensor] = {}
    faults: list[str] = []
    for name, tensor in ours.items():
        parts = {part: mapping.state[part] for part in mapping.tensors[name]}
        shape, transposed = _notebook_shape(model, name, tensor, len(parts))
        for part, value in parts.items():
            stored_shape = list(value.shape)
            if not value.is_floating_point():
                dtype = str(value.dtype).removeprefix("torch.")
                faults.append(f"{part} has type {dtype}")
            elif stored_shape != shape:
                faults.append(f"{part} {stored_shape} instead of {shape}")
        if faults:
            continue
        values = list(parts.values())
        if transposed:
            values = [value.t() for value in values]
        joined = torch.cat(values, dim=-1)
        weights[name] = joined.reshape(tensor.shape[1:])
    if faults:
        shown = ", ".join(faults[:NAMES_SHOWN])
        raise MismatchError(f"wrong shape: {shown}")
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
        outputs_of_part = outputs // parts
        if name.endswith(".weight"):
            return [outputs_of_part, *inputs], True
        return [outputs_of_part], False
    if isinstance(module, Norm):
        return [outputs], False
    return [*inputs, outputs], False


def _count(placeholder: str, patterns: Iterable[str], state: Mapping[str, Tensor]) -> int:
    """Return how many different numbers stand for a placeholder in the state dict, at least 1."""
    numbers = set()
    for pattern in patterns:
        if f"{{{placeholder}}}" not in pattern:
            continue
        escaped = re.escape(pattern)
        expression = re.sub(r"\\{(\w+)\\}", r"(?P<\1>0|[1-9][0-9]*)", escaped)
        for name in state:
            match = re.fullmatch(expression, name)
            if match:
                numbers.add(match[placeholder])
    return max(1, len(numbers))
