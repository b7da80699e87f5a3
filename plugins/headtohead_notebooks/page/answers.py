"""The answers of the experiments in plain words: a sentence, and a line for each comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from headtohead.analysis.contrasts import Contrast, distinct, settings_p, spread
from headtohead.analysis.scores import score_mismatch
from headtohead.analysis.study import Analysis
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.paired_tests import ALPHA, Paired, paired_differences
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show
from headtohead_notebooks.page.descriptions import NOTEBOOKS, Experiment, label

MIN_RATIO = 1.02
"""Smaller ratios of parameters count as equal."""

MAX_EFFECTS = 3
"""Comparisons with a difference that a sentence names."""

MAX_INCONCLUSIVE = 2
"""Inconclusive comparisons that a sentence names; more are only counted."""


@dataclass(frozen=True)
class ComparisonLine:
    """One comparison.

    Attributes:
        description: The comparison, in words.
        metric: The compared metric.
        change: The difference paired by seed; None if there is none, for the given ``reason``.
        reason: Why there is no difference.
        range: Smallest and largest difference among the settings averaged over, if any of them
            differs significantly (paired t-test, Holm over the settings).
        ratio: Parameters of the left side divided by those of the right side.
    """

    description: str
    metric: str
    change: Paired | None = None
    reason: str = ""
    range: tuple[float, float] | None = None
    ratio: float = 1.0

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes 0; not adjusted for the number of comparisons."""
        change = self.change
        if change is None or change.kind in ("single", "none", "identical"):
            return False
        return change.kind == "constant" or change.low * change.high > 0

    @property
    def is_mixed(self) -> bool:
        """Whether a single setting differs significantly, but not the average."""
        return not self.is_significant and self.range is not None

    @property
    def metric_name(self) -> str:
        """The metric in words."""
        return readable(self.metric)

    @property
    def number(self) -> str:
        """The difference with its interval."""
        change, metric = self.change, self.metric
        if change is None:
            return self.reason
        mean = show(change.mean, metric, signed=True)
        if not math.isfinite(change.low):
            return f"{mean}, one seed"
        if change.kind in ("constant", "identical"):
            return f"{mean} in every seed"
        low, high = (show(end, metric, signed=True) for end in (change.low, change.high))
        return f"{mean} (95 % interval {low} to {high})"

    @property
    def clause(self) -> str:
        """The comparison as part of a sentence."""
        if self.change is None:
            return f"{self.description}: {self.reason}"
        result = f"{self.metric_name} {self.number}"
        if self.is_mixed:
            low, high = (show(end, self.metric, signed=True) for end in self.range or ())
            result = f"inconclusive on average, {result}, {low} to {high} in single settings"
        elif not self.is_significant:
            result = f"inconclusive, {result}"
        if max(self.ratio, 1 / self.ratio) > MIN_RATIO:
            result += f", with {self.ratio:.2f} times the parameters"
        return f"{self.description}: {result}"


@dataclass(frozen=True)
class Answer:
    """The answer of an experiment as a sentence, with the comparisons behind it."""

    sentence: str
    lines: tuple[ComparisonLine, ...] = ()


def answer(experiment: Experiment, analysis: Analysis) -> Answer:
    """Return the answer of an experiment from its finished runs."""
    if analysis.added.contrasts:
        return _between_answer(analysis)
    lines = tuple(_compare(comparison, analysis) for comparison in experiment.comparisons)
    return Answer(_sentence(lines), lines)


