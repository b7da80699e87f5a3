"""Rules on the length of training: other steps than the baseline, variants that still learn, schedules that ended."""

from __future__ import annotations

import math
from collections.abc import Iterator

from headtohead.analysis.convergence import LOSS, Convergence, StepGap
from headtohead.analysis.findings.finding import Sentence, caution, note, of_titles
from headtohead.analysis.scores import same_data_set
from headtohead.analysis.study import Analysis
from headtohead.config.clauses import capitalised
from headtohead.storage.experiment import VariantRecord
from headtohead.storage.metrics import show

TRAIN_SECONDS = "system/train_seconds"

LEARNING = (
    "Still learning: the validation loss fell by {percent} % over the last fifth of the steps"
)
LEARNING_OF = "Still learning: the validation loss {of_variants} fell by {percent} % over the last fifth of the steps"
DECAY = ", while the learning rate decayed ({schedules})"
GAP = (
    " {contrast}: validation loss {difference}; at its pace over the last fifth of the steps, the baseline "
    "({baseline}) needs {steps} to improve by as much."
)

LEARNING_LIMIT = "training ended before any variant levelled off"
LEARNING_LIMIT_OF = "training ended before {learning} of {variants} variants levelled off{baseline}"
LEARNING_LIMIT_OF_ONE = "training ended before a variant levelled off: {variant}"
LEARNING_LIMIT_OF_BASELINE = "training ended before the baseline levelled off"
WITH_BASELINE = ", the baseline among them"


@caution
def still_learning(analysis: Analysis) -> Iterator[Sentence]:
    """Name the variants whose loss still falls, with one difference that more training could explain.

    The difference is `Convergence.smallest_gap`: the smallest gap of a detected contrast, else the largest gap.
    Contrasts in which the better score has the higher loss do not count. It is left out if there is no such gap, as
    always if the baseline is not still learning. Variants are not named if all are still learning. The schedules are
    named if all of them lower the learning rate.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    training = analysis.convergence
    slugs = training.still_learning
    if not slugs:
        return
    is_all = len(slugs) == len(training.trends)
    template = LEARNING if is_all else LEARNING_OF
    text = template.format(of_variants=of_titles(analysis, slugs), percent=_falls(training))
    if len(training.decaying) == len(training.schedules):
        text += DECAY.format(schedules=", ".join(training.decaying))
    text += "."
    gap = training.smallest_gap
    if gap:
        text += GAP.format(
            contrast=capitalised(gap.contrast.name),
            difference=show(gap.difference, LOSS, signed=True),
            baseline=analysis.frames.by_slug[analysis.frames.baseline].title,
            steps=gap_steps(gap, training),
        )
    yield Sentence(text, slugs, LEARNING_LIMIT if is_all else _learning_limit(analysis))


def _learning_limit(analysis: Analysis) -> str:
    """Return the clause if some variants still learn: their number, or which variant if it is a single one."""
    training = analysis.convergence
    if len(training.still_learning) == 1:
        (slug,) = training.still_learning
        if slug == analysis.frames.baseline:
            return LEARNING_LIMIT_OF_BASELINE
        return LEARNING_LIMIT_OF_ONE.format(variant=analysis.frames.by_slug[slug].title)
    has_baseline = analysis.frames.baseline in training.still_learning
    return LEARNING_LIMIT_OF.format(
        learning=len(training.still_learning),
        variants=len(training.trends),
        baseline=WITH_BASELINE if has_baseline else "",
    )


def _falls(training: Convergence) -> str:
    """Return the smallest and the largest fall of the variants that are still learning, in percent.

    At least one variant is still learning. Equal texts are a single one.
    """
    falls = [100 * training.trends[slug].fraction for slug in training.still_learning]
    smallest, largest = f"{min(falls):.1f}", f"{max(falls):.1f}"
    return smallest if smallest == largest else f"{smallest} to {largest}"


def gap_steps(gap: StepGap, training: Convergence) -> str:
    """Return the steps of a gap with two significant digits, at most the steps of the baseline."""
    if gap.steps > training.baseline_steps:
        return f"more than {training.baseline_steps:,} steps"
    if gap.steps < 0.5:
        return "less than a step"
    return f"about {float(f'{gap.steps:.2g}'):,.0f} steps"


OTHER_STEPS = (
    "Trained for other numbers of steps than the baseline ({steps:,} steps{seconds}): {variants}."
)
STEPS_OF = "{title}, {steps:,} steps"
FLOPS_OF = ", {share} of its FLOPs"
SECONDS = ", {seconds} s"
SECONDS_OF = ", {seconds} s, {share} of its seconds"

OTHER_STEPS_LIMIT = "the numbers of steps differ"


@caution
def other_steps(analysis: Analysis) -> Iterator[Sentence]:
    """State the planned steps, FLOPs and seconds of variants with other steps than the baseline on its data set.

    A variant that uses the runs of an equal one is left out. The FLOPs are shares of the baseline's, which assume
    equal numbers of tokens in a step. Seconds are those of the stack in which a run was trained, and left out if they
    were not measured.
    """
    frames = analysis.frames
    baseline = frames.by_slug[frames.baseline]
    clauses = []
    slugs = []
    for slug, variant in frames.by_slug.items():
        is_same_data = same_data_set(frames, slug, frames.baseline)
        if is_same_data and variant.steps != baseline.steps and frames.trained(slug) == slug:
            clauses.append(_steps_text(analysis, variant, baseline))
            slugs.append(slug)
    if clauses:
        seconds = frames.summary(frames.baseline, TRAIN_SECONDS).mean
        text = OTHER_STEPS.format(
            steps=baseline.steps,
            seconds=SECONDS.format(seconds=_seconds(seconds)) if seconds > 0 else "",
            variants="; ".join(clauses),
        )
        yield Sentence(text, tuple(slugs), OTHER_STEPS_LIMIT)


def _steps_text(analysis: Analysis, variant: VariantRecord, baseline: VariantRecord) -> str:
    """Return a variant's title and steps, its FLOPs as a share of the baseline's, and its seconds with their share.

    There is no share of the FLOPs if the baseline is not trained, and no seconds unless they were measured for both.
    """
    text = STEPS_OF.format(title=variant.title, steps=variant.steps)
    flops_of_baseline = baseline.steps * baseline.counts.flops_per_token
    if flops_of_baseline > 0:
        flops = variant.steps * variant.counts.flops_per_token
        text += FLOPS_OF.format(share=f"{100 * flops / flops_of_baseline:.0f} %")
    seconds = analysis.frames.summary(variant.slug, TRAIN_SECONDS).mean
    seconds_of_baseline = analysis.frames.summary(baseline.slug, TRAIN_SECONDS).mean
    if seconds > 0 and seconds_of_baseline > 0:
        share = f"{100 * seconds / seconds_of_baseline:.0f} %"
        text += SECONDS_OF.format(seconds=_seconds(seconds), share=share)
    return text


def _seconds(seconds: float) -> str:
    """Return seconds with at least two significant digits."""
    return f"{seconds:,.0f}" if seconds >= 10 else f"{seconds:.2g}"


ENDED = (
    "The schedule ended after {passes} passes over the training data. A learning rate that decays ({schedules}) "
    "flattens the validation loss; longer training may lower it further."
)
ENDED_OF = (
    "The schedule ended after {passes} passes over the training data. A learning rate that decays ({schedules}) "
    "flattens the validation loss {of_variants}; longer training may lower it further."
)
ABOVE_UNIGRAM = (
    " The baseline's test loss, {loss}, is not lower than that of a unigram model ({unigram})."
)
ABOVE_BIGRAM = (
    " The baseline's test loss, {loss}, is lower than that of a unigram model ({unigram}), but not lower than that of "
    "a bigram model ({bigram})."
)
BELOW_BIGRAM = " The baseline's test loss, {loss}, is lower than that of a bigram model ({bigram})."

ENDED_LIMIT = "training was short"


@caution
def schedule_ended_early(analysis: Analysis) -> Iterator[Sentence]:
    """Caution if a schedule ended before a pass over the data, or with a baseline not better than a bigram model.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if analysis.convergence.ended and _trained_little(analysis):
        yield _ended_sentence(analysis)._replace(limit=ENDED_LIMIT)


