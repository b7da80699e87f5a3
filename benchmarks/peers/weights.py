"""The weights that headtohead drew, under the names that every peer has for them.

Names between the two are plain: ``source``, ``target`` and ``words``; in a layer, as
``encoder.0``, ``attention.q``, ``.k``, ``.v`` and ``.o``, ``inner`` and ``outer``,
``attention_norm`` and ``feed_forward_norm``, in the decoder ``cross`` and ``cross_norm`` too. All
of them end in ``.weight`` or ``.bias``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headtohead.training.loop import StackTraining

Weights = Mapping[str, Tensor]


def drawn(training: StackTraining) -> dict[str, Tensor]:
    """Return copies of the weights of the first member by their plain names."""
    found: dict[str, Tensor] = {}
    for name, value in training.model.member_state(0).items():
        found |= _plain(name, value.cpu())
    return found


def _plain(name: str, value: Tensor) -> dict[str, Tensor]:
    """Rename one of our tensors, turn a map as torch has it and part maps that are joined."""
    path, _, kind = name.rpartition(".")
    if path.endswith("_embedding"):
        return {f"{path.removesuffix('_embedding')}.weight": value.clone()}
    if path.endswith("_branch.norm"):
        return {f"{path.removesuffix('_branch.norm')}_norm.{kind}": value.flatten().clone()}
    value = value.transpose(0, 1).contiguous() if kind == "weight" else value.flatten()
    joined = {"queries_keys_values": "qkv", "queries": "q", "keys_values": "kv", "output": "o"}
    layer, _, last = path.replace(".feed_forward.", ".").rpartition(".")
    if last not in joined:
        return {f"{layer}.{last}.{kind}".lstrip("."): value.clone()}
    parts = value.chunk(len(joined[last]))
    return {f"{layer}.{one}.{kind}": part.clone() for one, part in zip(joined[last], parts, strict=True)}


@dataclass(frozen=True)
class Names:
    """What a peer calls things: where ``parts`` has no entry, as it is called here.

    ``encoder`` and ``decoder`` are layers, with ``{}`` for their number. Names in ``parts`` may
    begin with ``encoder.`` or ``decoder.`` where only that side is meant; one that ends in ``_``
    has no point behind it.
    """

    source: str
    target: str
    words: str
    encoder: str
    decoder: str
    parts: Mapping[str, str]

    def of(self, name: str) -> str:
        path, _, kind = name.rpartition(".")
        if path in ("source", "target", "words"):
            return f"{getattr(self, path)}.{kind}"
        found = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)", path)
        assert found is not None, name
        side, number, part = found.groups()
        called = self.parts.get(f"{side}.{part}", self.parts.get(part, part))
        point = "" if called.endswith("_") else "."
        return f"{getattr(self, side).format(number)}.{called}{point}{kind}"


def give(model: nn.Module, weights: Weights, called: Callable[[str], str]) -> None:
    """Copy weights into a peer's model, where each is ``called`` something.

    Raises:
        KeyError: If the model has no such parameter, or one that is not among them.
    """
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            own.pop(called(name)).copy_(value)
    left = [name for name, one in own.items() if one.requires_grad]
    if left:
        raise KeyError(f"no weights for {', '.join(left)}")


def joined(weights: Weights) -> dict[str, Tensor]:
    """Return weights with ``q``, ``k`` and ``v`` joined to one ``in``, as torch has them."""
    found = {name: one for name, one in weights.items() if not re.search(r"\.[qkv]\.", name)}
    for name in weights:
        if ".q." in name:
            three = [weights[name.replace(".q.", f".{one}.")] for one in "qkv"]
            found[name.replace(".q.", ".in.")] = torch.cat(three)
    return found


def sinusoids(places: int, width: int) -> Tensor:
    """Return sin and cos by turns, ``[place, width]``, computed in double precision."""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(places)[:, None] * 10000.0 ** (-even / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
