"""The answers of the experiments in plain words: a sentence, and a line for each comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headtohead.analysis.contrasts import distinct, score_mismatch, settings_p, spread
from headtohead.analysis.shapley import ChoiceGroup, PathAnalysis, ShapleyValue
from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.statistics.differences import pair_differences
from headtohead.statistics.paired_tests import ALPHA, Paired, paired_differences
from headtohead.statistics.shapley import SampledDifference
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show
from headtohead.tools.notebooks.descriptions import NOTEBOOKS, Experiment, label

MIN_RATIO = 1.02
"""Smaller ratios of parameters count as equal."""

MAX_EFFECTS = 3
"""Comparisons with a difference that a sentence names."""

MAX_INCONCLUSIVE = 2
"""Inconclusive comparisons that a sentence names; more are only counted."""

MAX_SHARES = 3
"""Choices that the answer of a path names."""


@dataclass(frozen=True)
class ComparisonLine:
    """One comparison.

    Attributes:
        description: The comparison, in words.
        metric: The compared metric.
        change: The difference paired by seed, for a choice of a path over seeds and permutations; None if there is
            none, for the given ``reason``.
        reason: Why there is no difference.
        range: Smallest and largest difference among the settings averaged over, if any of them
            differs significantly (paired t-test, Holm over the settings).
        ratio: Parameters of the left side divided by those of the right side.
    """

    description: str
    metric: str
    change: Paired | SampledDifference | None = None
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
    if analysis.path is not None:
        return _path_answer(analysis.path)
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
    sizes = {slug: float(variant.parameters.total or math.nan) for slug, variant in frames.by_slug.items()}
    ratio = float(np.mean([sizes[left] / sizes[right] for left, right in pairs]))
    return ratio if math.isfinite(ratio) else 1.0


def _path_answer(path: PathAnalysis) -> Answer:
    whole = path.total.paired
    lines = tuple(_share_line(share) for share in path.known)
    start, end = map(_notebook_name, path.names)
    if whole is None:
        return Answer(f"The difference between {start} and {end} is not known yet.", lines)
    metric = path.total.metric
    number = ComparisonLine("", metric, whole).number
    parts = [f"From {start} to {end} {readable(metric)} changes by {number}", *_largest_shares(path, lines, whole.mean)]
    inconclusive = sum(not line.is_significant and not line.is_mixed for line in lines)
    if 0 < inconclusive < len(lines):
        parts.append(f"{inconclusive} of the {len(lines)} choices are inconclusive")
    return Answer("; ".join(parts) + ".", lines)


def _group_line(group: ChoiceGroup, metric: str) -> ComparisonLine:
    names = [label("fields", name) for name in group.choices]
    description = f"{listed(names)}, which work only together"
    return ComparisonLine(description, metric, group.sampled)


def _share_line(share: ShapleyValue) -> ComparisonLine:
    description = " with ".join(label("fields", name) for name in share.choices)
    reason = "changes no result" if share.equal_by_construction else share.contrast.reason or ""
    ends = share.contrast.spread if share.contrast.settings_differ else None
    return ComparisonLine(description, share.contrast.metric, share.sampled, reason, ends)


def _largest_shares(path: PathAnalysis, lines: Sequence[ComparisonLine], whole: float) -> Iterator[str]:
    """Yield the choice with the largest share of the difference, then the choices with the next shares."""
    grouped = {name for group in path.groups for name in group.choices}
    parts: list[tuple[ChoiceGroup | ShapleyValue, ComparisonLine]] = [
        (group, _group_line(group, path.total.metric)) for group in path.groups
    ]
    parts += [(share, line) for share, line in zip(path.known, lines, strict=True) if not set(share.choices) <= grouped]
    significant = [
        (part, line) for part, line in parts if line.is_significant and line.change and line.change.mean * whole > 0
    ]
    significant.sort(key=lambda entry: -abs(entry[1].change.mean) if entry[1].change else 0.0)
    if not significant:
        yield "no single choice has a significant share"
        return
    (largest, first), *rest = significant
    part = "most of it" if path.exceeds(largest, 0.5) else "the largest part"
    yield f"{part} is due to {first.description}, {first.number}"
    if rest:
        others = [f"{line.description} {line.number}" for _, line in rest[: MAX_SHARES - 1]]
        yield f"next: {', '.join(others)}"


def _notebook_name(recipe: str) -> str:
    number = next((notebook.number for notebook in NOTEBOOKS if notebook.recipe == recipe), None)
    return f"notebook {number}" if number else recipe
