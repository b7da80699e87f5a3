"""The lines of a report's tables: plain text, ready to be printed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Score:
    """A mean with its interval, as text; ``reason`` says why there is none."""

    mean: str
    interval: str = ""
    reason: str = ""


@dataclass(frozen=True)
class Costs:
    """The fairness columns that stand beside every score."""

    parameters: str
    flops: str
    speed: str
    memory: str
    seconds: str
    inner: str
    widened: str


@dataclass(frozen=True)
class VariantRow:
    """One line of the table of variants."""

    slug: str
    title: str
    colour: str
    baseline: bool
    score: Score
    n: int
    difference: Score
    verdict: str
    word: str
    reason: str
    holm_p: str
    sign_flip_p: str
    effect: str
    costs: Costs
    note: str
    faults: tuple[str, ...]


@dataclass(frozen=True)
class FaultRow:
    """A choice that is a fault, what follows from it, and who has it."""

    name: str
    field: str
    says: str
    variants: str


@dataclass(frozen=True)
class FactorRow:
    """One line of the table of factor contrasts; ``alone`` is the same on unpadded scores."""

    axis: str
    left: str
    right: str
    difference: Score
    alone: Score
    alone_difference: str
    spread: str
    verdict: str
    word: str
    reason: str
    holm_p: str
    sign_flip_p: str
    effect: str
    settings: int


@dataclass(frozen=True)
class AloneRow:
    """Batched and one at a time, side by side."""

    title: str
    colour: str
    batched: Score
    alone: Score
    difference: Score
    loss: Score
    loss_alone: Score
    ceiling: str
    suspect: bool
