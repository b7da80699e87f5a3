"""Order transfer between sizes, and verdicts on all pairs of variants."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np
import pandas as pd
from recompute import ALPHA, half_width, moderated_tests

from report_text.numbers import Expected
from report_text.page import Page


def transfers(page: Page) -> list[Expected]:
    """Return the rows of order transfer, from means and intervals of all pairs of variants at successive sizes."""
    runs = page.runs
    axes = [name for name in ("attention", "positional", "feed_forward") if name in runs]
    sizes = list(dict.fromkeys(runs["size"]))
    rows = []
    for small, large in itertools.pairwise(sizes):
        tables = []
        for size in (small, large):
            own = runs[runs["size"] == size]
            tables.append(own.pivot_table(index=axes, columns="seed", values=page.metric))
        both = [table.loc[tables[0].index].to_numpy() for table in tables]
        row = transfer(both)
        if any(len(contrast["sources"]) > 1 for contrast in page.answer["contrasts"]):
            row[5:] = [None, row[2], None, None]  # results.csv has no values of examples
        rows.append(row)
    return rows


def transfer(both: Sequence[np.ndarray]) -> list[float | None]:
    """Return the cells of a row of order transfer, of scores ``[variant, seed]`` at two sizes."""
    count, seeds = both[0].shape
    pairs = list(itertools.combinations(range(count), 2))
    chosen = np.random.default_rng(0).integers(seeds, size=(2000, seeds))
    small, large = (verdicts_of(scores, pairs) for scores in both)
    order = 0
    orders = np.zeros(len(chosen))
    for a, b in pairs:
        signs = [np.sign((scores[a] - scores[b]).mean()) for scores in both]
        drawn = [np.sign((scores[a] - scores[b])[chosen].mean(axis=1)) for scores in both]
        order += signs[0] == signs[1]
        orders += drawn[0] == drawn[1]
    order_range = 100 * np.quantile(orders / len(pairs), [0.025, 0.975])
    same = int((small == large).sum())
    detected = int((small * large > 0).sum())
    opposite = int((small * large < 0).sum())
    return [count, order, len(pairs), *order_range, same, len(pairs), detected, opposite]


def verdicts_of(scores: np.ndarray, pairs: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return the sign of each pair's difference if its simultaneous interval excludes 0, else 0."""
    family = [{a: 1.0, b: -1.0} for a, b in pairs]
    tests = moderated_tests(pd.DataFrame(scores.T), family)
    counted = sum(bool(test["variance"] or abs(test["difference"]) > 1e-12) for test in tests)
    level = 1 - (1 - ALPHA) ** (1 / max(counted, 1))
    signs = []
    for test in tests:
        half = half_width([(test["variance"], test["degrees"])], level)
        is_detected = abs(test["difference"]) > half
        signs.append(np.sign(test["difference"]) if is_detected else 0.0)
    return np.array(signs)
