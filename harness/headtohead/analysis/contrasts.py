"""The declared contrasts of an experiment, tested: variants, values of an axis, choices of a path.

The kinds are separate families for Holm's correction. A contrast that cannot be ranked says why,
and is not counted in its family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np

from headtohead.statistics import paired_tests
from headtohead.statistics.paired_tests import ALPHA, Paired
from headtohead.storage import states
from headtohead.storage.frames import Frames
from headtohead.storage.metrics import higher_is_better, is_loss, label, show
from headtohead.storage.records import ContrastRecord, FactorContrast, VariantContrast

BETTER, WORSE, UNDETECTED, IDENTICAL = "better", "worse", "no difference detected", "identical"
EQUAL = "equal by construction"
"""The reason of a contrast whose sides cannot differ."""


@dataclass(frozen=True)
class Contrast:
    """One comparison: who, on which seeds, by how much, and the word for it.

    ``kind`` is ``variant``, ``factor`` or ``choice``. ``verdict`` is empty where nothing can be
    said; ``reason`` then tells why. ``spread`` is the smallest and largest difference among the
    settings that a factor contrast averages over, or the orders of a choice, and ``settings_p`` the
    smallest p among them, adjusted by Holm for their number; ``within`` names axes that a factor's
    block holds fixed. ``left_out`` is the number of declared pairs that are equal by construction
    and do not enter the average. ``mde`` is the minimum detectable effect; where several families
    test the contrast, that of the largest family.
    """

    kind: str
    name: str
    left: str
    right: str
    metric: str
    axis: str | None = None
    within: str = ""
    seeds: tuple[int, ...] = ()
    paired: Paired | None = None
    holm_p: float = math.nan
    sign_flip_holm_p: float = math.nan
    verdict: str = ""
    reason: str | None = None
    spread: tuple[float, float] | None = None
    settings_p: float = math.nan
    pairs: tuple[tuple[str, str], ...] = ()
    left_out: int = 0
    mde: float = math.nan

    @property
    def found(self) -> bool:
        """Whether the contrast is a detected difference."""
        return self.verdict in (BETTER, WORSE)

    @property
    def settings_differ(self) -> bool:
        """Whether some of the averaged settings has a difference of its own."""
        return self.settings_p <= ALPHA

    @property
    def words(self) -> str:
        """The verdict as a reader sees it, with the minimum detectable effect."""
        if self.paired is None or not self.verdict:
            return self.reason or ""
        return self.verdict + (sensitivity([self]) if self.verdict == UNDETECTED else "")


def sensitivity(contrasts: Sequence[Contrast]) -> str:
    """Return the minimum detectable effect in brackets, of several contrasts its range."""
    known = [one for one in contrasts if math.isfinite(one.mde)]
    if not known:
        return ""
    ends = (min(one.mde for one in known), max(one.mde for one in known))
    shown = dict.fromkeys(show(end, known[0].metric) for end in ends)
    return f" (could have seen ≥ {' to '.join(shown)})"


@dataclass(frozen=True)
class Family:
    """Contrasts tested together, and what their number costs."""

    contrasts: tuple[Contrast, ...]
    tested: int
    seeds: int

    @property
    def floor(self) -> float:
        """The smallest Holm-adjusted sign-flip p that this family can reach."""
        return paired_tests.sign_flip_floor(self.tested, self.seeds)

    @property
    def seeds_needed(self) -> int:
        """The fewest seeds with which a sign-flip p could pass Holm's first step."""
        return paired_tests.seeds_needed(self.tested)

    @property
    def mde(self) -> float:
        """The minimum detectable effect in standard deviations of the paired difference."""
        return paired_tests.minimum_detectable_effect(1.0, self.seeds, self.tested)


class Families(NamedTuple):
    """The declared contrasts by family.

    ``variants`` compares every variant with the baseline, ``factors`` one axis value with another,
    averaged within each seed over the rest, and ``choices`` the points before and after a choice of
    a path, averaged within each seed over walks.
    """

    variants: Family
    factors: Family
    choices: Family


