"""The scores of an experiment in one metric: means, order, and which variants can be ranked and compared."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import cache, cached_property
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from scipy.stats import binomtest, fisher_exact

from headtohead.planning.variants import comparison_group
from headtohead.schema.metric import UNPADDED, Metric, leaf
from headtohead.storage import states
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import find, higher_is_better, is_loss, span, stored, unpadded
from headtohead_judge.collapse import collapsed
from headtohead_judge.contrast import ScoreTable, Side, shared_seeds
from headtohead_judge.paired_tests import CONFIDENCE, Interval, Summary, summarise

OTHER_DATA = "the variants use different data sets"

_CAUSES = {
    states.PLANNED: "not run",
    states.LEASED: "not finished",
    states.RUNNING: "not finished",
    states.INTERRUPTED: "not finished",
    states.OOM: "out of memory",
    states.TIMEOUT: "timed out",
}


class Scores:
    """The scores of all variants in ``metric``, by default the primary metric of the experiment.

    ``allow_partial`` ranks variants on the seeds that are finished.
    """

    def __init__(
        self, frames: Frames, metric: str | None = None, *, allow_partial: bool = False
    ) -> None:
        self.frames = frames
        self.metric = metric or frames.record.metrics.primary
        self.allow_partial = allow_partial

    @property
    def sign(self) -> float:
        """1 if larger values of the metric are better, else -1."""
        return 1.0 if higher_is_better(self.metric) else -1.0

    @cached_property
    def summaries(self) -> Mapping[str, Summary]:
        """Mean and interval over seeds by variant."""
        return {slug: self.frames.summary(slug, self.metric) for slug in self.frames.by_slug}

    @property
    def baseline_sd(self) -> float:
        """The standard deviation of the baseline over seeds without a collapsed run."""
        return self.healthy_summary(self.frames.baseline, self.metric).sd

    @cached_property
    def data_sets(self) -> tuple[tuple[str, ...], ...]:
        """The trained variants by data set; the variants of one share what a seed changes, so a seed is their block."""
        groups: list[list[str]] = []
        for slug in dict.fromkeys(map(self.frames.trained, self.frames.by_slug)):
            own = next(
                (group for group in groups if same_data_set(self.frames, group[0], slug)), None
            )
            own.append(slug) if own else groups.append([slug])
        return tuple(map(tuple, groups))

    def table(self, sides: Iterable[Side]) -> ScoreTable:
        """Return the scores with which a contrast of trained variants is estimated; collapsed runs do not count.

        They include those of all variants in the same metric and for the same source lengths. The variants of a data
        set are a block. A contrast of several metrics or lengths has no blocks.
        """
        kinds = {(side.metric, side.lengths) for side in sides}
        if len(kinds) == 1:
            return self._tables(*kinds.pop())
        return ScoreTable({side: self._with_collapsed(side) for side in sides})

    @cached_property
    def _tables(self) -> Callable[[str, tuple[int, int] | None], ScoreTable]:
        """Return the table of a metric for some source lengths; each is made once."""
        return cache(self._table)

    def _table(self, metric: str, lengths: tuple[int, int] | None) -> ScoreTable:
        blocks = []
        scores = {}
        for data_set in self.data_sets:
            block = tuple(Side(slug, metric, lengths) for slug in data_set)
            blocks.append(block)
            for side in block:
                scores[side] = self._with_collapsed(side)
        return ScoreTable(scores, tuple(blocks))

    def _with_collapsed(self, side: Side) -> dict[int, float]:
        """Return the scores of a side by seed, NaN for collapsed runs."""
        failed = self.collapsed.get(self.frames.trained(side.variant), frozenset())
        by_seed = scores_of(self.frames, side)
        return {seed: math.nan if seed in failed else value for seed, value in by_seed.items()}

    @cached_property
    def collapsed(self) -> Mapping[str, frozenset[int]]:
        """The trained variants with collapsed runs, with their seeds, by the final validation losses of a data set."""
        frames, loss, found = self.frames, "valid/loss", {}
        for group in self.data_sets:
            first = (
                frames.trained(frames.baseline)
                if frames.trained(frames.baseline) in group
                else group[0]
            )
            losses = {
                slug: own
                for slug in group
                if (own := frames.scores(slug, loss))
                and not loss_mismatch(frames, slug, first, loss)
            }
            flags = collapsed([[*own.values()] for own in losses.values()]) if losses else []
            for (slug, own), row in zip(losses.items(), flags, strict=True):
                found[slug] = frozenset(
                    seed for seed, is_collapsed in zip(own, row, strict=True) if is_collapsed
                )
        return {slug: seeds for slug, seeds in found.items() if seeds}

    @cached_property
    def collapses(self) -> Mapping[str, Collapse]:
        """How many runs collapsed, of the baseline and of every variant with a collapsed run; empty without any."""
        frames, baseline = self.frames, self.frames.trained(self.frames.baseline)
        totals = {
            slug: len(frames.scores(slug, "valid/loss")) for slug in (baseline, *self.collapsed)
        }
        counts = {slug: len(failed) for slug, failed in self.collapsed.items()}
        other = counts.get(baseline, 0), totals[baseline] - counts.get(baseline, 0)
        return {
            slug: Collapse(
                count := counts.get(slug, 0),
                total,
                Interval(CONFIDENCE, *binomtest(count, total).proportion_ci(CONFIDENCE, "exact")),
                math.nan
                if slug == baseline
                else float(fisher_exact([[count, total - count], other]).pvalue),
                frames.summary(slug, self.metric),
                summarise([*self.healthy(Side(slug, self.metric)).values()], span(self.metric)),
            )
            for slug in dict.fromkeys([baseline, *counts])
            if counts and (total := totals[slug])
        }

    def healthy(self, side: Side) -> dict[int, float]:
        """Return the scores of a side by seed, without collapsed runs."""
        by_seed = self._with_collapsed(side)
        return {seed: value for seed, value in by_seed.items() if not math.isnan(value)}

    def shared_seeds(self, sides: Iterable[Side]) -> list[int]:
        """Return the seeds in which all sides have a score and no run collapsed; none without sides."""
        return shared_seeds([self._with_collapsed(side) for side in sides])

    def margin(self, metric: str, against: Collection[str] = ()) -> float | None:
        """Return the margin for a verdict on the size; None without one, or if there is less `room`."""
        margin = self.frames.record.margins.get(metric)
        return margin.value if margin and margin.value <= self.room(metric, against) else None

    def room(self, metric: str, against: Collection[str] = ()) -> float:
        """Return how much better a score can be than the mean of the variants ``against``, by default the baseline.

        It is infinite without a bound or a score.
        """
        means = [
            self.healthy_summary(slug, metric).mean for slug in against or (self.frames.baseline,)
        ]
        mean, bound = sum(means) / len(means), span(metric)[higher_is_better(metric)]
        return math.inf if math.isnan(mean) else abs(bound - mean)

    def healthy_summary(self, slug: str, metric: str) -> Summary:
        """Return mean and standard deviation of a variant over seeds without a collapsed run."""
        return summarise([*self.healthy(Side(slug, metric)).values()])

    @cached_property
    def variable(self) -> Mapping[str, float]:
        """The variants with a significantly larger variance than the others of their data set, as a ratio of sds."""
        found = {}
        for _, larger in self._tables(self.metric, None).pooled_blocks:
            for side, ratio in larger.items():
                found[side.variant] = ratio
        return found

    @cached_property
    def missing_seeds(self) -> Mapping[str, str]:
        """The variants with missing seeds, with the reason."""
        return {
            slug: reason
            for slug in self.frames.by_slug
            if (reason := missing_seeds(self.frames, slug, self.metric))
        }

    @cached_property
    def judged_on(self) -> Mapping[str, str]:
        """The metric of the declared contrasts of each variant whose task lacks ``metric``, such as a text."""
        metric_of: dict[str, str] = {}
        for record in self.frames.record.contrasts:
            if record.family != "declared":
                continue
            for side in record.contrast(self.metric).sides:
                has_scores = missing_seeds(self.frames, side.variant, side.metric) is None
                if has_scores and not self.summaries[side.variant].n:
                    metric_of.setdefault(side.variant, side.metric)
        return metric_of

    @cached_property
    def unranked(self) -> Mapping[str, str]:
        """The variants without a reported mean in any metric, with the reason."""
        return {
            slug: reason
            for slug, reason in self.missing_seeds.items()
            if slug not in self.judged_on and not (self.allow_partial and self.summaries[slug].n)
        }

    @cached_property
    def incomplete(self) -> Mapping[str, str]:
        """The variants with runs that have no result yet, with the number of their seeds."""
        rows, seeds = self.frames.rows, len(self.frames.seeds)
        missing = {
            slug: seeds - int(rows(slug)["state"].isin(states.RESULTS).sum())
            for slug in self.frames.by_slug
        }
        return {
            slug: f"{n} of {seeds} seeds without a result" for slug, n in missing.items() if n > 0
        }

    @cached_property
    def order(self) -> tuple[str, ...]:
        """The variants, best first and variants with missing seeds last, by value of the axes ``data`` and ``size``."""
        variants = self.frames.by_slug
        groups = {
            slug: tuple(comparison_group(variant.axes).items())
            for slug, variant in variants.items()
        }
        order = list(dict.fromkeys(groups.values()))

        def sort_key(slug: str) -> tuple[int, bool, bool, float]:
            metric = self.judged_on.get(slug, self.metric)
            mean = self.frames.summary(slug, metric).mean
            is_last = slug in self.missing_seeds and not self.allow_partial
            value = -mean if higher_is_better(metric) else mean
            value = 0.0 if math.isnan(mean) else value
            return order.index(groups[slug]), is_last, math.isnan(mean), value

        return tuple(sorted(variants, key=sort_key))

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """The variants with a reported mean in ``metric``, best first."""
        without_mean = self.unranked.keys() | self.judged_on.keys()
        return tuple(slug for slug in self.order if slug not in without_mean)

    def leading(self, most: int, among: Collection[str] | None = None) -> list[str]:
        """Return the best variants ``among`` some, by default among all: at most this many, the baseline included.

        Every data set has about equally many.
        """
        order = [slug for slug in self.order if among is None or slug in among]
        groups = [
            [slug for slug in order if self.frames.trained(slug) in group]
            for group in self.data_sets
        ]
        chosen = [*filter(None, itertools.chain(*itertools.zip_longest(*groups)))][:most]
        best, baseline = sorted(chosen, key=order.index), self.frames.baseline
        return best if baseline in best or baseline not in order else [*best[:-1], baseline]

    @cached_property
    def upper_bound(self) -> float | None:
        """The bag-of-words upper bound: the highest exact match that an order-invariant encoder can reach.

        None if the data states none, the metric has other counts than exact match, or no variant has an encoder.
        """
        bound = self.frames.record.data.get("bag_of_words_upper_bound")
        if bound is None or float(bound) >= 1 or leaf(stored(self.metric)) != "exact_match":
            return None
        has_encoder = any(
            "encoder" in variant.config.roles for variant in self.frames.by_slug.values()
        )
        holds = has_encoder and self._has_bound(self.frames.baseline)
        return float(bound) if holds else None

    @cached_property
    def upper_bound_verdicts(self) -> Mapping[str, str]:
        """Whether the scores of each order-invariant variant respect the bag-of-words upper bound.

        Scores without padding are used where they were evaluated: padding that a mask does not hide reveals the
        sentence length to the encoder, which a bag of words does not.
        """
        if self.upper_bound is None:
            return {}
        verdicts, frames, metric = {}, self.frames, stored(self.metric)
        for slug, variant in frames.by_slug.items():
            scores = frames.scores(slug, unpadded(metric)) or frames.scores(slug, metric)
            if variant.order_invariant and self._has_bound(slug) and scores:
                exceeds = max(scores.values()) > self.upper_bound + 1e-9
                verdicts[slug] = (
                    "exceeds the upper bound: suspect" if exceeds else "within the upper bound"
                )
        return verdicts

    def _has_bound(self, slug: str) -> bool:
        """Return whether the upper bound of the baseline's test data is that of a variant's scores."""
        limit = self.frames.by_slug[slug].config.evaluate.test_limit
        scores_all = limit is None or limit >= self.frames.record.data["counts"]["test"]
        return scores_all and self.frames.same_data((slug, self.frames.baseline))


class Collapse(NamedTuple):
    """How many of a variant's runs collapsed: rate with exact interval, p against the baseline (Fisher), and scores."""

    collapsed: int
    runs: int
    interval: Interval
    p: float
    all_runs: Summary
    without: Summary


