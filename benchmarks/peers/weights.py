"""headtohead's initial weights under the parameter names of the other libraries.

The common names are ``source``, ``target`` and ``words``; in a layer such as ``encoder.0``:
``attention.q``, ``.k``, ``.v`` and ``.o``, ``inner`` and ``outer``, ``attention_norm`` and
``feed_forward_norm``; in the decoder also ``cross`` and ``cross_norm``. All end in ``.weight`` or
``.bias``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headtohead.training.loop import StackTraining

Weights = Mapping[str, Tensor]


def initial_weights(training: StackTraining) -> dict[str, Tensor]:
    """Return copies of the weights of the first member by their common names."""
    weights: dict[str, Tensor] = {}
    for name, value in training.model.member_state(0).items():
        weights |= _plain(name, value.cpu())
    return weights


def _plain(name: str, value: Tensor) -> dict[str, Tensor]:
    """Return a tensor by its common names, transposed as in torch and with joint projections split."""
    path, _, kind = name.replace("lm_head", "words").rpartition(".")
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
    return {
        f"{layer}.{letter}.{kind}": part.clone()
        for letter, part in zip(joined[last], parts, strict=True)
    }


@dataclass(frozen=True)
class Names:
    """Parameter names of another library.

    ``encoder`` and ``decoder`` are names of layers, with ``{}`` for the number. ``parts`` maps common
    names to names of the library and defaults to the common name. Its keys may start with
    ``encoder.`` or ``decoder.`` to apply to that side only. No dot follows a name that ends in ``_``.
    """

    source: str
    target: str
    words: str
    encoder: str
    decoder: str
    parts: Mapping[str, str]

    def peer_name(self, name: str) -> str:
        """Return the library's name of a parameter with a common name."""
        path, _, kind = name.rpartition(".")
        if path in ("source", "target", "words"):
            return f"{getattr(self, path)}.{kind}"
        match = re.fullmatch(r"(encoder|decoder)\.(\d+)\.(.+)", path)
        assert match is not None, name
        side, number, part = match.groups()
        peer_part = self.parts.get(f"{side}.{part}", self.parts.get(part, part))
        dot = "" if peer_part.endswith("_") else "."
        return f"{getattr(self, side).format(number)}.{peer_part}{dot}{kind}"


def copy_weights(model: nn.Module, weights: Weights, peer_name: Callable[[str], str]) -> None:
    """Copy weights to a model; ``peer_name`` returns the model's name of a parameter.

    Raises:
        KeyError: The model lacks a parameter, or has a trainable parameter without a weight.
    """
    own = dict(model.named_parameters())
    with torch.no_grad():
        for name, value in weights.items():
            own.pop(peer_name(name)).copy_(value)
    left = [name for name, parameter in own.items() if parameter.requires_grad]
    if left:
        raise KeyError(f"no weights for {', '.join(left)}")


def joined(weights: Weights) -> dict[str, Tensor]:
    """Return weights with ``q``, ``k`` and ``v`` concatenated to ``in``, as in torch."""
    joint = {name: value for name, value in weights.items() if not re.search(r"\.[qkv]\.", name)}
    for name in weights:
        if ".q." in name:
            projections = [weights[name.replace(".q.", f".{letter}.")] for letter in "qkv"]
            joint[name.replace(".q.", ".in.")] = torch.cat(projections)
    return joint


def sinusoids(positions: int, width: int) -> Tensor:
    """Return interleaved sin and cos, ``[position, width]``, computed in double precision."""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(positions)[:, None] * 10000.0 ** (-even / width)
    return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
