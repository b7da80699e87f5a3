"""The answers of the experiments in plain words: a sentence, and a line for each comparison."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from headtohead.analysis.contrasts import distinct, factor_differences, score_mismatch, settings_p, spread
from headtohead.analysis.shapley import PathAnalysis, Share
from headtohead.analysis.study import Analysis
from headtohead.statistics.paired_tests import ALPHA, Paired, paired_differences
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import readable, show
from headtohead.tools.notebooks.choices import word
from headtohead.tools.notebooks.known import NOTEBOOKS, Experiment

LEAST_RATIO = 1.02
"""Parameters that differ by less are called equal."""

MOST_CLAUSES = 3
"""Comparisons that a sentence gives with their numbers."""

MOST_SILENT = 2
"""Comparisons without a difference that a sentence gives with their numbers."""

MOST_SHARES = 3
"""Choices that the answer of a path names."""


@dataclass(frozen=True)
class Line:
    """One comparison.

    Attributes:
        says: What is compared, in plain words.
        metric: What in.
        change: The difference, paired by seed; None where there is none, for the ``reason``.
        reason: Why there is no difference.
        range: Smallest and largest difference among the settings averaged over, where one of them
            has a difference of its own (paired t-test, Holm over the settings).
        ratio: Parameters of the left side, in those of the right.
    """

    says: str
    metric: str
    change: Paired | None = None
    reason: str = ""
    range: tuple[float, float] | None = None
    ratio: float = 1.0

    @property
    def found(self) -> bool:
        """Whether the interval leaves out 0; not adjusted for the number of comparisons."""
        change = self.change
        if change is None or change.kind in ("single", "none", "identical"):
            return False
        return change.kind == "constant" or change.low * change.high > 0

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
        """The comparison as a part of a sentence."""
        if self.change is None:
            return f"{self.says}: {self.reason}"
        cost = f", with {self.ratio:.2f} times the parameters" if self.costs else ""
        if self.mixed:
            low, high = (show(end, self.metric, signed=True) for end in self.range or ())
            return (
                f"{self.says}: inconclusive on average, {self.metric_name} {self.number}, "
                f"{low} to {high} in single settings{cost}"
            )
        if not self.found:
            return f"{self.says}: no difference shows, {self.metric_name} {self.number}{cost}"
        return f"{self.says}: {self.metric_name} {self.number}{cost}"

    @property
    def mixed(self) -> bool:
        """Whether no difference is found on average, but one in a single setting."""
        return not self.found and self.range is not None

    @property
    def costs(self) -> bool:
        """Whether the sides differ in their number of parameters."""
        return max(self.ratio, 1 / self.ratio) > LEAST_RATIO


@dataclass(frozen=True)
class Answer:
    """A sentence, and what it is put together from."""

    sentence: str
    lines: tuple[Line, ...] = ()


def answer(experiment: Experiment, analysis: Analysis) -> Answer:
    """Answer the question of an experiment as far as its runs tell."""
    if analysis.path is not None:
        return _path(analysis.path)
    lines = tuple(_line(one, analysis) for one in experiment.compares)
    return Answer(_sentence(lines), lines)


def _sentence(lines: tuple[Line, ...]) -> str:
    """Tell the first comparison, then the largest that show, and name those that do not."""
    if not lines:
        return ""
    first, *rest = lines
    found = [line for line in rest if line.found]
    found.sort(key=lambda line: -abs(line.change.effect) if line.change else 0.0)
    told = [first, *found[: MOST_CLAUSES - 1]]
    parts = [line.clause for line in told]
    parts += [line.clause for line in rest if line.mixed]
    silent = [line for line in rest if line.change and not line.found and not line.mixed]
    if len(silent) > MOST_SILENT:
        parts.append(f"no difference shows in {len(silent)} other comparisons")
    else:
        parts += [line.clause for line in silent]
    text = "; ".join(parts)
    return f"{text[0].upper()}{text[1:]}."


def _line(compared: Mapping[str, Any], analysis: Analysis) -> Line:
    frames = analysis.frames
    metric = str(compared.get("metric", analysis.metric))
    pairs = list(_pairs(frames, compared["left"], compared["right"]))
    draft = Line(str(compared["says"]), metric)
    if not pairs:
        return Line(draft.says, metric, reason="not part of these runs")
    pairs = list(distinct(frames, pairs))
    if not pairs:
        return Line(draft.says, metric, reason="cannot change any result (the two are equal)")
    mismatch = next(filter(None, (score_mismatch(frames, *pair, metric) for pair in pairs)), None)
    if mismatch:
        return Line(draft.says, metric, reason=mismatch)
    slugs = {slug for pair in pairs for slug in pair}
    scores = {slug: frames.scores(slug, metric) for slug in slugs}
    seeds, differences = factor_differences(scores, pairs)
    if not seeds:
        done = all((frames.rows(slug)["state"] == "DONE").all() for slug in slugs)
        reason = "has no translations to score" if done else "no finished runs to compare yet"
        return Line(draft.says, metric, reason=reason)
    scale = max(abs(value) for one in scores.values() for value in one.values())
    change = paired_differences(differences.mean(axis=0), scale=scale)
    differ = settings_p(differences, scale) <= ALPHA
    ends = spread(differences, scale) if differ else None
    return Line(draft.says, metric, change, range=ends, ratio=_ratio(frames, pairs))


def _pairs(frames: Frames, left: Mapping[str, Any], right: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield variants with the left values beside those that have the right ones in their place."""
    by_axes = {_key(variant.axes): slug for slug, variant in frames.by_slug.items()}
    for slug, variant in frames.by_slug.items():
        axes = variant.axes
        if all(str(axes.get(axis)) == str(value) for axis, value in left.items()):
            other = by_axes.get(_key({**axes, **right}))
            if other is not None:
                yield slug, other


