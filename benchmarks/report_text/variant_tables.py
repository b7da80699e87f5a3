"""Rows of tables of variants: the numbers that a cell must have."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from report_text.numbers import METRICS, NUMBER, Expected, interval
from report_text.page import Page


def variant_cell(page: Page, slug: str, column: str, cell: str) -> Sequence[float | None] | None:
    """Return the numbers of a cell in a row of a variant; None for a cell of names."""
    if cell in ("–", ""):
        return []
    if column in METRICS:
        return interval_of_all(page, slug, METRICS[column])
    if slug in page.answer["collapses"]:
        of_collapse = collapse_cell(page, slug, column)
        if of_collapse is not None:
            return of_collapse
    trend = page.answer["training"]["variants"].get(slug, {})
    simple: dict[str, Callable[[], Sequence[float | None]]] = {
        "seeds": lambda: [len(page.scores(slug, page.metric, all_runs=True))],
        "FLOPs per token": lambda: [page.mean_of(slug, "flops_per_token", all_runs=True)],
        "memory, MB": lambda: [page.mean_of(slug, "system/peak_memory_mb", all_runs=True)],
        "time, s": lambda: [page.mean_of(slug, "system/wall_seconds", all_runs=True)],
        "validation loss at 80 % of the steps": lambda: [trend["loss"]],
        "fall until the end": lambda: [trend["fall"], 100 * trend["fall"] / trend["loss"]],
        "standard error over seeds": lambda: [trend["error"]],
        "passes over the data": lambda: [trend["passes"]],
    }
    if column in simple:
        return simple[column]()
    if column == "parameters":
        widened = [None, None] if "configured" in cell else []
        return [page.mean_of(slug, "parameters/total", all_runs=True), *widened]
    if column == "tokens/s":
        stack = [None] * len(NUMBER.findall(cell.partition("stack of")[2].partition(")")[0]))
        mfu = [100 * page.mean_of(slug, "system/mfu", all_runs=True)] * ("MFU" in cell)
        return [page.mean_of(slug, "system/tokens_per_second", all_runs=True), *stack, *mfu]
    return None


def interval_of_all(page: Page, slug: str, metric: str) -> Expected:
    """Return the mean of all runs of a variant, collapsed ones too, with the ends of its interval."""
    return interval([*page.scores(slug, metric, all_runs=True).values()], metric)


def collapse_cell(page: Page, slug: str, column: str) -> Expected | None:
    """Return the numbers of a cell on the collapsed runs of a variant; None for another column."""
    collapse = page.results.collapse(slug, page.metric)
    if column == "collapsed":
        return [collapse["collapsed"], collapse["runs"]]
    if column == "95 % interval of the rate":
        return [100 * collapse["low"], 100 * collapse["high"]]
    if column == "rate against baseline: p":
        return [collapse["p"]]
    if column.endswith(", all runs"):
        return interval_of_all(page, slug, page.metric)
    if column == "without collapsed runs":
        return interval([*page.scores(slug, page.metric).values()], page.metric)
    return None
