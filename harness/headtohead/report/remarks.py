"""Remarks that qualify the answer: one list for the page, the answer file and the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from headtohead.analysis.convergence import LOSS, NO_LOSS, NOT_JUDGED, Convergence, StepGap
from headtohead.analysis.scores import same_data_set
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.config.labels import listed
from headtohead.report.section import contrast_name
from headtohead.storage import states
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import counted, higher_is_better, readable, show, span

MOST_NAMED = 3
"""Maximum number of variants that a remark names."""

INFORMATIVE_BOUND = 0.9
"""Maximum bag-of-words upper bound that is reported: hardly any model reaches a higher bound."""

POINTS = {"nearest_neighbour": "nearest-neighbour translation", "majority": "the most frequent target"}
"""The reference points that a model is expected to exceed."""

Severity = Literal["warning", "caution", "note"]
"""A warning questions the results, a caution limits what they show, a note describes the study."""


@dataclass(frozen=True)
class Remark:
    """A sentence that qualifies the answer; ``variant`` is the slug of the only variant that it is about."""

    severity: Severity
    text: str
    variant: str | None = None


def remarks(analysis: Analysis) -> tuple[Remark, ...]:
    """Return the remarks on a study, the most severe first."""
    return (
        *(Remark("warning", text) for text in _warnings(analysis)),
        *(Remark("caution", text) for text in _cautions(analysis)),
        *_equal(analysis),
        *(Remark("note", text) for text in _notes(analysis)),
    )


def looks_line(status: LooksStatus) -> str:
    """Return the number of the look, the undecided contrasts, and the next look or why there is none."""
    number = sum(seeds <= status.seeds for seeds in status.looks.seeds)
    return f"look {number} of {len(status.looks.seeds)}, {status.seeds} seeds: {_outcome(status)}"


def gap_steps(gap: StepGap, found: Convergence) -> str:
    """Return the steps of a gap with two significant digits, at most the trained steps."""
    if gap.steps > found.total_steps:
        return f"more than {found.total_steps:,} steps"
    return "less than a step" if gap.steps < 0.5 else f"about {float(f'{gap.steps:.2g}'):,.0f} steps"


def _warnings(analysis: Analysis) -> Iterator[str]:
    frames, metric = analysis.frames, analysis.metric
    least, largest = span(metric)
    worst, best = (least, max) if higher_is_better(metric) else (largest, min)
    values = [value for slug in frames.by_slug for value in frames.scores(slug, metric).values()]
    if values and all(value == worst for value in values):
        yield (
            f"Every run has the worst possible {readable(metric)}, {show(worst, metric)}, so this metric cannot "
            f"compare the variants. {_remedy(analysis, worst)}"
        )
    margin = frames.record.margins.get(metric)
    means = [mean for slug in analysis.ranked if not math.isnan(mean := analysis.summaries[slug].mean)]
    if margin and means and math.isfinite(worst) and abs(best(means) - worst) <= margin.value:
        yield (
            f"The margin, {show(margin.value, metric)}, is wider than the distance of every score from the worst "
            f"possible {readable(metric)} (best mean {show(best(means), metric)}), so equivalence shows nothing. "
            f"{_remedy(analysis, worst)}"
        )
    suspect = [slug for slug, verdict in analysis.upper_bound_verdicts.items() if "suspect" in verdict]
    if suspect:
        yield f"Suspect: above {_bound(analysis)}: {_titles(frames, suspect)}."
    leaky: dict[float, list[str]] = {}
    for slug in frames.by_slug:
        if not same_data_set(frames, slug, frames.baseline) and (leak := _mean_leak(frames, slug)):
            leaky.setdefault(leak, []).append(slug)
    found = [("LEAKY split", float(frames.record.data["leak"]))] if frames.record.data.get("leaky") else []
    for name, leak in [*found, *((f"LEAKY split of {_titles(frames, slugs)}", leak) for leak, slugs in leaky.items())]:
        yield (
            f"{name}: the source of {100 * leak:.1f} % of the test pairs is also in the training set; scores are too "
            "high."
        )
    hashes: dict[tuple[str, str], set[str]] = {}
    for run in frames.records.values():
        for plugin in run.plugins:
            hashes.setdefault((plugin.family, plugin.name), set()).add(plugin.source_sha256)
    for (family, name), sources in sorted(hashes.items()):
        if len(sources) > 1:
            yield f"STALE: the source of {family} {name} changed between runs of this experiment."


def _cautions(analysis: Analysis) -> Iterator[str]:
    frames = analysis.frames
    others = [slug for slug in analysis.other_test_sentences if same_data_set(frames, slug, frames.baseline)]
    if others:
        leaks = {slug: f"{100 * leak:.1f} %" for slug in others if (leak := _mean_leak(frames, slug))}
        note = f" (source also in training: {listed([*leaks.values()], most=MOST_NAMED)})" if leaks else ""
        yield (
            f"Other test sentences than those of the baseline: {_titles(frames, others)}{note}. A part of the "
            "difference can come from the sentences."
        )
    for key, name in POINTS.items():
        compared = analysis.reference_comparisons(key)
        below = [found for found in compared if not found.beaten]
        if below:
            best = max(below, key=lambda found: found.score)
            titles = _titles(frames, [found.slug for found in below])
            # Variants with other test sentences have a reference of their own.
            references = sorted(found.reference for found in below)
            shown = (show(reference, best.metric) for reference in (references[0], references[-1]))
            reference = " to ".join(dict.fromkeys(shown))
            named = f"{len(below)} of {len(compared)} variants" if len(below) > MOST_NAMED else titles
            yield (
                f"Not better than {name} ({reference} {readable(best.metric)}): {named}; the "
                f"best of them has {show(best.score, best.metric)}."
            )
    if text := _still_learning(analysis):
        yield text
    record = frames.record.looks
    if record is not None and analysis.late_looks:
        yield (
            f"The planned number of seeds was changed after results existed, on {record.since[:10]}: wrong verdicts "
            "can be more frequent than 5 %."
        )
    affected = [variant for variant in frames.by_slug.values() if variant.pitfalls]
    names = list(dict.fromkeys(pitfall.name for variant in affected for pitfall in variant.pitfalls))
    if names:
        yield f"Pitfalls in {len(affected)} of {len(frames.by_slug)} variants: {listed(names, most=MOST_NAMED)}."


def _still_learning(analysis: Analysis) -> str:
    found = analysis.convergence
    if not found.still_learning:
        return ""
    falls = [f"{fall:.1f}" for fall in sorted(100 * found.trends[slug].fraction for slug in found.still_learning)]
    size = falls[0] if falls[0] == falls[-1] else f"{falls[0]} to {falls[-1]}"
    every = len(found.still_learning) == len(found.trends)
    of = "" if every else f" of {_titles(analysis.frames, found.still_learning)}"
    decays = len(found.decaying) == len(found.schedules)
    decay = f", although the learning rate decays to zero ({', '.join(found.decaying)})" * decays
    text = f"Still learning: the validation loss{of} fell by {size} % over the last fifth of the steps{decay}."
    if gap := found.smallest_gap:
        steps, shown = gap_steps(gap, found), show(gap.difference, LOSS, signed=True)
        text += (
            f" {contrast_name(analysis, gap.contrast)} differ by {shown} in validation loss; at its current rate the "
            f"baseline needs {steps} to improve by as much."
        )
    return text


def _equal(analysis: Analysis) -> Iterator[Remark]:
    for variant in analysis.frames.record.variants:
        if variant.equal_to:
            other = analysis.frames.by_slug[variant.equal_to]
            reason = f": {variant.equal_reason}" if variant.equal_reason else ""
            text = f"{variant.title} and {other.title} are the same by construction{reason}; they were trained once."
            yield Remark("note", text, variant.slug)


def _notes(analysis: Analysis) -> Iterator[str]:
    frames, metric = analysis.frames, analysis.metric
    verdicts = analysis.upper_bound_verdicts
    informative = analysis.upper_bound is not None and analysis.upper_bound <= INFORMATIVE_BOUND
    if verdicts and informative and not any("suspect" in verdict for verdict in verdicts.values()):
        yield f"Within {_bound(analysis)}: {_titles(frames, list(verdicts))}."
    counts = frames.runs["state"].value_counts()
    failed = (states.DIVERGED, states.FAILED, states.OOM, states.TIMEOUT, states.KILLED)
    if parts := [f"{counts[state]} {state}" for state in failed if state in counts]:
        yield f"Of {len(frames.runs)} runs, {', '.join(parts)}; see Runs."
    if frames.has_draws:
        yield (
            "Each seed has a new draw of the data, with its own split and vocabulary: intervals include seeds, draws "
            "of the data and test sentences."
        )
    if margin := frames.record.margins.get(metric):
        late = (
            f"; it was set after results existed, on {margin.since[:10]}" if margin.late else ", set before these runs"
        )
        value = f"{show(margin.value, metric)} {readable(metric)}"
        yield f"The margin, the smallest difference that matters, is {value}{late}."
    if status := analysis.looks:
        yield (
            f"The study is judged at {listed([*map(str, status.looks.seeds)])} seeds. Each of these looks tests at "
            f"{100 * status.level:.2g} %, so that the error rate over all looks is 5 %. {len(status.taken)} of "
            f"{len(status.looks.seeds)} looks taken: {_outcome(status)}."
        )
    if not math.isnan(sd := analysis.baseline_sd):
        seeds = "seeds and draws of the data" if frames.has_draws else "seeds"
        yield f"The baseline's standard deviation over {seeds} is {show(sd, metric)} {readable(metric)}."
    points, scoring = analysis.reference_points.get(frames.baseline), analysis.reference_metric
    if points is not None and scoring is not None:
        scores = {name: show(values[scoring], scoring) for name, values in points.scores.items()}
        majority = f", the most frequent target {scores['majority']}" if "majority" in scores else ""
        yield (
            f"Reference points on the baseline's test sentences, {readable(scoring)}: nearest-neighbour translation "
            f"{scores['nearest_neighbour']}, vocabulary upper bound {scores['vocabulary_bound']}{majority}."
        )
    found = analysis.convergence
    if found.trends and all(trend.verdict == NOT_JUDGED for trend in found.trends.values()):
        reasons = [trend.reason for trend in found.trends.values() if trend.reason != NO_LOSS]
        yield from [f"Whether the runs trained far enough cannot be judged: {reasons[0]}."] if reasons else []
    elif found.decaying and not found.still_learning:
        yield (
            f"The learning rate decays to zero ({', '.join(found.decaying)}), which hides what the runs have left to "
            "learn: their loss levels off in any case."
        )
    yield from _provenance(frames)


def _provenance(frames: Frames) -> Iterator[str]:
    """Return differences between runs in versions, devices or backends, and the notes of runs."""
    values: dict[str, set[str]] = {}
    notes: Counter[str] = Counter()
    for run in frames.records.values():
        for name, value in sorted(run.versions.items()):
            values.setdefault(name.replace("_", " "), set()).add(str(value))
        if run.execution:
            values.setdefault("device or precision", set()).add(f"{run.execution.device} {run.execution.dtype}")
    for results in frames.results.values():
        if results.backend:
            values.setdefault("backend", set()).add(results.backend.name)
        notes.update(results.notes)
    for name, found in values.items():
        if len(found) > 1:
            yield f"Runs differ in {name}: {', '.join(sorted(found))}."
    yield from (f"{counted(count, 'run')}: {note}." for note, count in notes.items())
    if torn := int(frames.runs["torn_lines"].sum()):
        yield f"Damaged lines of training histories, for example incomplete after a crash, are omitted: {torn}."


def _remedy(analysis: Analysis, worst: float) -> str:
    """Return what to do about the worst possible scores: longer training helps only if the vocabulary permits more."""
    points = analysis.reference_points.get(analysis.frames.baseline)
    if points and points.scores["vocabulary_bound"].get(analysis.metric) == worst:
        return (
            f"The vocabulary upper bound is {show(worst, analysis.metric)}, so no model can score: use "
            "data.tokens: subword, or another split or data.normalise."
        )
    return "Train longer, or set metrics.primary to another metric."


def _bound(analysis: Analysis) -> str:
    return f"the bag-of-words upper bound of {analysis.upper_bound:.3f} for order-invariant encoders"


def _mean_leak(frames: Frames, slug: str) -> float:
    """Return the fraction of a variant's test pairs with a source in training, averaged over seeds."""
    data = [frames.records[name].data for name in frames.rows(slug).index if name in frames.records]
    leaks = [data_set["leak"] for data_set in data if data_set.get("leak") is not None]
    return fmean(leaks or [0.0])


def _titles(frames: Frames, slugs: tuple[str, ...] | list[str]) -> str:
    return listed([frames.by_slug[slug].title for slug in slugs], most=MOST_NAMED)


def _outcome(status: LooksStatus) -> str:
    undecided = f"{counted(len(status.undecided), 'contrast')} undecided"
    if not status.complete:
        return "runs of this look have no result yet"
    if status.next is not None:
        return f"{undecided}, next look at {status.next} seeds"
    if status.unranked and not status.undecided:
        return f"stopped; {counted(len(status.unranked), 'contrast')} cannot be tested"
    if not status.undecided:
        return "stopped because no main contrast is inconclusive"
    return f"stopped at the maximum of {status.seeds} seeds, {undecided}"
