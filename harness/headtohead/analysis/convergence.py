"""Whether runs trained far enough: the fall of the validation loss over the last fifth of their steps.

A line is fitted to the evaluations of the last fifth of a run, so that the noise of a single evaluation counts little.
A variant is still learning if the fall, averaged over seeds, exceeds 0.01 nats, 1 % of the loss and two standard errors
over seeds; its loss is rising if a rise does. A smaller change is evidence only if the learning rate did not decay
to an end (`planning.schedule.decays_to_an_end`); otherwise the verdict is that the schedule ended.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from headtohead.analysis.contrasts import ContrastResult
from headtohead.analysis.scores import score_mismatch
from headtohead.schema.run_config import TrainConfig
from headtohead.storage import states
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import higher_is_better
from headtohead_judge.contrast import Side

LOSS = "valid/loss"
LAST_PART = 0.2
"""The last part of the steps, over which the fall is measured, as a fraction.

The two evaluations around its start may not be further apart than this and a step, by which intervals are rounded.
"""

MIN_STEPS = 100
"""Fewest steps of a run whose loss is judged: a flat loss can also mean that learning has not begun."""
MIN_FALL_NATS = 0.01
MIN_FALL_FRACTION = 0.01
STANDARD_ERRORS = 2.0

STILL_LEARNING = "still learning"
LEVELLED_OFF = "levelled off"
SCHEDULE_ENDED = "schedule ended"
"""The loss is flat, as at the end of every schedule that lowers the learning rate: no evidence about more steps."""
RISING = "rising"
NOT_JUDGED = "not judged"

TOO_FEW_EVALUATIONS = "too few evaluations near the end"


class RunTrend(NamedTuple):
    """The fitted validation loss of a run at the start of the last part, its fall, and the steps of the last part."""

    loss: float
    fall: float
    steps: float


@dataclass(frozen=True)
class LossTrend:
    """The fall of a variant's validation loss over the last fifth of the steps, averaged over ``n`` runs.

    ``loss`` is the loss at the start of the last fifth, ``fall`` its decrease in nats, ``steps`` the length of the last
    fifth, ``error`` the standard error of the fall over seeds (NaN for a single run), ``passes`` the number of passes
    over the training data. ``reason`` explains why a trend is not judged, or why a change that is large beside the loss
    is flat.
    """

    verdict: str
    reason: str | None = None
    n: int = 0
    loss: float = math.nan
    fall: float = math.nan
    steps: float = math.nan
    error: float = math.nan
    passes: float = math.nan

    @property
    def fraction(self) -> float:
        """The fall as a fraction of the loss."""
        return self.fall / self.loss if self.loss else math.nan


class StepGap(NamedTuple):
    """A contrast's difference in validation loss, and the steps in which the baseline's loss falls by as much."""

    contrast: ContrastResult
    difference: float
    steps: float

    @property
    def agrees(self) -> bool:
        """Whether the side with the better score does not have the higher validation loss."""
        assert self.contrast.paired is not None
        gain = self.contrast.paired.mean
        if not higher_is_better(self.contrast.metric):
            gain = -gain
        return gain * self.difference <= 0


@dataclass(frozen=True)
class Convergence:
    """The trends of all variants with runs, the gaps of contrasts in steps, and the learning-rate schedules.

    ``decaying`` are the schedules that lower the learning rate towards the last step. ``gaps`` is empty unless the
    baseline is still learning. ``baseline_steps`` are its trained steps.
    """

    trends: Mapping[str, LossTrend]
    gaps: tuple[StepGap, ...]
    schedules: tuple[str, ...]
    decaying: tuple[str, ...]
    baseline_steps: int

    @property
    def ended(self) -> tuple[str, ...]:
        """The variants whose loss was flat when their schedule ended, in the order of the design."""
        return self._with_verdict(SCHEDULE_ENDED)

    @property
    def still_learning(self) -> tuple[str, ...]:
        """The variants that are still learning, in the order of the design."""
        return self._with_verdict(STILL_LEARNING)

    def _with_verdict(self, verdict: str) -> tuple[str, ...]:
        """Return the variants with a verdict, in the order of the design."""
        return tuple(slug for slug, trend in self.trends.items() if trend.verdict == verdict)

    @property
    def smallest_gap(self) -> StepGap | None:
        """The smallest gap of a detected contrast, without detected contrasts the largest gap, or None.

        A contrast in which the better score has the higher loss is left out: more steps would not explain its score.
        """
        agreeing = [gap for gap in self.gaps if gap.agrees]
        agreeing.sort(key=lambda gap: gap.steps)
        for gap in agreeing:
            if gap.contrast.detected:
                return gap
        return agreeing[-1] if agreeing else None


def convergence(frames: Frames, contrasts: Sequence[ContrastResult]) -> Convergence:
    """Return whether the variants of an experiment trained far enough.

    Variants that equal another one are left out. Only finished runs have a trend. A variant none of whose runs has a
    trend is not judged.

    Args:
        frames: The experiment.
        contrasts: The main contrasts, whose differences are given in steps of the baseline.
    """
    done = frames.runs.index[frames.runs["state"] == states.DONE]
    losses = frames.histories[frames.histories["metric"] == LOSS].dropna(subset=["value"])
    finished = losses[losses["run"].isin(done)].sort_values("step", kind="stable")
    run_trends = {}
    for run, curve in finished.groupby("run", observed=True, sort=False):
        run_trends[str(run)] = run_trend(curve["step"].to_numpy(), curve["value"].to_numpy())
    last_epochs = losses.groupby("run", observed=True)["epoch"].max()
    passes = {str(run): float(epoch) for run, epoch in last_epochs.items()}
    trends = {}
    schedules: dict[str, None] = {}
    decaying: dict[str, None] = {}
    for slug, variant in frames.by_slug.items():
        if frames.trained(slug) != slug:
            continue
        trends[slug] = _variant_trend(frames, slug, run_trends, passes)
        name = _schedule_name(variant.config.train)
        schedules[name] = None
        if variant.rate_decays:
            decaying[name] = None
    return Convergence(
        trends,
        _gaps(frames, contrasts, trends),
        tuple(schedules),
        tuple(decaying),
        frames.steps(frames.baseline),
    )


def _schedule_name(train: TrainConfig) -> str:
    """Return the name of a schedule, with its final learning rate unless that is 0 or not an option."""
    name = train.schedule.name
    final_lr = train.schedule.options.model_dump().get("final_lr")
    return f"{name} to {final_lr:g}" if final_lr else name


def run_trend(steps: NDArray[np.int64], losses: NDArray[np.float64]) -> RunTrend | str:
    """Fit a line to the losses of the last fifth of a run; the loss at its start is interpolated.

    Args:
        steps: Steps of the evaluations, ascending, ``[evaluation]``.
        losses: Their losses, without NaN, ``[evaluation]``.

    Returns:
        The trend. A text that says why it cannot be measured: with fewer than two evaluations, with fewer than
        MIN_STEPS steps, if the first evaluation is already in the last fifth, or if the evaluations before and after
        its start are further apart than a fifth and a step.
    """
    if len(steps) < 2:
        return "fewer than two evaluations"
    end = float(steps[-1])
    if end < MIN_STEPS:
        return f"fewer than {MIN_STEPS} steps"
    start = (1 - LAST_PART) * end
    length = LAST_PART * end
    first_inside = int(np.searchsorted(steps, start, side="right"))
    if first_inside == 0:
        return TOO_FEW_EVALUATIONS
    last_before = first_inside - 1
    gap = steps[first_inside] - steps[last_before]
    if steps[last_before] < start and gap > length + 1:
        return TOO_FEW_EVALUATIONS
    start_loss = np.interp(start, steps, losses)
    fitted_steps = np.append(start, steps[first_inside:])
    fitted_losses = np.append(start_loss, losses[first_inside:])
    slope, loss = np.polyfit(fitted_steps - start, fitted_losses, 1)
    return RunTrend(float(loss), float(-slope * length), length)


def _variant_trend(
    frames: Frames,
    slug: str,
    run_trends: Mapping[str, RunTrend | str],
    passes: Mapping[str, float],
) -> LossTrend:
    """Return the trend of a variant, averaged over its runs with a trend, and its `_verdict`.

    Without such a run, it is not judged, for the reason of its first run in ``run_trends``. The passes are averaged
    over all its runs in ``run_trends``.

    Args:
        frames: The experiment.
        slug: A variant with runs of its own.
        run_trends: The trends of finished runs with a validation loss, or why they cannot be measured.
        passes: The passes over the training data of each of these runs.

    Raises:
        KeyError: If ``passes`` lacks a run of the variant in ``run_trends``.
    """
    runs = [str(run) for run in frames.rows(slug).index if str(run) in run_trends]
    trends: list[RunTrend] = []
    for run in runs:
        trend = run_trends[run]
        if isinstance(trend, RunTrend):
            trends.append(trend)
    if not trends:
        reason = "no finished run with a validation loss"
        if runs:
            reason = str(run_trends[runs[0]])
        return LossTrend(NOT_JUDGED, reason, len(runs))
    mean = RunTrend(*np.mean(trends, axis=0).tolist())
    error = math.nan
    if len(trends) > 1:
        falls = [trend.fall for trend in trends]
        error = float(np.std(falls, ddof=1)) / math.sqrt(len(trends))
    verdict, verdict_reason = _verdict(frames, slug, mean, error)
    return LossTrend(
        verdict,
        verdict_reason,
        n=len(trends),
        loss=mean.loss,
        fall=mean.fall,
        steps=mean.steps,
        error=error,
        passes=float(np.mean([passes[run] for run in runs])),
    )


def _verdict(frames: Frames, slug: str, mean: RunTrend, error: float) -> tuple[str, str | None]:
    """Return the verdict on a mean trend, and the reason of a verdict that the fraction of the loss does not explain.

    A change of at most 1 % or 0.01 nats is flat. Neither a flat nor a larger change is judged if two standard errors
    are as much as the larger of these limits and as the change; the standard error of a single run is NaN, never so.
    """
    change = abs(mean.fall)
    limit = max(MIN_FALL_FRACTION * mean.loss, MIN_FALL_NATS)
    if STANDARD_ERRORS * error >= max(limit, change):
        return NOT_JUDGED, "the change differs too much over seeds"
    if change <= MIN_FALL_FRACTION * mean.loss:
        return _flat_verdict(frames, slug), None
    if change <= MIN_FALL_NATS:
        return _flat_verdict(frames, slug), f"the change is at most {MIN_FALL_NATS} nats"
    if mean.fall > 0:
        return STILL_LEARNING, None
    return RISING, None


def _flat_verdict(frames: Frames, slug: str) -> str:
    """Return the verdict on a flat loss, no evidence at the end of a schedule that lowers the learning rate."""
    stopped_early = frames.rows(slug)["stopped_early"].fillna(False).astype(bool)
    is_at_end = frames.by_slug[slug].rate_decays and not stopped_early.all()
    return SCHEDULE_ENDED if is_at_end else LEVELLED_OFF


def _gaps(
    frames: Frames, contrasts: Sequence[ContrastResult], trends: Mapping[str, LossTrend]
) -> tuple[StepGap, ...]:
    """Return the gaps of the tested contrasts with losses that are comparable to the baseline's.

    A gap is the mean difference in validation loss, in nats, and the training steps in which the baseline's loss falls
    by as much at its rate of the last fifth; the rates of other variants are not used. The mean is over the seeds of
    the contrast in which all its sides have a validation loss; a contrast without such a seed has no gap. There are no
    gaps unless the baseline is still learning.

    Args:
        frames: The experiment.
        contrasts: The main contrasts.
        trends: The trend of each variant with runs of its own.

    Raises:
        KeyError: If ``trends`` lacks the variant with the baseline's runs.
    """
    baseline = trends[frames.trained(frames.baseline)]
    if baseline.verdict != STILL_LEARNING:
        return ()
    gaps = []
    for result in contrasts:
        is_comparable = all(
            score_mismatch(frames, slug, frames.baseline, LOSS) is None for slug in result.variants
        )
        if result.paired is None or not is_comparable:
            continue
        contrast = result.contrast.with_sides(lambda side: Side(side.variant, LOSS))
        losses = {}
        for side in contrast.sides:
            by_seed = frames.scores(side.variant, LOSS)
            losses[side] = {seed: by_seed[seed] for seed in result.seeds if seed in by_seed}
        seeds, differences = contrast.values(losses)
        if seeds:
            difference = float(differences.mean())
            steps = abs(difference) * baseline.steps / baseline.fall
            gaps.append(StepGap(result, difference, steps))
    return tuple(gaps)
