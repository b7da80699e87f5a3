"""Rows of tables of contrasts: the numbers that a cell must have."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

from recompute import half_width

from report_text.numbers import NUMBER, Expected, N, fits, hedges, shown, value_of
from report_text.page import Page, settings_of
from report_text.possible import has_possible
from report_text.remarks import steps_of


def contrast_cells(
    page: Page, contrast: Mapping[str, Any], columns: Sequence[str], cells: Sequence[str]
) -> str:
    """Return the first column of a row that is not of this contrast, or an empty text."""
    for column, cell in zip(columns, cells, strict=True):
        if column == "verdict" and not has_verdict(contrast, cell):
            return f"verdict '{cell}', expected {contrast['verdict']}"
        expected = expected_of_contrast(page, contrast, column, cell)
        if expected is not None and not fits(page.masked(cell), expected):
            return f"{column} '{cell}', expected {shown(expected)}"
    return ""


def has_verdict(contrast: Mapping[str, Any], cell: str) -> bool:
    """Return whether a cell has the verdict of a contrast, and the largest possible difference if it has one.

    Pages leave out that a difference is larger than the margin; older ones have it.
    """
    words, _, rest = cell.partition(" (")
    is_possible = "could be up to" not in rest or has_possible(contrast, rest)
    verdicts = {contrast["verdict"], contrast["verdict"].removesuffix(" by more than the margin")}
    return words in verdicts and is_possible


def interval_cells(contrast: Mapping[str, Any]) -> Expected:
    """Return the difference of a contrast and the ends of its interval, if it has one."""
    if contrast["difference"] is None:
        return []
    ends = contrast["interval"]
    has_ends = ends is not None and contrast["direction"] != "identical"
    return [contrast["difference"], *([ends["low"], ends["high"]] if has_ends else [])]


def p_cells(p: float | None, cell: str) -> Sequence[float | None]:
    """Return the number of a cell with a p-value."""
    if p is None:
        return []
    return [0.001] if cell.startswith("<") and p < 0.0005 else [p]


def expected_of_contrast(
    page: Page, contrast: Mapping[str, Any], column: str, cell: str
) -> Sequence[float | None] | None:
    """Return the numbers of a cell in a row of a contrast; None for a cell of names."""
    tests = contrast["sensitivity"]
    if column == "difference":
        return interval_cells(contrast)
    if column == "adjusted p":
        return p_cells(contrast["adjusted_p"], cell)
    if column == "paired t p":
        return p_cells(tests["paired_p"], cell)
    if column == "sign-flip p":
        return p_cells(tests["sign_flip_p"], cell)
    if column == "seeds":
        return [len(contrast["seeds"])] if contrast["seeds"] else []
    values = page.differences(contrast)
    if column == "effect":
        return [hedges(values)] if values is not None and cell not in ("–", "") else []
    if column == "difference in validation loss":
        return gap_of(page, contrast)
    readers = {
        "settings": settings,
        "as expected": agreement,
        "in steps of the baseline": steps_of_gap,
        "training seeds": source,
        "examples": source,
        "tuning": source,
        "half the interval": halved,
    }
    if column not in readers:
        return None
    if readers[column] is source:
        return source(page, contrast, column)
    return readers[column](page, contrast, cell)


def source(page: Page, contrast: Mapping[str, Any], name: str) -> Sequence[float | None]:
    """Return the standard error of a source of variance, and its fraction of the squared width in percent."""
    level = page.level_of(contrast)
    total = half_width([(own["variance"], own["degrees"]) for own in contrast["sources"]], level)
    for own in contrast["sources"]:
        if own["name"] == name:
            part = half_width([(own["variance"], own["degrees"])], level)
            percent = 100 * (part / total) ** 2
            return [math.sqrt(own["variance"]), percent if percent >= 0.5 else 1.0]
    return []


def halved(page: Page, contrast: Mapping[str, Any], cell: str) -> Sequence[float | None]:
    """Return the numbers of a cell that halves the interval, if these do and one less does not."""
    level, n = page.level_of(contrast), len(contrast["seeds"])

    def width(seeds: float, factor: float) -> float:
        sources = []
        for own in contrast["sources"]:
            variance, degrees = own["variance"], own["degrees"]
            if own["name"] == "training seeds":
                variance, degrees = variance * n / seeds, degrees + seeds - n
            elif own["name"] == "examples":
                variance, degrees = variance / factor, (degrees + 1) * factor - 1
            sources.append((variance, degrees))
        return half_width(sources, level)

    half = width(n, 1) / 2
    numbers = []
    for text, words in re.findall(
        rf"{N} ((?:times the )?seeds(?: and the examples)?|times the examples)", cell
    ):
        count = value_of(text)
        scaled = {
            "seeds": lambda number: width(number, 1),
            "times the examples": lambda number: width(n, number),
            "times the seeds and the examples": lambda number: width(n * number, number),
        }[words]
        numbers.append(
            count if scaled(count) <= half < scaled(count - 1) or count >= 1000 else math.nan
        )
    return numbers


def steps_of_gap(page: Page, contrast: Mapping[str, Any], cell: str) -> Sequence[float | None]:
    """Return the steps of the baseline that a difference in loss is worth; nothing for a cell without a number."""
    steps = {gap["contrast"]: gap["baseline_steps"] for gap in page.answer["training"]["gaps"]}
    return [steps_of(steps[contrast["name"]], page)] if NUMBER.search(cell) else []


def agreement(page: Page, contrast: Mapping[str, Any], cell: str) -> Sequence[float | None]:
    """Return the expected size where it is printed, and the steps."""
    by = [None] * len(re.findall(rf"(?:by (?:more|less) than|equal to within) {N}", cell))
    return [*by, *([None] if "steps" in cell else [])]


def settings(page: Page, contrast: Mapping[str, Any], cell: str) -> Expected:
    """Return the number of averaged settings, and the range of their differences."""
    count = len(settings_of(contrast))
    if "to" not in cell:
        return [count]
    means = page.setting_means(contrast)
    return [count, min(means), max(means)]


def gap_of(page: Page, contrast: Mapping[str, Any]) -> Expected:
    """Return the difference in validation loss of a contrast."""
    values = page.differences(
        {
            **contrast,
            "metric": "valid/loss",
            "against_metric": None,
            "lengths": None,
            "against_lengths": None,
        }
    )
    return [float(values.mean())] if values is not None else []