def families(frames: Frames, metric: str, *, allow_partial: bool = False) -> Families:
    """Test the declared contrasts, paired by seed, and adjust within each family."""
    drafts: dict[str, list[Contrast]] = {"variant": [], "factor": [], "choice": []}
    for declared in frames.record.contrasts:
        draft = _draft(frames, declared, metric)
        drafts[declared.kind].append(draft if draft.reason else _test(frames, draft, allow_partial))
    largest: dict[Any, int] = {}
    for family in drafts.values():
        tested = sum(_has_p(draft) for draft in family)
        for draft in family:
            key = _compared(frames, draft)
            largest[key] = max(largest.get(key, 0), tested)
    return Families(
        *(_family([_with_mde(one, largest[_compared(frames, one)]) for one in family]) for family in drafts.values())
    )


def _compared(frames: Frames, draft: Contrast) -> tuple[tuple[str, str], ...]:
    """Return the trained variants that a contrast compares, equal for equal contrasts."""
    return tuple(sorted((frames.trained(left), frames.trained(right)) for left, right in draft.pairs))


def variant_family(frames: Frames, metric: str, *, allow_partial: bool = False) -> Family:
    """Return the contrasts of every variant with the baseline."""
    return families(frames, metric, allow_partial=allow_partial).variants


def factor_family(frames: Frames, metric: str, *, allow_partial: bool = False) -> Family:
    """Return the contrasts of one axis value with another."""
    return families(frames, metric, allow_partial=allow_partial).factors


def factor_differences(
    scores: Mapping[str, Mapping[int, float]], pairs: Iterable[tuple[str, str]]
) -> tuple[list[int], np.ndarray]:
    """Return the seeds that every pair has on both sides, and differences ``[pair, seed]``."""
    pairs = list(pairs)
    shared: set[int] | None = None
    for left, right in pairs:
        both = scores[left].keys() & scores[right].keys()
        shared = both if shared is None else shared & both
    seeds = sorted(shared or ())
    rows = [[scores[left][seed] - scores[right][seed] for seed in seeds] for left, right in pairs]
    return seeds, np.array(rows, dtype=np.float64).reshape(len(pairs), len(seeds))


def unranked(frames: Frames, slug: str, metric: str) -> str | None:
    """Return why a variant's mean over seeds would mislead, or None if all its seeds are in."""
    scores = frames.scores(slug, metric)
    lacking = [seed for seed in frames.seeds if seed not in scores]
    if not lacking:
        return None
    rows = frames.rows(slug)
    found = dict(zip(rows["seed"].tolist(), rows["state"].tolist(), strict=True))
    counts: dict[str, int] = {}
    for seed in lacking:
        state = found.get(seed, states.PLANNED)
        label = f"without {metric}" if state == states.DONE else _WORDS.get(state, state.lower())
        counts[label] = counts.get(label, 0) + 1
    parts = ", ".join(f"{count} {label}" for label, count in counts.items())
    return f"{parts} of {len(frames.seeds)} seeds"


_WORDS = {
    states.PLANNED: "not run",
    states.LEASED: "not finished",
    states.RUNNING: "not finished",
    states.INTERRUPTED: "not finished",
    states.OOM: "out of memory",
    states.TIMEOUT: "timed out",
}


def incomplete(frames: Frames) -> dict[str, str]:
    """Return the variants that lack results, with the number of seeds that lack them."""
    found = {}
    for slug in frames.by_slug:
        missing = len(frames.seeds) - int(frames.rows(slug)["state"].isin(states.RESULTS).sum())
        if missing > 0:
            found[slug] = f"{missing} of {len(frames.seeds)} seeds without a result"
    return found


OTHER_DATA = "scores are of different data sets"


