"""Whether a state dict fits a recipe: which tensor is which, the sizes they show, what is amiss."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from math import prod

from torch import Tensor

from headtohead.plugins.recipe import SUFFIXES, Checkpoint, Tensors

SHOWN = 5
"""Names of each kind of fault that a message lists."""


@dataclass(frozen=True)
class Found:
    """A tensor of the state dict, told by its name: which module, which part of it, which place."""

    tensors: Tensors
    suffix: str
    layer: int
    head: int

    @property
    def ours(self) -> str:
        """The part of the model that it belongs to, numbers filled in."""
        return self.tensors.ours.format(layer=self.layer, head=self.head)

    @property
    def theirs(self) -> str:
        """Its name in the state dict."""
        return self.tensors.theirs.format(layer=self.layer, head=self.head) + self.suffix

    @property
    def shape(self) -> list[str]:
        """Its shape in words; a bias is as long as its weight is high."""
        words = self.tensors.shape.split()
        return words[:1] if self.suffix == ".bias" else words


@dataclass(frozen=True)
class Faults:
    """What does not fit; all three are empty where everything does."""

    missing: list[str]
    extra: list[str]
    wrong: list[str]

    def __len__(self) -> int:
        return len(self.missing) + len(self.extra) + len(self.wrong)

    def __str__(self) -> str:
        kinds = {"missing": self.missing, "unknown": self.extra, "wrong shape": self.wrong}
        return "; ".join(f"{kind}: {_listed(names)}" for kind, names in kinds.items() if names)


@dataclass(frozen=True)
class Fit:
    """A state dict read as one form of a recipe's checkpoints."""

    checkpoint: Checkpoint
    sizes: Mapping[str, int]
    faults: Faults
    parts: Mapping[str, Tensor] = field(repr=False)
    """Tensors by part of the model, ``.weight`` or ``.bias`` behind; empty where it does not fit"""


def fit(state: Mapping[str, Tensor], checkpoint: Checkpoint) -> Fit:
    """Read a state dict as one form of a checkpoint."""
    found = {name: one for name in state if (one := _find(name, checkpoint.tensors)) is not None}
    counts = _counts(found.values(), checkpoint.tensors)
    expected = {one.theirs: one for one in _expected(checkpoint.tensors, counts)}
    known = {name: one for name, one in expected.items() if name in state}
    sizes = counts | _sizes(state, known)
    faults = Faults(
        missing=[name for name in expected if name not in state],
        extra=[name for name in state if name not in expected],
        wrong=[fault for name, one in known.items() if (fault := _wrong(state[name], one, sizes))],
    )
    parts = {} if len(faults) else {one.ours + one.suffix: state[n] for n, one in known.items()}
    return Fit(checkpoint, sizes, faults, parts)


def _find(name: str, tensors: Iterable[Tensors]) -> Found | None:
    for one in tensors:
        pattern = re.escape(one.theirs).replace(r"\{layer\}", r"(?P<layer>0|[1-9]\d*)")
        pattern = pattern.replace(r"\{head\}", r"(?P<head>0|[1-9]\d*)")
        for suffix in SUFFIXES[one.kind]:
            match = re.fullmatch(pattern + re.escape(suffix), name)
            if match:
                numbers = {"layer": 0, "head": 0} | {k: int(v) for k, v in match.groupdict().items()}
                return Found(one, suffix, **numbers)
    return None


def _counts(found: Iterable[Found], tensors: Iterable[Tensors]) -> dict[str, int]:
    """Count layers and heads, by how many different numbers stand in the names: at least one."""
    numbers: dict[str, set[int]] = {"encoder_layers": set(), "decoder_layers": set()}
    if any("{head}" in one.theirs for one in tensors):
        numbers["heads"] = set()
    for one in found:
        if "{layer}" in one.tensors.theirs:
            numbers[f"{one.tensors.ours.partition('.')[0]}_layers"].add(one.layer)
        if "{head}" in one.tensors.theirs:
            numbers["heads"].add(one.head)
    return {name: max(1, len(seen)) for name, seen in numbers.items()}


def _expected(tensors: Iterable[Tensors], counts: Mapping[str, int]) -> Iterator[Found]:
    for one in tensors:
        stack = f"{one.ours.partition('.')[0]}_layers"
        layers = counts[stack] if "{layer}" in one.theirs else 1
        heads = counts["heads"] if "{head}" in one.theirs else 1
        for layer in range(layers):
            for head in range(heads):
                for suffix in SUFFIXES[one.kind]:
                    yield Found(one, suffix, layer, head)


def _sizes(state: Mapping[str, Tensor], known: Mapping[str, Found]) -> dict[str, int]:
    """Return the size that each word has most often."""
    seen: dict[str, Counter[int]] = {}
    for name, one in known.items():
        shape = state[name].shape
        if len(shape) == len(one.shape):
            for word, size in zip(one.shape, shape, strict=True):
                if word.isidentifier():
                    seen.setdefault(word, Counter())[size] += 1
    return {word: sizes.most_common(1)[0][0] for word, sizes in seen.items()}


def _wrong(tensor: Tensor, one: Found, sizes: Mapping[str, int]) -> str | None:
    if not tensor.is_floating_point():
        return f"{one.theirs} of {str(tensor.dtype).removeprefix('torch.')}"
    expected = [_size(word, sizes) for word in one.shape]
    if list(tensor.shape) == expected:
        return None
    shown = ", ".join("?" if size is None else str(size) for size in expected)
    return f"{one.theirs} {list(tensor.shape)} for [{shown}]"


def _size(word: str, sizes: Mapping[str, int]) -> int | None:
    factors = [int(one) if one.isdigit() else sizes.get(one) for one in word.split("*")]
    known = [one for one in factors if one is not None]
    return prod(known) if len(known) == len(factors) else None


def _listed(names: list[str]) -> str:
    rest = len(names) - SHOWN
    return ", ".join(names[:SHOWN]) + (f" and {rest} more" if rest > 0 else "")