@note
def schedule_ended(analysis: Analysis) -> Iterator[Sentence]:
    """State how long the variants with a flat loss at the end of the schedule trained.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
    """
    if analysis.convergence.ended and not _trained_little(analysis):
        yield _ended_sentence(analysis)


def _trained_little(analysis: Analysis) -> bool:
    """Return whether a variant with an ended schedule had less than a pass over its data, or unknown passes.

    Also whether the baseline's test loss is not below that of a bigram model, if both are there.
    """
    training, frames = analysis.convergence, analysis.frames
    if any(not training.trends[slug].passes >= 1 for slug in training.ended):
        return True
    losses = frames.record.data.get("losses_without_model", {})
    return frames.summary(frames.baseline, "test/loss").mean >= losses.get("bigram", math.inf)


def _ended_sentence(analysis: Analysis) -> Sentence:
    """Return the sentence on the variants with a flat loss at the end of their schedule.

    Variants are not named if these are all.

    Raises:
        HeadToHeadError: If the stored values per example of a run are damaged.
        ValueError: If there is no such variant.
    """
    training = analysis.convergence
    slugs = training.ended
    passes = [training.trends[slug].passes for slug in slugs]
    fewest, most = show_passes(min(passes)), show_passes(max(passes))
    passes_text = fewest
    if most != fewest:
        passes_text += f" to {most}"
    template = ENDED if len(slugs) == len(training.trends) else ENDED_OF
    text = template.format(
        passes=passes_text,
        schedules=", ".join(training.decaying),
        of_variants=of_titles(analysis, slugs),
    )
    return Sentence(text + _against_tables(analysis), slugs)


def _against_tables(analysis: Analysis) -> str:
    """Return a sentence that compares the baseline's test loss with those of unigram and bigram models.

    Empty on data without their losses, and for a baseline without a test loss.

    Raises:
        KeyError: If the data have only one of both losses.
    """
    frames = analysis.frames
    losses = frames.record.data.get("losses_without_model")
    loss = frames.summary(frames.baseline, "test/loss").mean
    if not losses or math.isnan(loss):
        return ""
    if loss >= losses["unigram"]:
        template = ABOVE_UNIGRAM
    elif loss >= losses["bigram"]:
        template = ABOVE_BIGRAM
    else:
        template = BELOW_BIGRAM
    return template.format(
        loss=show(loss, LOSS),
        unigram=show(losses["unigram"], LOSS),
        bigram=show(losses["bigram"], LOSS),
    )


def show_passes(passes: float) -> str:
    """Return a number of passes over the training data with two significant digits, or as a whole number from 10."""
    if passes >= 10:
        return f"{passes:,.0f}"
    return f"{passes:.2g}"
