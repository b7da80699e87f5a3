"""Remarks that qualify the answer: one list for the page, the answer file and the terminal."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.convergence import LOSS, Convergence, StepGap
from headtohead.analysis.leaks import Leak, leaks, recorded_data
from headtohead.analysis.scores import same_data_set, score_mismatch
from headtohead.analysis.study import Analysis, LooksStatus
from headtohead.config.labels import listed
from headtohead.report.section import contrast_name, leveled
from headtohead.statistics.copies import Run, copy_warnings
from headtohead.statistics.verdicts import WITHIN
from headtohead.storage import states
from headtohead.storage.experiment import leaked_validation
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import as_ratio, counted, higher_is_better, readable, show, span

MAX_NAMED = 3
"""Maximum number of variants that a remark names."""

POINTS = {
    "nearest_neighbour": "nearest-neighbour retrieval",
    "majority": "the most frequent target",
}
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
    by_slug = analysis.frames.by_slug
    equal = [
        Remark(
            "note",
            f"{variant.title} and {by_slug[variant.equal_to].title} are the same by construction"
            f"{f': {variant.equal_reason}' if variant.equal_reason else ''}; they were trained once.",
            variant.slug,
        )
        for variant in by_slug.values()
        if variant.equal_to
    ]
    warnings, cautions = _warnings(analysis), _cautions(analysis)
    above = [
        *(Remark("warning", text) for text in warnings),
        *(Remark("caution", text) for text in cautions),
    ]
    return (*above, *equal, *(Remark("note", text) for text in _notes(analysis)))


def looks_line(status: LooksStatus) -> str:
    """Return the number of the look, the undecided contrasts, and the next look or why there is none."""
    number = sum(seeds <= status.seeds for seeds in status.looks.seeds)
    return f"look {number} of {len(status.looks.seeds)}, {status.seeds} seeds: {_outcome(status)}"


def gap_steps(gap: StepGap, found: Convergence) -> str:
    """Return the steps of a gap with two significant digits, at most those of the baseline."""
    if gap.steps > found.baseline_steps:
        return f"more than {found.baseline_steps:,} steps"
    return (
        "less than a step" if gap.steps < 0.5 else f"about {float(f'{gap.steps:.2g}'):,.0f} steps"
    )


def spread_text(name: str, metric: str, mean: float, sd: float) -> str:
    """Return mean and standard deviation over seeds of a variant, as a clause."""
    return (
        f"{name} has a mean {readable(metric)} of {show(mean, metric)}, with a standard deviation of "
        f"{show(sd, metric)} over seeds"
    )


def pooled_text(scope: str, metric: str, sd: float) -> str:
    """Return the standard deviation pooled over the variants of ``scope``, as a clause."""
    return f"pooled over {scope}, it is {show(sd, metric)}"


def show_passes(passes: float) -> str:
    """Return a number of passes over the training data with two significant digits, or as a whole number from 10."""
    return f"{passes:,.0f}" if passes >= 10 else f"{passes:.2g}"


def _warnings(analysis: Analysis) -> Iterator[str]:
    frames, metric, name = analysis.frames, analysis.metric, readable(analysis.metric)
    least, largest = span(metric)
    worst, best = (least, max) if higher_is_better(metric) else (largest, min)
    points = analysis.reference_points.get(frames.baseline)
    remedy = "Train longer, or set metrics.primary to another metric."
    if (
        points and points.scores["vocabulary_bound"].get(metric) == worst
    ):  # longer training cannot help
        remedy = (
            f"The vocabulary upper bound is {show(worst, metric)}, so no model can score: use data.tokens: subword, or "
            "another split or data.normalise."
        )
    values = [value for slug in frames.by_slug for value in frames.scores(slug, metric).values()]
    if values and all(value == worst for value in values):
        yield (
            f"Every run has the worst possible {name}, {show(worst, metric)}, so this metric cannot compare the "
            f"variants. {remedy}"
        )
    margin = frames.record.margins.get(metric)
    means = [
        mean for slug in analysis.ranked if not math.isnan(mean := analysis.summaries[slug].mean)
    ]
    if margin and means and math.isfinite(worst) and abs(best(means) - worst) <= margin.value:
        yield (
            f"The margin, {show(margin.value, metric, like=margin.value)}, is wider than the distance of every score "
            f"from the worst possible {name} (best mean {show(best(means), metric)}), so equivalence shows nothing. "
            f"{remedy}"
        )
    collapsed = [
        f"{len(seeds)} of {frames.by_slug[slug].title}"
        for slug, seeds in analysis.collapsed.items()
    ]
    if collapsed:
        yield (
            f"Collapsed runs, with a final validation loss far above that of all others: {listed(collapsed)}. "
            "A contrast leaves out every seed in which a run of either side collapsed. A ranking of pairs leaves out "
            "the collapsed runs only."
        )
    yield from _copies(analysis)
    suspect = [
        slug for slug, verdict in analysis.upper_bound_verdicts.items() if "suspect" in verdict
    ]
    if suspect:
        bound = f"the bag-of-words upper bound of {analysis.upper_bound:.3f} for order-invariant encoders"
        yield f"Suspect: above {bound}: {_titles(frames, suspect)}."
    for leak in leaks(analysis):
        if leak.is_serious:
            yield f"LEAKY split{_leaky_variants(frames, leak)}: {leak.part}; {_leak_effect(analysis, leak)}."
    for validation_leak in leaked_validation(frames.record.data):
        if validation_leak.is_serious:
            yield f"LEAKY split: {validation_leak.clause}."
    hashes: dict[str, set[str]] = {}
    for run in frames.records.values():
        for plugin in run.plugins:
            for label, sha256 in plugin.hashes.items():
                hashes.setdefault(label, set()).add(sha256)
    for label in sorted(label for label, found in hashes.items() if len(found) > 1):
        yield f"STALE: {label} changed between runs of this experiment."


def _copies(analysis: Analysis) -> list[str]:
    """Return the warnings about runs that can be copies of each other, or do not depend on their seed."""
    frames = analysis.frames
    trained = [slug for slug in frames.by_slug if frames.trained(slug) == slug]
    titles = {slug: frames.by_slug[slug].title for slug in trained}
    scores = {}
    for slug, title in titles.items():
        scores[title] = {
            str(seed): value for seed, value in frames.scores(slug, analysis.metric).items()
        }
    losses = frames.histories[frames.histories["metric"] == LOSS].dropna(subset=["value"])
    curves = {}
    for name, rows in losses.groupby("run", observed=True):
        run = frames.runs.loc[name]
        curve = dict(zip(rows["step"].tolist(), rows["value"].tolist(), strict=True))
        curves[Run(titles[str(run["variant"])], str(run["seed"]))] = curve
    found = copy_warnings(
        scores,
        curves,
        baseline=titles[frames.trained(frames.baseline)],
        metric=readable(analysis.metric),
        is_paired=True,
    )
    return [f"{text[0].upper()}{text[1:]}." for text in found]


def _cautions(analysis: Analysis) -> Iterator[str]:
    frames = analysis.frames
    for leak in leaks(analysis):
        if not leak.is_serious:
            yield f"Leak{_leaky_variants(frames, leak)}: {leak.part}; {_leak_effect(analysis, leak)}."
    for validation_leak in leaked_validation(frames.record.data):
        if not validation_leak.is_serious:
            yield f"Leak: {validation_leak.clause}."
    others = [
        slug
        for slug in analysis.other_test_sentences
        if same_data_set(frames, slug, frames.baseline)
    ]
    if others:
        shares = [recorded_data(frames, slug).get("leak") for slug in others]
        percentages = [*dict.fromkeys(f"{100 * share:.1f} %" for share in shares if share)]
        note = (
            f" (source also in training: {listed(percentages, most=MAX_NAMED)})"
            if percentages
            else ""
        )
        yield (
            f"Other test sentences than those of the baseline: {_titles(frames, others)}{note}. A part of the "
            "difference can come from the sentences."
        )
    for own in dict.fromkeys(contrast.metric for contrast in analysis.main_contrasts):
        contrasts = [contrast for contrast in analysis.main_contrasts if contrast.metric == own]
        rooms = [analysis.room(own, contrast.references) for contrast in contrasts]
        if (margin := frames.record.margins.get(own)) and margin.value > min(rooms):
            unsized = [
                contrast
                for contrast, room in zip(contrasts, rooms, strict=True)
                if margin.value > room
            ]
            names = [contrast_name(analysis, contrast) for contrast in unsized]
            is_baseline = {slug for contrast in unsized for slug in contrast.references} <= {
                frames.baseline
            }
            judged = (
                f"the size of {listed(names, most=MAX_NAMED)} is not"
                if unsized != contrasts
                else "no size is"
            )
            errors = as_ratio(own)
            distance, value = (
                show(size, own, like=margin.value) for size in (min(rooms), margin.value)
            )
            ratios = f"compare ratios of error rates (metrics.primary: {errors}, margin: {{{errors}: 0.22}} for 1.25)"
            yield (
                f"The {'baseline' if is_baseline else 'right side of a contrast'} is {distance} from the best possible "
                f"{readable(own)}, less than the margin of {value}, and the difference could be larger on a harder "
                f"task, so {judged} judged."
                f" To judge it, {f'{ratios}, or make' if errors else 'make'} the task harder."
            )
    found = [*analysis.main_contrasts, *analysis.families.variants.contrasts]

    def is_within(contrast: ContrastResult) -> bool:
        return WITHIN in (contrast.size, contrast.agreement and contrast.agreement.size)

    is_sensitive = any(contrast.detected and not is_within(contrast) for contrast in found)
    if not is_sensitive and any(map(is_within, analysis.main_contrasts)):
        yield (
            "No difference that can exceed the margin was detected, so this study does not show that it can "
            "detect one. Add a variant that is known to be worse."
        )
    tuned = frames.record.tuning.variants if frames.record.tuning else {}
    if edges := [
        slug for slug, chosen in tuned.items() if chosen.at_the_edge and slug in frames.by_slug
    ]:
        fields = {field for slug in edges for field in tuned[slug].at_the_edge}
        yield (
            f"The best value of {listed(sorted(fields))} for {_titles(frames, edges)} is at the edge of the sweep; a "
            "better one may lie outside. Add values to tune."
        )
    if frames.record.tuning and frames.record.tuning.coarse:
        yield f"The sweep may have missed the best setting of a variant: {frames.record.tuning.coarse}."
    for key, name in POINTS.items():
        compared = analysis.reference_comparisons(key)
        if below := [found for found in compared if not found.beaten]:
            best = max(below, key=lambda found: found.score)
            # Variants with other test sentences have a reference of their own.
            ends = min(found.reference for found in below), max(found.reference for found in below)
            reference = " to ".join(dict.fromkeys(show(end, best.metric) for end in ends))
            many, titles = len(below) > MAX_NAMED, _titles(frames, [found.slug for found in below])
            named = f"{len(below)} of {len(compared)} variants" if many else titles
            yield (
                f"Not better than {name} ({reference} {readable(best.metric)}): {named}; the "
                f"best of them has {show(best.score, best.metric)}."
            )
    bigram, loss = (
        frames.record.data.get("losses_without_model", {}).get("bigram", math.inf),
        "test/loss",
    )
    comparable = (
        slug for slug in analysis.ranked if not score_mismatch(frames, slug, frames.baseline, loss)
    )
    if above := [slug for slug in comparable if frames.summary(slug, loss).mean >= bigram]:
        yield (
            f"Not better than a bigram model, which predicts a token from the preceding one (test loss {bigram:.3f} "
            f"nats): {_titles(frames, above)}. Differences may disappear with longer training."
        )
    if text := _still_learning(analysis):
        yield text
    text = _schedule_ended(analysis)
    if text and _trained_little(analysis):
        yield text
    record = frames.record.looks
    if record is not None and analysis.late_looks:
        yield (
            f"The planned number of seeds was changed after results existed, on {record.since[:10]}: wrong verdicts "
            "can be more frequent than 5 %."
        )
    affected = [variant for variant in frames.by_slug.values() if variant.pitfalls]
    names = list(
        dict.fromkeys(pitfall.name for variant in affected for pitfall in variant.pitfalls)
    )
    if names:
        yield f"Pitfalls in {len(affected)} of {len(frames.by_slug)} variants: {listed(names, most=MAX_NAMED)}."


def _schedule_ended(analysis: Analysis) -> str:
    """Return how far the variants trained whose loss was flat when the schedule ended; empty without such variants."""
    found = analysis.convergence
    if not found.ended:
        return ""
    of = (
        ""
        if len(found.ended) == len(found.trends)
        else f" of {_titles(analysis.frames, found.ended)}"
    )
    passes = [found.trends[slug].passes for slug in found.ended]
    count = " to ".join(dict.fromkeys(show_passes(end) for end in (min(passes), max(passes))))
    return (
        f"The schedule ended after {count} passes over the training data. A learning rate that decays "
        f"({', '.join(found.decaying)}) flattens the validation loss{of}; longer training may lower it further."
        f"{_against_tables(analysis)}"
    )


def _against_tables(analysis: Analysis) -> str:
    """Return the comparison of the baseline with unigram and bigram models, on data that have their losses."""
    frames = analysis.frames
    tables = frames.record.data.get("losses_without_model")
    loss = frames.summary(frames.baseline, "test/loss").mean
    if not tables or math.isnan(loss):
        return ""
    own = f" The baseline's test loss, {show(loss, LOSS)},"
    unigram = f"a unigram model ({show(tables['unigram'], LOSS)})"
    bigram = f"a bigram model ({show(tables['bigram'], LOSS)})"
    if loss >= tables["unigram"]:
        return f"{own} is not lower than that of {unigram}."
    if loss >= tables["bigram"]:
        return f"{own} is lower than that of {unigram}, but not lower than that of {bigram}."
    return f"{own} is lower than that of {bigram}."


def _trained_little(analysis: Analysis) -> bool:
    """Return whether a schedule ended before a pass over the data, or with a baseline not better than a bigram."""
    found, frames = analysis.convergence, analysis.frames
    bigram = frames.record.data.get("losses_without_model", {}).get("bigram", math.inf)
    is_seen = all(found.trends[slug].passes >= 1 for slug in found.ended)
    return not is_seen or frames.summary(frames.baseline, "test/loss").mean >= bigram


def _still_learning(analysis: Analysis) -> str:
    found = analysis.convergence
    if not found.still_learning:
        return ""
    falls = [
        f"{fall:.1f}"
        for fall in sorted(100 * found.trends[slug].fraction for slug in found.still_learning)
    ]
    size = falls[0] if falls[0] == falls[-1] else f"{falls[0]} to {falls[-1]}"
    every = len(found.still_learning) == len(found.trends)
    of = "" if every else f" of {_titles(analysis.frames, found.still_learning)}"
    text = (
        f"Still learning: the validation loss{of} fell by {size} % over the last fifth of the steps"
    )
    if len(found.decaying) == len(found.schedules):
        text += f", while the learning rate decayed ({', '.join(found.decaying)})"
    text += "."
    if gap := found.smallest_gap:
        steps, shown = gap_steps(gap, found), show(gap.difference, LOSS, signed=True)
        baseline = analysis.frames.by_slug[analysis.frames.baseline].title
        text += (
            f" {contrast_name(analysis, gap.contrast)}: validation loss {shown}; at its pace over the last fifth of "
            f"the steps, the baseline ({baseline}) needs {steps} to improve by as much."
        )
    return text


def _notes(analysis: Analysis) -> Iterator[str]:
    frames, metric = analysis.frames, analysis.metric
    counts = frames.runs["state"].value_counts()
    failed = sorted((states.ABNORMAL - {states.INTERRUPTED}) & {*counts.index})
    if failed:
        yield f"Of {len(frames.runs)} runs, {', '.join(f'{counts[state]} {state}' for state in failed)}; see Runs."
    if analysis.families.added.contrasts:
        (total,) = analysis.families.variants.contrasts
        start, end = (frames.by_slug[slug].title for slug in (total.against, total.variant))
        yield f"“In {start}”: all other settings are those before the arrows; “in {end}”: those after them."
    interactions = analysis.families.interactions.contrasts
    if (
        all(found.family == "declared" for found in analysis.main_contrasts)
        and len(interactions) <= MAX_NAMED
    ):
        for found in interactions:
            if found.paired:
                interval = leveled(found.judgement.interval, found)
                yield f"Interaction, {found.name}: {found.difference_text} ({interval}), {found.direction_name}."
    if margin := frames.record.margins.get(metric):
        late = (
            f"; it was set after results existed, on {margin.since[:10]}"
            if margin.late
            else ", set before these runs"
        )
        value = f"{show(margin.value, metric, like=margin.value)} {readable(metric)}"
        sized = any(contrast.size for contrast in analysis.main_contrasts)
        both = " Holm's correction sets the levels of the intervals." * sized
        yield f"The margin, the smallest difference that matters, is {value}{late}.{both}"
    if status := analysis.looks:
        yield (
            f"The study is judged at {listed([*map(str, status.looks.seeds)])} seeds. Each of these looks tests at "
            f"{100 * status.level:.2g} %, so that the error rate over all looks is 5 %. {len(status.taken)} of "
            f"{len(status.looks.seeds)} looks taken: {_outcome(status)}."
        )
    text = _schedule_ended(analysis)
    if text and not _trained_little(analysis):
        yield text
    if not math.isnan(sd := analysis.baseline_sd):
        is_single, title = len(frames.by_slug) == 1, frames.by_slug[frames.baseline].title
        mean = analysis.healthy_summary(frames.baseline, metric).mean
        same = [slug for slug in analysis.ranked if same_data_set(frames, slug, frames.baseline)]
        sds = [analysis.healthy_summary(slug, metric).sd for slug in same]
        scope = "all variants" + " of its data and size" * (len(same) < len(analysis.ranked))
        pooled = math.sqrt(fmean(own**2 for own in sds if math.isfinite(own)))
        name = "The variant" if is_single else f"The baseline, {title},"
        yield spread_text(name, metric, mean, sd) + (
            "." if is_single else f"; {pooled_text(scope, metric, pooled)}."
        )
    if analysis.variable:
        ratios = listed([f"{ratio:.1f}" for ratio in analysis.variable.values()], most=MAX_NAMED)
        yield (
            f"The scores of {_titles(frames, [*analysis.variable])} vary {ratios} times as much over seeds as those of "
            "the others. Contrasts of such a variant have paired t-tests of their own; the others share a variance."
        )
    values = [
        (name, version)
        for run in frames.records.values()
        for name, version in sorted(run.versions.items())
    ]
    executions = [run.execution for run in frames.records.values() if run.execution]
    values += [("device or precision", f"{found.device} {found.dtype}") for found in executions]
    values += [
        ("backend", found.backend.name) for found in frames.results.values() if found.backend
    ]
    for name in dict.fromkeys(name for name, _ in values):
        if len(different := {str(value) for own, value in values if own == name}) > 1:
            yield f"Runs differ in {name.replace('_', ' ')}: {', '.join(sorted(different))}."
    notes = Counter(note for results in frames.results.values() for note in results.notes)
    yield from (f"{counted(count, 'run')}: {note}." for note, count in notes.items())
    if torn := int(frames.runs["torn_lines"].sum()):
        yield f"Damaged lines of training histories, for example incomplete after a crash, are omitted: {torn}."


def _leaky_variants(frames: Frames, leak: Leak) -> str:
    return f" of {_titles(frames, leak.slugs)}" if leak.slugs else ""


def _leak_effect(analysis: Analysis, leak: Leak) -> str:
    """Return the largest effect of a leak on a score, and its relation to the margin."""
    if leak.metric is None:
        return f"its effect on {readable(analysis.metric)} is not known"
    size = f"it improves {readable(leak.metric)} by at most {show(leak.effect, leak.metric)}"
    if leak.margin is None:
        return size
    relation = "more than" if leak.is_serious else "not more than"
    return f"{size}, {relation} the margin of {show(leak.margin, leak.metric, like=leak.margin)}"


def _titles(frames: Frames, slugs: Sequence[str]) -> str:
    return listed([frames.by_slug[slug].title for slug in slugs], most=MAX_NAMED)


def _outcome(status: LooksStatus) -> str:
    undecided = f"{counted(len(status.undecided), 'contrast')} undecided"
    if not status.complete:
        return "runs of this look have no result yet"
    if status.next is not None:
        return f"{undecided}, next look at {status.next} seeds"
    if status.untested and not status.undecided:
        return f"stopped; {counted(len(status.untested), 'contrast')} cannot be tested"
    if not status.undecided:
        return "stopped because every main contrast has a direction or is within the margin"
    return f"stopped at the maximum of {status.seeds} seeds, {undecided}"
