"""Warnings and facts that qualify a report's answer, a sentence each."""

from __future__ import annotations

import math
from collections import Counter
from statistics import fmean

from headtohead.analysis.scores import same_data_set
from headtohead.analysis.study import Analysis
from headtohead.report.convergence import convergence_fact
from headtohead.report.looks import looks_facts
from headtohead.report.reference_points import MOST_NAMED, reference_fact
from headtohead.storage import metrics, states
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import counted

INFORMATIVE_BOUND = 0.9
"""Maximum bag-of-words upper bound that is reported: hardly any model reaches a higher bound."""


def other_test_line(analysis: Analysis) -> str | None:
    """Return a sentence with the variants that have other test sentences than the baseline, or None.

    Variants of the axis ``data`` are not compared with each other, so they are not named.
    """
    frames = analysis.frames
    named = []
    for slug in analysis.other_test_sentences:
        if same_data_set(frames, slug, frames.baseline):
            leak = _mean_leak(frames, slug)
            note = f" ({100 * leak:.1f} % of the test pairs have a source sentence that is also in training)"
            named.append(f"{frames.by_slug[slug].title}{note if leak else ''}")
    if not named:
        return None
    more = f" and {counted(len(named) - MOST_NAMED, 'more variant')}" if len(named) > MOST_NAMED else ""
    return (
        f"Other test sentences than those of the baseline: {', '.join(named[:MOST_NAMED])}{more}. A part of the "
        "difference can come from the sentences."
    )


def _mean_leak(frames: Frames, slug: str) -> float:
    """Return the fraction of a variant's test pairs with a source in training, averaged over seeds."""
    leaks = [leak for name in frames.rows(slug).index if (leak := frames.details[name].leak) is not None]
    return fmean(leaks or [0.0])


def warnings(analysis: Analysis) -> list[str]:
    """Return sentences that question the results: scores, leaks and changed code."""
    return [
        *_worst_score_warnings(analysis),
        *_wide_margin_warnings(analysis),
        *_upper_bound_warnings(analysis),
        *_leak_warnings(analysis),
        *_code_warnings(analysis.frames),
    ]


def facts(analysis: Analysis) -> list[str]:
    """Return facts on equal variants, failed runs, draws, the variance over seeds, and differences between runs."""
    return [
        *_upper_bound_facts(analysis),
        *_equal_facts(analysis),
        *_state_facts(analysis),
        *_draw_facts(analysis),
        *_margin_facts(analysis),
        *looks_facts(analysis),
        *_baseline_sd_facts(analysis),
        *filter(None, [reference_fact(analysis), convergence_fact(analysis)]),
        *_provenance_facts(analysis.frames),
    ]


def pitfall_line(analysis: Analysis) -> str | None:
    """Return a sentence with the pitfalls of the variants, or None."""
    variants = analysis.frames.by_slug.values()
    names = list(dict.fromkeys(pitfall.name for variant in variants for pitfall in variant.pitfalls))
    if not names:
        return None
    affected = sum(bool(variant.pitfalls) for variant in variants)
    more = f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else ""
    return (
        f"Pitfalls in {affected} of {len(variants)} variants, explained below: {', '.join(names[:MOST_NAMED])}{more}."
    )


def _code_warnings(frames: Frames) -> list[str]:
    hashes: dict[tuple[str, str], set[str]] = {}
    for run in frames.details.values():
        for plugin in run.plugins:
            hashes.setdefault((plugin.family, plugin.name), set()).add(plugin.source_sha256)
    return [
        f"STALE: the source of {family} {name} changed between runs of this experiment."
        for (family, name), sources in sorted(hashes.items())
        if len(sources) > 1
    ]


def _provenance_facts(frames: Frames) -> list[str]:
    """Return differences between runs in versions, devices or backends, and the notes of runs."""
    versions: dict[str, set[str]] = {}
    devices: set[str] = set()
    backends: set[str] = set()
    notes: Counter[str] = Counter()
    for run in frames.details.values():
        for name, value in run.versions.items():
            versions.setdefault(name, set()).add(str(value))
        if run.execution:
            devices.add(f"{run.execution.device} {run.execution.dtype}")
        if run.backend:
            backends.add(run.backend.name)
        notes.update(run.notes)
    differences = [
        f"Runs differ in {name.replace('_', ' ')}: {', '.join(sorted(values))}."
        for name, values in sorted(versions.items())
        if len(values) > 1
    ]
    if len(devices) > 1:
        differences.append(f"Runs differ in device or precision: {', '.join(sorted(devices))}.")
    if len(backends) > 1:
        differences.append(f"Runs differ in their backend: {', '.join(sorted(backends))}.")
    differences += [f"{count} run{'s' * (count != 1)}: {note}." for note, count in notes.items()]
    torn = int(frames.runs["torn_lines"].sum())
    if torn:
        differences.append(
            f"{torn} damaged line{'s' * (torn != 1)} of training histories, for example incomplete after a crash, "
            f"{'are' if torn != 1 else 'is'} omitted."
        )
    return differences


def _equal_facts(analysis: Analysis) -> list[str]:
    variants = analysis.frames.record.variants
    equal = [(variant, variant.equal_to) for variant in variants if variant.equal_to]
    return [_equal_fact(variant, analysis.frames.by_slug[other]) for variant, other in equal]


def _equal_fact(variant: VariantRecord, other: VariantRecord) -> str:
    reason = f": {variant.equal_reason}" if variant.equal_reason else ""
    return f"{variant.title} and {other.title} are the same by construction{reason}; they were trained once."


