"""Effects at the largest size, predicted by a line through those at the smaller sizes or by the last of these.

Means and the variance over seeds are recomputed from ``results.csv``; the variances of examples and of tuning are those
of ``answer.json``, because their values are not committed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from recompute import ALPHA, half_width, table_of, tests_in_blocks

from report_text.numbers import Expected, N, fits, shown
from report_text.page import Page


class Prediction(NamedTuple):
    """A predicted effect, with the error and the half width of its interval."""

    effect: float
    error: float
    half_width: float

    @property
    def is_missed(self) -> bool:
        """Whether the measured effect is outside the interval."""
        return abs(self.error) > self.half_width


def row_problem(page: Page, index: int, cells: Sequence[str]) -> str:
    """Return what is wrong with a row of the table, or an empty text."""
    change = page.answer["size_predictions"]["changes"][index]
    by_line, by_same_effect = both_predictions(page, change)
    if cells[0] != change["change"]:
        return f"expected {change['change']}"
    expected: list[float | None] = [by_line.effect + by_line.error]
    for prediction, cell in zip((by_line, by_same_effect), cells[2:], strict=False):
        half = prediction.half_width
        expected += [prediction.effect, prediction.effect - half, prediction.effect + half]
        if ("missed" in cell) != prediction.is_missed:
            return f"'{cell}', but the interval is {prediction}"
    expected.append(change["seeds"])
    return "" if fits(" ".join(cells[1:]), expected) else f"expected {shown(expected)}"


def summary(page: Page, found: re.Match[str]) -> Expected:
    """Return the numbers of the sentence on both predictions."""
    changes = page.answer["size_predictions"]["changes"]
    predictions = [both_predictions(page, change) for change in changes]
    numbers: list[float] = []
    for own in zip(*predictions, strict=True):
        numbers += [
            sum(prediction.is_missed for prediction in own),
            len(own),
            float(np.mean([abs(prediction.error) for prediction in own])),
            float(np.mean([2 * prediction.half_width for prediction in own])),
        ]
    return numbers


def smaller_sizes(page: Page, found: re.Match[str]) -> Expected:
    """Return the number of sizes but the largest."""
    return [len(page.answer["size_predictions"]["sizes"]) - 1]


MISSES = rf"misses {N} of {N} effects? \(mean absolute error {N}, mean width of an interval {N}\)"
RULES = [
    (rf"The line {MISSES}; the same effect as at .* {MISSES}", summary),
    (rf"the effects at the {N} smaller sizes", smaller_sizes),
]
"""Patterns in the text of the section, with their numbers."""


def both_predictions(page: Page, change: Mapping[str, Any]) -> tuple[Prediction, Prediction]:
    """Return the predictions by a line and of the same effect, recomputed from the runs."""
    sizes = page.answer["size_predictions"]["sizes"]
    baselines = [baseline for _, baseline in change["pairs"]]
    runs = page.runs.drop_duplicates("variant").set_index("variant")
    positions = np.log(runs.loc[baselines, "parameters/non_embedding"].to_numpy(dtype=float))
    # The value of a line is linear in the values that it is fitted to: their weights are the lines of unit vectors.
    of_line = []
    for unit in np.eye(len(sizes) - 1):
        line = np.polynomial.Polynomial.fit(positions[:-1], unit, deg=1)
        of_line.append(-float(line(positions[-1])))
    of_same_effect = [*np.zeros(len(sizes) - 2), -1.0]
    by_line = prediction_of(page, change, "by_line", [*of_line, 1.0])
    return by_line, prediction_of(page, change, "by_same_effect", [*of_same_effect, 1.0])


def prediction_of(
    page: Page, change: Mapping[str, Any], key: str, weights: Sequence[float]
) -> Prediction:
    """Return a prediction. Its error is the sum of the effects of a change at all sizes, with these weights."""
    scores = table_of(page.results.scores(page.metric))
    slugs = [slug for pair in change["pairs"] for slug in pair]
    complete = scores[slugs].dropna().index
    size_of = page.runs.drop_duplicates("variant").set_index("variant")["size"]
    blocks = []
    signed = {}
    for (slug, baseline), weight in zip(change["pairs"], weights, strict=True):
        if weight:
            signed |= {slug: weight, baseline: -weight}
        same_size = [other for other in scores if size_of[other] == size_of[slug]]
        blocks.append(scores.loc[complete, same_size])
    (test,) = tests_in_blocks(blocks, [signed])
    others = [(source["variance"], source["degrees"]) for source in change[key]["sources"][1:]]
    looks = page.answer["looks"]
    level = looks["level"] if looks else ALPHA
    half = half_width([(test["variance"], test["degrees"]), *others], level)
    last, baseline = change["pairs"][-1]
    measured = (scores.loc[complete, last] - scores.loc[complete, baseline]).mean()
    return Prediction(measured - test["difference"], test["difference"], half)