def score_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why scores of two variants do not compare, or None if they do."""
    if _data_set(frames, left) != _data_set(frames, right):
        return OTHER_DATA
    return loss_mismatch(frames, left, right, metric)


def _data_set(frames: Frames, slug: str) -> tuple[Any, ...]:
    """Return the dataset and its language pair; the size and the split are left out."""
    data = frames.by_slug[slug].config.get("data", {})
    return data.get("dataset"), (data.get("options") or {}).get("pair")


def loss_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why losses of two variants do not compare, or None if they do."""
    if not is_loss(metric):
        return None
    ours, theirs = _loss_setting(frames, left, metric), _loss_setting(frames, right, metric)
    differing = [name for name in ours if ours[name] != theirs[name]]
    return f"losses do not compare: {' and '.join(differing)} differ" if differing else None


def _loss_setting(frames: Frames, slug: str, metric: str) -> dict[str, Any]:
    """Return what a loss depends on besides the model.

    Only training losses are smoothed: evaluation never smooths labels.
    """
    config = frames.by_slug[slug].config
    train, data = config.get("train", {}), config.get("data", {})
    prints = frames.rows(slug)["data_hash"].dropna().unique()
    setting = {
        "vocabularies": (data.get("tokens"), data.get("vocabulary"), sorted(map(str, prints))[:1]),
        "predicted tokens": (train.get("target", "next"), data.get("target_boundaries")),
    }
    if metric.startswith("train/"):
        setting["label smoothing values"] = train.get("label_smoothing")
    return setting


def _draft(frames: Frames, declared: ContrastRecord, metric: str) -> Contrast:
    """Return a contrast before its test; equal steps of a choice count as zeros of a Shapley value."""
    if isinstance(declared, FactorContrast):
        return _factor(frames, declared, metric)
    if isinstance(declared, VariantContrast):
        left, right = declared.variant, declared.baseline
    else:
        left, right = declared.name, ""
    draft = Contrast(declared.kind, declared.name, left, right, metric, pairs=declared.pairs)
    return draft if distinct(frames, draft.pairs) else replace(draft, reason=EQUAL)


def _factor(frames: Frames, declared: FactorContrast, metric: str) -> Contrast:
    pairs, axis, value, against = declared.pairs, declared.axis, declared.value, declared.against
    within = ", ".join(f"{name} {label(held)}" for name, held in declared.given.items())
    draft = Contrast(
        "factor",
        f"{axis}: {label(value)} − {label(against)}" + (f" ({within})" if within else ""),
        label(value),
        label(against),
        metric,
        axis,
        within,
        pairs=pairs,
    )
    if not pairs:
        return replace(draft, reason="no two variants differ in this alone")
    kept = distinct(frames, pairs)
    if not kept:
        return replace(draft, reason=EQUAL)
    return replace(draft, pairs=kept, left_out=len(pairs) - len(kept))


