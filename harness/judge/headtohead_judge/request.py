"""The options of a call of the command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

DIRECTIONS = ("better", "worse", "equivalent", "no difference shown", "identical", "no verdict")
"""Verdicts without a size."""

SIZES = tuple(
    f"{direction} {size} the margin"
    for direction in ("better", "worse")
    for size in ("by more than", "by less than")
)
"""Verdicts with a size."""

NEED_MARGIN = ("equivalent", *SIZES)
"""Verdicts that exist with a margin only."""


@dataclass(frozen=True)
class Request:
    """The options of a call, by their names in the command line; see its help.

    ``is_at_most_chosen`` is whether the call has ``--at-most``, which has a default.
    """

    source: str | None
    baseline: str | None
    candidates: tuple[str, ...]
    metric: str | None
    margin: float | None
    higher_is_better: bool | None
    unpaired: bool
    looks: int | None
    at_most: int
    is_at_most_chosen: bool
    accept: tuple[str, ...]
    variant_columns: tuple[str, ...]
    seed_column: str
    step_column: str | None
    sd: float | None
    experiment: str | None
    answer: Path | None
    ledger_file: Path | None
    status: bool
    same: bool
    steps: tuple[float, ...]
    form: str