def scores_of(frames: Frames, side: Side) -> dict[int, float]:
    """Return the scores of a side of a contrast by seed."""
    if side.lengths is None:
        return frames.scores(side.variant, side.metric)
    return pooled_scores(frames, side.variant, side.metric, side.lengths)


def missing_scores(frames: Frames, side: Side, scores: Mapping[int, float]) -> str | None:
    """Return which seeds of a side have no score, or None."""
    missing = [seed for seed in frames.seeds if seed not in scores]
    if missing and side.metric.startswith("heads/"):
        return f"no head ablation; run h2h ablate-heads {frames.record.name}, then h2h report"
    reason = missing_seeds(frames, side.variant, side.metric)
    if reason or not missing:
        return reason
    return f"{len(missing)} of {len(frames.seeds)} seeds without {side.metric} at these lengths"


def missing_seeds(frames: Frames, slug: str, metric: str) -> str | None:
    """Return why a variant is not ranked: counts of the seeds without a score by cause, or None."""
    scores, rows = frames.scores(slug, metric), frames.rows(slug)
    state_of = dict(zip(rows["seed"].tolist(), rows["state"].tolist(), strict=True))
    missing = [state_of.get(seed, states.PLANNED) for seed in frames.seeds if seed not in scores]
    named = {**_CAUSES, states.DONE: f"without {metric}"}
    causes = Counter(named.get(state, state.lower()) for state in missing)
    counts = ", ".join(f"{count} {cause}" for cause, count in causes.items())
    return f"{counts} of {len(frames.seeds)} seeds" if missing else None