def distinct(frames: Frames, pairs: Iterable[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """Return the pairs whose sides are not equal by construction."""
    return tuple((left, right) for left, right in pairs if frames.trained(left) != frames.trained(right))


def _test(frames: Frames, draft: Contrast, allow_partial: bool) -> Contrast:
    """Return the draft with its paired test, or with the reason why there is none."""
    metric, pairs = draft.metric, list(draft.pairs)
    for left, right in pairs:
        mismatch = score_mismatch(frames, left, right, metric)
        if mismatch:
            return replace(draft, reason=mismatch)
    scores = {slug: frames.scores(slug, metric) for pair in pairs for slug in pair}
    lacking = {slug: unranked(frames, slug, metric) for slug in scores}
    problems = {slug: reason for slug, reason in lacking.items() if reason}
    if problems and not allow_partial:
        return replace(draft, reason=f"not ranked: {_sentence(frames, problems)}")
    kept = [(left, right) for left, right in pairs if scores[left] and scores[right]]
    seeds, differences = factor_differences(scores, kept)
    if not kept or not seeds:
        return replace(draft, reason=f"not ranked: {_sentence(frames, problems)}")
    scale = max(abs(value) for slug in scores for value in scores[slug].values())
    return replace(
        draft,
        seeds=tuple(seeds),
        pairs=tuple(kept),
        paired=paired_tests.paired_differences(differences.mean(axis=0), scale=scale),
        reason=f"partial: {_sentence(frames, problems)}" if problems else None,
        spread=spread(differences, scale),
        settings_p=settings_p(differences, scale),
    )


def spread(differences: np.ndarray, scale: float) -> tuple[float, float] | None:
    """Return the smallest and largest mean of differences ``[pair, seed]``, None for one pair."""
    if len(differences) < 2:
        return None
    each = paired_tests.rounded(differences.mean(axis=1), scale)
    return float(each.min()), float(each.max())


def settings_p(differences: np.ndarray, scale: float) -> float:
    """Return the smallest p of differences ``[pair, seed]``, adjusted by Holm for the pairs.

    A difference that is the same in every seed and not zero counts as p = 0: a t-test is undefined.
    NaN with one pair or one seed.
    """
    if len(differences) < 2:
        return math.nan
    found = []
    for row in differences:
        one = paired_tests.paired_differences(row, scale=scale)
        found.append(0.0 if one.kind == "constant" else one.p)
    return min(paired_tests.holm(found))


def _sentence(frames: Frames, problems: Mapping[str, str]) -> str:
    shown = [f"{frames.by_slug[slug].title}: {reason}" for slug, reason in problems.items()]
    more = f" and {len(shown) - 2} more variants" if len(shown) > 2 else ""
    return "; ".join(shown[:2]) + more


def _family(drafts: Sequence[Contrast]) -> Family:
    """Correct the contrasts for their number and give each its word."""
    adjusted = paired_tests.holm([draft.paired.p if draft.paired else math.nan for draft in drafts])
    flips = paired_tests.holm([draft.paired.sign_flip_p if draft.paired else math.nan for draft in drafts])
    finished = tuple(_with_verdict(draft, p, flip) for draft, p, flip in zip(drafts, adjusted, flips, strict=True))
    tested = [len(draft.seeds) for draft in drafts if _has_p(draft)]
    return Family(finished, len(tested), min(tested, default=0))


def _has_p(draft: Contrast) -> bool:
    return draft.paired is not None and not math.isnan(draft.paired.p)


def _with_mde(draft: Contrast, contrasts: int) -> Contrast:
    paired = draft.paired
    if paired is None or paired.kind != "varied":
        return draft
    mde = paired_tests.minimum_detectable_effect(paired.sd, paired.n, contrasts)
    return replace(draft, mde=mde)


def _with_verdict(draft: Contrast, p: float, flip: float) -> Contrast:
    if draft.paired is None:
        return draft
    verdict, reason = _verdict(draft.paired, p, draft.metric)
    left_out = f"{draft.left_out} of {draft.left_out + len(draft.pairs)} settings {EQUAL}, left out"
    return replace(
        draft,
        holm_p=p,
        sign_flip_holm_p=flip,
        verdict=verdict,
        reason="; ".join(filter(None, [draft.reason, left_out * bool(draft.left_out), reason])) or None,
    )


def _verdict(result: Paired, p: float, metric: str) -> tuple[str, str | None]:
    if result.kind == "single":
        return "", "one seed: a difference, but no test"
    if result.kind == "identical":
        return IDENTICAL, "every seed gives the same score on both sides"
    if p <= ALPHA:
        better = (result.mean > 0) == higher_is_better(metric)
        word = BETTER if better else WORSE
        return word, _CONSTANT if result.kind == "constant" else None
    if result.kind == "constant":
        return "", f"{_CONSTANT}, and too few seeds for that to decide"
    return UNDETECTED, None


_CONSTANT = (
    "every seed differs by exactly the same amount: the interval is a point, the t-test is "
    "undefined and the sign-flip p stands in for it"
)
