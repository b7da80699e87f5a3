"""The ranking of all pairs of two axes: its answer and its tables.

Each combination is compared with all others, as a family of simultaneous intervals. Where examples are a source of
variance, results.csv has only a part of these intervals, which gives lower limits.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pandas as pd
from recompute import ALPHA, HIGHER, half_width, moderated_tests

from report_text.numbers import Expected, N, agrees, fits, interval, shown, value_of
from report_text.page import Page


def best_first(page: Page) -> list[str]:
    """Return the variants with a score, those with the scores of the best mean in every seed first."""
    means = page.answer["scores"]
    sign = sign_of(page)
    best = max(means, key=lambda slug: sign * page.mean_of(slug, page.metric))
    scores_of_best = page.scores(best, page.metric)

    def key(slug: str) -> tuple[bool, float]:
        is_best = page.scores(slug, page.metric) == scores_of_best
        return not is_best, -sign * page.mean_of(slug, page.metric)

    return sorted(means, key=key)


def sign_of(page: Page) -> int:
    """Return 1 if larger scores are better, else -1."""
    return 1 if page.metric.endswith(HIGHER) else -1


def largest_deficits(page: Page, slug: str) -> tuple[float, bool]:
    """Return how much worse than another variant a variant can be, and whether it is shown to be worse than one.

    The intervals contain the training seeds alone.
    """
    slugs = [*page.answer["scores"]]
    table = pd.DataFrame({own: page.scores(own, page.metric) for own in slugs}).sort_index()
    others = [own for own in slugs if own != slug]
    tests = moderated_tests(table, [{own: 1.0, slug: -1.0} for own in others])
    varied = sum(bool(test["variance"] or abs(test["difference"]) > 1e-12) for test in tests)
    level = 1 - (1 - ALPHA) ** (1 / max(varied, 1))
    largest = 0.0
    is_worse = False
    for test in tests:
        deficit = sign_of(page) * test["difference"]
        half = half_width([(test["variance"], test["degrees"])], level)
        largest = max(largest, deficit + half)
        is_worse = is_worse or deficit - half > 0
    return largest, is_worse


def first_sentence(page: Page, found: re.Match[str]) -> Expected:
    """Return the number of combinations, and the mean of the best with its interval."""
    ranked = best_first(page)
    return [float(len(ranked)), *interval_of(page, ranked[0])]


def second_sentence(page: Page, found: re.Match[str]) -> Sequence[float | None]:
    """Return the number of other combinations, and of those with each verdict in the table of the ranking."""
    counts = Counter(cells[2] for cells in page.rows_of("Ranking"))
    others = len(best_first(page)) - counts["best"] - counts["equal"]
    margin = page.answer["margin"]
    return [others, counts["equivalent"], margin, counts["worse"], counts["undecided"]]


RULES = [
    (
        rf"Of {N} ranked combinations of .* (?:has|share) the (?:highest|lowest) [^,]*, "
        rf"{N}(?: \(95 % interval {N} to {N}\))?",
        first_sentence,
    ),
    (
        rf"Of the other {N}: (?:{N} equivalent to the best within {N}(?: \([^)]*\))?, )?"
        rf"{N} worse than another combination, {N} undecided",
        second_sentence,
    ),
]
"""Patterns in the answer of a ranking, with their numbers."""


def interval_of(page: Page, slug: str) -> Expected:
    """Return the mean of a variant with the ends of its interval."""
    return interval([*page.scores(slug, page.metric).values()], page.metric)


def ranking_problem(page: Page, index: int, cells: Sequence[str]) -> str:
    """Return what is wrong with a row of the ranking, or an empty text."""
    ranked = best_first(page)
    slug = ranked[index]
    mean = interval_of(page, slug)
    if not fits(cells[1], mean):
        return f"'{cells[1]}', expected {shown(mean)}"
    if not re.fullmatch(N, cells[3]):
        return ""
    largest, is_worse = largest_deficits(page, slug)
    printed = value_of(cells[3])
    has_examples = any(len(own["sources"]) > 1 for own in page.answer["contrasts"])
    is_right = agrees(cells[3], largest) or (has_examples and printed >= largest)
    if not is_right:
        return f"worse by at most {cells[3]}, expected {'at least ' * has_examples}{largest:.6g}"
    return "" if cells[2] in verdicts(page, index, printed, is_worse) else f"verdict '{cells[2]}'"


def verdicts(page: Page, index: int, deficit: float, is_worse: bool) -> set[str]:
    """Return the verdicts that a row of the ranking can have."""
    ranked = best_first(page)
    scores = [page.scores(ranked[row], page.metric) for row in (0, index)]
    if index == 0:
        return {"best"}
    if scores[0] == scores[1]:
        return {"equal"}
    if page.answer["margin"] and deficit < page.answer["margin"]:
        return {"equivalent"}
    if any(len(own["sources"]) > 1 for own in page.answer["contrasts"]):
        return {"undecided", "worse"} if is_worse else {"undecided"}
    return {"worse"} if is_worse else {"undecided"}


def pair_problem(page: Page, index: int, cells: Sequence[str]) -> str:
    """Return what is wrong with a row of the table of all pairs, or an empty text."""
    rows = page.runs[page.runs["variant"].isin(page.answer["scores"])]
    means = rows.pivot_table(index=page.axes[0], columns=page.axes[1], values=page.metric)
    by_row = sign_of(page) * means.median(axis=1)
    by_column = sign_of(page) * means.median(axis=0)
    row = by_row.sort_values(ascending=False, kind="stable").index[index]
    columns = by_column.sort_values(ascending=False, kind="stable").index
    for column, cell in zip(columns, cells[1:], strict=True):
        of_pair = rows[(rows[page.axes[0]] == row) & (rows[page.axes[1]] == column)]
        if of_pair.empty and cell == "–":
            continue
        expected = [math.nan]
        if not of_pair.empty:
            expected = interval(np.asarray(of_pair[page.metric].dropna()).tolist(), page.metric)
        if not fits(cell, expected):
            return f"'{cell}', expected {shown(expected)}"
    return ""
