"""Positions differ up to an entry's limit; beyond the limit the entry raises and never clamps."""

from __future__ import annotations

import torch
from torch import Tensor

from headtohead.model.attention import overrides
from headtohead.plugins.attention import Attention
from headtohead.plugins.positional import Positional
from headtohead.testing.extremum import Extremum
from headtohead.testing.invariant import invariant
from headtohead.testing.subject import Subject
from headtohead.testing.verdict import Verdict, beyond, does_not_apply, violated, worst

FAR = 6000
"""Number of positions checked where there is no limit; larger than common table sizes."""


@invariant("limit")
def positions_differ_up_to_the_limit_and_raise_beyond(subject: Subject) -> Verdict:
    """Adjacent positions have different vectors up to the limit, and a position beyond it raises."""
    return worst(*(check(subject, role) for check in (_encoding, _style) for role in subject.roles))


@torch.no_grad()
def _encoding(subject: Subject, role: str) -> Verdict:
    positional = subject.positional(role)
    if positional.index(positional.options) == "row":
        return does_not_apply(f"{role}: positions are rows of the batch")
    limit = type(positional).limit(positional.options)
    if limit is not None and _encoding_raises(subject, role, limit):
        return _raises_within(f"{role}: the encoding", limit)
    if limit is not None and not _encoding_raises(subject, role, limit + 1):
        return _computes_beyond(f"{role}: the encoding", limit)
    if limit is None and _encoding_raises(subject, role, FAR):
        return does_not_apply(f"{role}: the encoding raises at {FAR} positions")
    positions = torch.arange(FAR if limit is None else limit).unsqueeze(0)
    vectors = [
        table
        for table in (_embedded(subject, role, positions), _rotated(subject, role, positions))
        if table is not None
    ]
    if not vectors or positions.shape[1] < 2:
        return does_not_apply(f"{role}: the encoding has no vector per position")
    differences = torch.stack([table.diff(dim=1).abs().amax(-1).amax(0) for table in vectors]).amax(0)
    difference, first = float(differences.min()), int(differences.argmin())
    description = f"{role}: positions {first} and {first + 1} are the same: they differ by {difference:.3g}"
    return beyond(Extremum(difference, description), f"{role}: smallest difference between two adjacent positions")


def _encoding_raises(subject: Subject, role: str, count: int) -> bool:
    """Return whether a hook of the encoding raises an exception at ``count`` positions."""
    positional = subject.positional(role)
    positions = torch.arange(count).unsqueeze(0)
    try:
        _embedded(subject, role, positions)
        _rotated(subject, role, positions)
        if overrides(positional, Positional, "bias"):
            # The first and the last query have every distance.
            positional.bias(positions[:, [0, -1]], positions, role, 0)
    except Exception:
        return True
    return False


def _embedded(subject: Subject, role: str, positions: Tensor) -> Tensor | None:
    """Return the vectors that are added to embeddings, ``[member, position, width]``, or None."""
    table = subject.positional(role).embed(positions, role)
    return None if table is None else table.expand(-1, -1, positions.shape[1], -1)[:, 0].double()


def _rotated(subject: Subject, role: str, positions: Tensor) -> Tensor | None:
    """Return a fixed query rotated to every position, ``[member, position, width]``, or None."""
    positional, geometry = subject.positional(role), subject.attention(role).context.geometry
    if not (overrides(positional, Positional, "rotate") and geometry.key_width):
        return None
    query = torch.linspace(0.5, 1.5, geometry.key_width, dtype=torch.float64)
    x = query.expand(len(subject.seeds), 1, 1, positions.shape[1], -1).clone()
    rotated = positional.rotate(x, positions, role)
    return None if torch.equal(rotated, x) else rotated[:, 0, 0]


def _style(subject: Subject, role: str) -> Verdict:
    style = subject.attention(role).style
    limit = type(style).limit(style.options)
    if limit is None or not overrides(style, Attention, "scores"):
        return does_not_apply(f"{role}: the style has no limit")
    if _style_raises(subject, style, limit):
        return _raises_within(f"{role}: the style", limit)
    if not _style_raises(subject, style, limit + 1):
        return _computes_beyond(f"{role}: the style", limit)
    return Verdict("holds", 0.0, f"{role}: positions beyond {limit} raise an exception")


def _style_raises(subject: Subject, style: Attention, count: int) -> bool:
    """Return whether a style's scores raise an exception at ``count`` positions."""
    geometry, positions = style.context.geometry, torch.arange(count).unsqueeze(0)
    q = torch.zeros(len(subject.seeds), 1, geometry.heads, count, geometry.key_width, dtype=torch.float64)
    try:
        style.scores(q, q, positions, positions)
    except Exception:
        return True
    return False


def _raises_within(entry: str, limit: int) -> Verdict:
    return violated(f"{entry} raises an exception at position {limit - 1}, within its limit of {limit}")


def _computes_beyond(entry: str, limit: int) -> Verdict:
    return violated(f"{entry} computes position {limit}, beyond its limit of {limit}, without an error")