def _key(axes: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((axis, str(value)) for axis, value in axes.items()))


def _ratio(frames: Frames, pairs: list[tuple[str, str]]) -> float:
    """Return the mean ratio of parameters."""
    sizes = {slug: float(variant.parameters.total or math.nan) for slug, variant in frames.by_slug.items()}
    ratio = float(np.mean([sizes[left] / sizes[right] for left, right in pairs]))
    return ratio if math.isfinite(ratio) else 1.0


def _path(path: PathAnalysis) -> Answer:
    whole = path.distance.paired
    lines = tuple(_share(share) for share in path.known)
    start, end = map(_named, path.names)
    if whole is None:
        return Answer(f"The distance from {start} to {end} is not known yet.", lines)
    metric = path.distance.metric
    parts = [
        f"From {start} to {end} {readable(metric)} changes by {Line('', metric, whole).number}",
        *_accounts(path, lines, whole.mean),
    ]
    nothing = sum(not line.found and not line.mixed for line in lines)
    if 0 < nothing < len(lines):
        parts.append(f"{nothing} of the {len(lines)} choices made no difference that shows")
    return Answer("; ".join(parts) + ".", lines)


def _share(share: Share) -> Line:
    reason = "changes no result" if share.nothing else share.contrast.reason or ""
    ends = share.contrast.spread if share.contrast.settings_differ else None
    return Line(_choices(share), share.contrast.metric, share.contrast.paired, reason, ends)


def _accounts(path: PathAnalysis, lines: Sequence[Line], whole: float) -> Iterator[str]:
    """Yield which choice accounts for most of the distance, and which come next."""
    along = [
        (share, line) for share, line in zip(path.known, lines, strict=True) if line.found and share.mean * whole > 0
    ]
    if not along:
        yield "no single choice stands out from chance"
        return
    (share, first), *rest = along
    part = "most of it" if path.is_most(share) else "the largest part"
    yield f"{part} is one choice: {first.says}, {first.number}"
    if rest:
        others = [f"{line.says} {line.number}" for _, line in rest[: MOST_SHARES - 1]]
        yield f"next: {', '.join(others)}"


def _choices(share: Share) -> str:
    return " with ".join(word("fields", name) for name in share.choices)


def _named(recipe: str) -> str:
    number = next((one.number for one in NOTEBOOKS if one.recipe == recipe), None)
    return f"notebook {number}" if number else recipe
