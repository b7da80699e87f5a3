"""A checkpoint's tensors, by part of the model, turned into the weights of our model.

``torch.nn.Linear`` holds ``[out, in]``, ours ``[in, out]``; projections of one input stand side by
side in ours, the heads of each in their order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count

import torch
from torch import Tensor, nn

from headtohead.errors import HeadToHeadError

PROJECTIONS = {
    "queries_keys_values": ("query", "key", "value"),
    "queries": ("query",),
    "keys_values": ("key", "value"),
    "output": ("output",),
    "inner": ("inner",),
    "outer": ("outer",),
}
"""Our linear layers, by the last part of their names, and the parts that each joins."""


def convert(parts: Mapping[str, Tensor], model: nn.Module) -> dict[str, Tensor]:
    """Return the weights of one member of ``model``, by our names.

    Args:
        parts: Tensors by part, named as ``headtohead.Tensors.ours`` with ``.weight`` or ``.bias``.
        model: Of the configuration that they are for; its own weights are not read.

    Raises:
        HeadToHeadError: If a part is lacking or left over, or has another size than the model's.
    """
    left = dict.fromkeys(parts)
    weights = {}
    for name, ours in model.state_dict().items():
        used = _sources(name, parts)
        if not used:
            raise HeadToHeadError(f"the configuration has '{name}', which the checkpoint lacks")
        weights[name] = _shaped(name, _joined([parts[one] for one in used], name), ours.shape[1:])
        for one in used:
            left.pop(one, None)
    if left:
        raise HeadToHeadError(f"the checkpoint has '{next(iter(left))}', which the configuration has no place for")
    return weights


def _sources(name: str, parts: Mapping[str, Tensor]) -> list[str]:
    """Return the parts that one of our tensors is made of, in their order; none if one lacks."""
    module, _, kind = name.rpartition(".")
    place, _, last = module.rpartition(".")
    if last in PROJECTIONS:
        found = [list(_heads(f"{place}.{part}", kind, parts)) for part in PROJECTIONS[last]]
        return [one for heads in found for one in heads] if all(found) else []
    return [one for one in _names(module, place, kind) if one in parts][:1]


def _heads(part: str, kind: str, parts: Mapping[str, Tensor]) -> Iterator[str]:
    """Yield the one tensor of a projection, or that of each of its heads."""
    if f"{part}.{kind}" in parts:
        yield f"{part}.{kind}"
    for head in count():
        if f"{part}.{head}.{kind}" not in parts:
            return
        yield f"{part}.{head}.{kind}"


def _names(module: str, place: str, kind: str) -> tuple[str, ...]:
    """Return the names that the part of one of our other modules may have."""
    if re.fullmatch(r"(encoder|decoder)_norm", module):
        return (f"{module.removesuffix('_norm')}.norm.{kind}",)
    if place.endswith("_branch"):
        return (f"{place.removesuffix('_branch')}.norm.{kind}",)
    if module.startswith("positionals."):
        return ("positions",)
    return (f"{module}.{kind}", f"embedding.{kind}")


def _joined(tensors: Sequence[Tensor], name: str) -> Tensor:
    """Lay tensors side by side in our layout."""
    is_linear = name.startswith("lm_head.") or name.split(".")[-2] in PROJECTIONS
    if is_linear and name.endswith(".weight"):
        return torch.cat([one.t() for one in tensors], dim=-1)
    return torch.cat(list(tensors), dim=-1) if len(tensors) > 1 else tensors[0]


def _shaped(name: str, tensor: Tensor, shape: torch.Size) -> Tensor:
    """Add the axes of length 1 that ours has for broadcasting."""
    sizes, wanted = ([size for size in one if size != 1] for one in (tensor.shape, shape))
    if sizes != wanted:
        raise HeadToHeadError(f"'{name}' is {list(tensor.shape)} in the checkpoint, {list(shape)} in the configuration")
    return tensor.reshape(shape)
