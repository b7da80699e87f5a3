"""Effects at the largest size, predicted by a line through those at the smaller sizes or by the last of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd
from recompute import ALPHA, half_width, moderated_tests

from report_text.numbers import Expected, N
from report_text.order_transfer import AXES
from report_text.page import Page


class Effect(NamedTuple):
    """An effect, or the error of one, with the half width of its 95 % interval."""

    value: float
    half_width: float


def predictions(page: Page) -> list[Expected]:
    """Return the rows: the measured effect, then effect and interval of each prediction.

    Ends of intervals are None where the report also has the variance of examples, whose values are not committed.
    """
    rows = []
    for measured, by_line, by_same_effect in _changes(page):
        row: list[float | None] = [measured]
        for effect, half in (by_line, by_same_effect):
            ends = [None, None] if _has_examples(page) else [effect - half, effect + half]
            row += [effect, *ends]
        rows.append(row)
    return rows


def smaller_sizes(page: Page, found: re.Match[str]) -> Expected:
    """Return the number of sizes but the largest."""
    return [page.runs["size"].nunique() - 1]


def summary_of_line(page: Page, found: re.Match[str]) -> Expected:
    """Return the counts, the mean error and the mean width of the predictions by a line."""
    return _summary(page, 1)


def summary_of_same_effect(page: Page, found: re.Match[str]) -> Expected:
    """Return the counts, the mean error and the mean width of the predictions of the same effect."""
    return _summary(page, 2)


RULES = [
    (
        rf"By the line: {N} of {N} effects inside, mean absolute error {N}, mean width of an interval {N}",
        summary_of_line,
    ),
    (
        rf"As at .*: {N} of {N} effects inside, mean absolute error {N}, mean width of an interval {N}",
        summary_of_same_effect,
    ),
    (rf"the effects at the {N} smaller sizes", smaller_sizes),
]
"""Patterns in the text of the section, with their numbers."""


def _summary(page: Page, index: int) -> Expected:
    """Return how many effects are inside, of how many, their mean absolute error and the mean width of intervals."""
    errors = []
    halves = []
    for change in _changes(page):
        effect, half = change[index]
        errors.append(abs(change[0] - effect))
        halves.append(half)
    inside = sum(error <= half for error, half in zip(errors, halves, strict=True))
    mean_error = float(np.mean(errors))
    if _has_examples(page):
        return [None, len(errors), mean_error, None]
    return [inside, len(errors), mean_error, 2 * float(np.mean(halves))]


def _has_examples(page: Page) -> bool:
    """Return whether intervals of the report have more sources than the seeds."""
    return any(len(contrast["sources"] or []) > 1 for contrast in page.answer["contrasts"])


def _changes(page: Page) -> list[tuple[float, Effect, Effect]]:
    """Return the measured effect of each change, then both predictions of it."""
    runs = page.runs
    sizes = list(dict.fromkeys(runs["size"]))
    slugs = _slugs(runs)
    (baseline,) = slugs.index[(slugs == page.baseline).any(axis=1)]
    parameters = runs.drop_duplicates("variant").set_index("variant")["parameters/non_embedding"]
    positions = np.log(parameters[slugs.loc[baseline]].to_numpy(dtype=float))
    # The value of a line is linear in the values that it is fitted to: their weights are the lines of unit vectors.
    weights = []
    for unit in np.eye(len(sizes) - 1):
        line = np.polynomial.Polynomial.fit(positions[:-1], unit, deg=1)
        weights.append(-float(line(positions[-1])))
    table = runs.pivot_table(index="seed", columns="variant", values=page.metric)
    of_line = _sums(table, slugs, baseline, [*weights, 1.0])
    of_same_effect = _sums(table, slugs, baseline, [*np.zeros(len(sizes) - 2), -1.0, 1.0])
    changes = []
    for key, line_error, same_error in zip(
        slugs.index.drop(baseline), of_line, of_same_effect, strict=True
    ):
        effect = (
            table[slugs.at[key, sizes[-1]]].mean() - table[slugs.at[baseline, sizes[-1]]].mean()
        )
        by_line = Effect(effect - line_error.value, line_error.half_width)
        by_same_effect = Effect(effect - same_error.value, same_error.half_width)
        changes.append((effect, by_line, by_same_effect))
    return changes


def _slugs(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the variant of each combination of the other axes, in their order, at each size."""
    axes = [axis for axis in AXES if axis in runs]
    keys = runs[axes].astype(str).agg("|".join, axis=1)
    variants = runs.assign(key=keys).drop_duplicates("variant")
    slugs = variants.pivot(index="key", columns="size", values="variant")
    return slugs.loc[list(dict.fromkeys(keys)), list(dict.fromkeys(runs["size"]))]


def _sums(
    table: pd.DataFrame, slugs: pd.DataFrame, baseline: str, weights: Sequence[float]
) -> list[Effect]:
    """Return the weighted sum over sizes of the effects of each change, with the half width of its interval."""
    family = []
    for key in slugs.index.drop(baseline):
        signed = {}
        for slug, of_baseline, weight in zip(
            slugs.loc[key], slugs.loc[baseline], weights, strict=True
        ):
            if weight:
                signed |= {slug: weight, of_baseline: -weight}
        family.append(signed)
    sums = []
    for test in moderated_tests(table, family):
        half = half_width([(test["variance"], test["degrees"])], ALPHA)
        sums.append(Effect(test["difference"], half))
    return sums