def score_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why the scores of two variants cannot be compared, or None."""
    if not same_data_set(frames, left, right):
        return OTHER_DATA
    return loss_mismatch(frames, left, right, metric)


def same_data_set(frames: Frames, left: str, right: str) -> bool:
    """Return whether two variants have the same values of the axes ``data`` and ``size``, dataset and languages.

    Number of examples and split can differ. The languages are those of the runs; without a run they are taken as equal.
    """
    variants = frames.by_slug[left], frames.by_slug[right]
    named = {
        (*comparison_group(variant.axes).items(), variant.config.data.dataset)
        for variant in variants
    }
    runs = [*frames.rows(left).index, *frames.rows(right).index]
    languages = {
        tuple(frames.records[run].data["languages"]) for run in runs if run in frames.records
    } - {()}
    return len(named) == 1 and len(languages) < 2


def loss_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why the losses of two variants cannot be compared, or None for other metrics and comparable losses.

    Label smoothing and z-loss affect training losses only.
    """
    if not is_loss(metric):
        return None
    fields = {
        "vocabularies": attrgetter("data.tokens", "data.vocabulary"),
        "labels": attrgetter("quirks.shift_targets", "data.target_boundaries"),
    }
    if metric.startswith("train/"):
        fields["label smoothing values"] = attrgetter("train.label_smoothing")
        fields["z-losses"] = attrgetter("train.z_loss")
    configs = [frames.by_slug[slug].config for slug in (left, right)]
    differing = [
        name for name, values in fields.items() if values(configs[0]) != values(configs[1])
    ]
    if "vocabularies" not in differing and not frames.same_data((left, right)):
        differing.insert(0, "vocabularies")
    return f"losses are not comparable: {' and '.join(differing)} differ" if differing else None


def pooled_scores(
    frames: Frames, slug: str, metric: str, lengths: tuple[int, int]
) -> dict[int, float]:
    """Return a variant's score over the test sentences of these source lengths, by seed.

    It is empty for metrics that cannot be computed from counts, and for runs without counts.
    """
    table, known = frames.buckets, of_test_sentences(metric)
    if known is None or known.pool is None or "counts" not in table:
        return {}
    inside = table[(table["low"] >= lengths[0]) & (table["high"] <= lengths[1])].dropna(
        subset=["counts"]
    )
    scores, name = {}, known.counts_of or known.name
    for run, seed in frames.rows(slug)["seed"].items():
        counts = [own[name] for own in inside.loc[inside["run"] == run, "counts"] if name in own]
        if counts:
            scores[int(seed)] = known.pool(np.array(counts).sum(axis=0).tolist())
    return scores


def of_test_sentences(metric: str) -> Metric | None:
    """Return a metric of the padded test sentences, or None for other metrics."""
    return find(metric) if metric.startswith("test/") and not metric.endswith(UNPADDED) else None