def axes_key(axes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return a hashable form of axis values."""
    return tuple(sorted((axis, str(value)) for axis, value in axes.items()))


def _sentence(lines: tuple[ComparisonLine, ...]) -> str:
    """Return the first comparison, the largest significant ones, then the inconclusive ones."""
    if not lines:
        return ""
    first, *rest = lines
    significant = [line for line in rest if line.is_significant]
    significant.sort(key=lambda line: -abs(line.change.effect) if line.change else 0.0)
    clauses = [line.clause for line in [first, *significant[: MAX_EFFECTS - 1]]]
    clauses += [line.clause for line in rest if line.is_mixed]
    inconclusive = [line for line in rest if line.change and not line.is_significant and not line.is_mixed]
    if len(inconclusive) > MAX_INCONCLUSIVE:
        clauses.append(f"{len(inconclusive)} other comparisons are inconclusive")
    else:
        clauses += [line.clause for line in inconclusive]
    text = "; ".join(clauses)
    return f"{text[0].upper()}{text[1:]}."


def _compare(comparison: Mapping[str, Any], analysis: Analysis) -> ComparisonLine:
    frames = analysis.frames
    description, metric = str(comparison["description"]), str(comparison.get("metric", analysis.metric))
    pairs = list(_pairs(frames, comparison["left"], comparison["right"]))
    if not pairs:
        return ComparisonLine(description, metric, reason="not part of these runs")
    pairs = list(distinct(frames, pairs))
    if not pairs:
        return ComparisonLine(description, metric, reason="same by construction")
    mismatch = next(filter(None, (score_mismatch(frames, *pair, metric) for pair in pairs)), None)
    if mismatch:
        return ComparisonLine(description, metric, reason=mismatch)
    slugs = {slug for pair in pairs for slug in pair}
    scores = {slug: frames.scores(slug, metric) for slug in slugs}
    seeds, differences = pair_differences(scores, pairs)
    if not seeds:
        done = all((frames.rows(slug)["state"] == "DONE").all() for slug in slugs)
        reason = "has no translations to score" if done else "has no finished runs yet"
        return ComparisonLine(description, metric, reason=reason)
    scale = max(abs(score) for by_seed in scores.values() for score in by_seed.values())
    change = paired_differences(differences.mean(axis=0), scale=scale)
    ends = spread(differences, scale) if settings_p(differences, scale) <= ALPHA else None
    return ComparisonLine(description, metric, change, range=ends, ratio=_parameter_ratio(frames, pairs))


def _pairs(frames: Frames, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield each variant with the left values, and the variant with the right values and the same other axes."""
    by_axes = {axes_key(variant.axes): slug for slug, variant in frames.by_slug.items()}
    for slug, variant in frames.by_slug.items():
        axes = variant.axes
        if all(str(axes.get(axis)) == str(value) for axis, value in left.items()):
            other = by_axes.get(axes_key({**axes, **right}))
            if other is not None:
                yield slug, other


def _parameter_ratio(frames: Frames, pairs: list[tuple[str, str]]) -> float:
    """Return the mean ratio of parameters, or 1 if they are unknown."""
    sizes = {slug: float(variant.counts.total or math.nan) for slug, variant in frames.by_slug.items()}
    ratio = float(np.mean([sizes[left] / sizes[right] for left, right in pairs]))
    return ratio if math.isfinite(ratio) else 1.0


def _between_answer(analysis: Analysis) -> Answer:
    """Return the difference between two notebooks, and the largest effects of single changes."""
    total = analysis.variants.contrasts[0]
    start, end = (_notebook_name(analysis.frames.by_slug[slug].title) for slug in (total.right, total.left))
    added = tuple(_change_line(contrast, f"added to {start}") for contrast in analysis.added.contrasts)
    taken = tuple(_change_line(contrast, f"in {end}") for contrast in analysis.taken.contrasts)
    return Answer(_sentence((_change_line(total, f"from {start} to {end}"), *added, *taken)), (*added, *taken))


def _change_line(contrast: Contrast, where: str) -> ComparisonLine:
    description = f"{label('fields', contrast.axis)} {where}" if contrast.axis else where
    return ComparisonLine(description, contrast.metric, contrast.paired, contrast.reason or contrast.verdict)


def _notebook_name(recipe: str) -> str:
    number = next((notebook.number for notebook in NOTEBOOKS if notebook.recipe == recipe), None)
    return f"notebook {number}" if number else recipe