def _worst_score_warnings(analysis: Analysis) -> list[str]:
    """Return a warning if every run has the worst possible score."""
    least, largest = metrics.span(analysis.metric)
    worst = least if metrics.higher_is_better(analysis.metric) else largest
    frames = analysis.frames
    scores = [frames.scores(slug, analysis.metric) for slug in frames.by_slug]
    values = [score for by_seed in scores for score in by_seed.values()]
    if not values or any(score != worst for score in values):
        return []
    return [
        f"Every run has the worst possible {metrics.readable(analysis.metric)}, "
        f"{metrics.show(worst, analysis.metric)}, so this metric cannot compare the variants. "
        f"{_remedy(analysis, worst)}"
    ]


def _remedy(analysis: Analysis, worst: float) -> str:
    """Return what to do about the worst possible scores: longer training helps only if the vocabulary permits more."""
    points = analysis.reference_points.get(analysis.frames.baseline)
    bound = points.scores["vocabulary_bound"].get(analysis.metric) if points else None
    if bound == worst:
        return (
            f"The vocabulary upper bound is {metrics.show(worst, analysis.metric)}, so no model can score: use "
            "data.tokens: subword, or another split or data.normalise."
        )
    return "Train longer, or set metrics.primary to another metric."


def _wide_margin_warnings(analysis: Analysis) -> list[str]:
    """Return a warning if the margin is wider than the distance of every score from the worst possible score."""
    metric, frames = analysis.metric, analysis.frames
    margin = frames.record.margins.get(metric)
    means = [mean for slug in analysis.ranked if not math.isnan(mean := analysis.summaries[slug].mean)]
    least, largest = metrics.span(metric)
    worst, best = (least, max) if metrics.higher_is_better(metric) else (largest, min)
    if margin is None or not means or not math.isfinite(worst) or abs(best(means) - worst) > margin.value:
        return []
    return [
        f"The margin, {metrics.show(margin.value, metric)}, is wider than the distance of every score from the worst "
        f"possible {metrics.readable(metric)} (best mean {metrics.show(best(means), metric)}), so equivalence shows "
        f"nothing. {_remedy(analysis, worst)}"
    ]


def _upper_bound_warnings(analysis: Analysis) -> list[str]:
    suspect = [slug for slug, verdict in analysis.upper_bound_verdicts.items() if "suspect" in verdict]
    titles = [analysis.frames.by_slug[slug].title for slug in suspect]
    return [f"Suspect: {', '.join(titles)} exceed{'s' * (len(titles) == 1)} {_bound(analysis)}."] if titles else []


def _upper_bound_facts(analysis: Analysis) -> list[str]:
    verdicts = analysis.upper_bound_verdicts
    informative = analysis.upper_bound is not None and analysis.upper_bound <= INFORMATIVE_BOUND
    if not verdicts or not informative or any("suspect" in verdict for verdict in verdicts.values()):
        return []
    if len(verdicts) > 1:
        return [f"All {len(verdicts)} order-invariant variants are within {_bound(analysis)}."]
    return [f"{analysis.frames.by_slug[next(iter(verdicts))].title} is within {_bound(analysis)}."]


def _bound(analysis: Analysis) -> str:
    return f"the bag-of-words upper bound of {analysis.upper_bound:.3f} for order-invariant encoders"


def _state_facts(analysis: Analysis) -> list[str]:
    counts = analysis.frames.runs["state"].value_counts()
    verbs = {
        states.DIVERGED: "diverged",
        states.FAILED: "failed",
        states.OOM: "ran out of memory",
        states.TIMEOUT: "timed out",
        states.KILLED: "was killed" if counts.get(states.KILLED) == 1 else "were killed",
    }
    parts = [f"{counts[state]} {verb}" for state, verb in verbs.items() if state in counts]
    total = len(analysis.frames.runs)
    return [f"Of {total} runs, {', '.join(parts)}; see Runs."] if parts else []


def _leak_warnings(analysis: Analysis) -> list[str]:
    """Return a warning for the baseline's data, and one for each other leak of variants on other data sets."""
    frames = analysis.frames
    leaky: dict[float, list[str]] = {}
    for slug, variant in frames.by_slug.items():
        if not same_data_set(frames, slug, frames.baseline) and (leak := _mean_leak(frames, slug)):
            leaky.setdefault(leak, []).append(variant.title)
    found = [("LEAKY split", float(frames.record.data["leak"]))] if frames.record.data.get("leaky") else []
    for leak, titles in leaky.items():
        more = f" and {counted(len(titles) - MOST_NAMED, 'more variant')}" if len(titles) > MOST_NAMED else ""
        found.append((f"LEAKY split of {', '.join(titles[:MOST_NAMED])}{more}", leak))
    return [
        f"{name}: the source of {100 * leak:.1f} % of the test pairs is also in the training set; scores are too high."
        for name, leak in found
    ]


def _draw_facts(analysis: Analysis) -> list[str]:
    if not analysis.frames.has_draws:
        return []
    return [
        "Each seed has a new draw of the data, with its own split and vocabulary: intervals include seeds, draws of "
        "the data and test sentences."
    ]


def _margin_facts(analysis: Analysis) -> list[str]:
    margin = analysis.frames.record.margins.get(analysis.metric)
    if margin is None:
        return []
    origin = f"; it was set after results existed, on {margin.since[:10]}" if margin.late else ", set before these runs"
    value = f"{metrics.show(margin.value, analysis.metric)} {metrics.readable(analysis.metric)}"
    return [f"The margin, the smallest difference that matters, is {value}{origin}."]


def _baseline_sd_facts(analysis: Analysis) -> list[str]:
    sd = analysis.baseline_sd
    if math.isnan(sd):
        return []
    seeds = "seeds and draws of the data" if analysis.frames.has_draws else "seeds"
    value = f"{metrics.show(sd, analysis.metric)} {metrics.readable(analysis.metric)}"
    return [f"The baseline's standard deviation over {seeds} is {value}."]
