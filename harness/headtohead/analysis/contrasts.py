"""The declared contrasts of an experiment, tested: variants, values of an axis, choices of a path.

The kinds are separate families for Holm's correction. A contrast that cannot be ranked says why,
and is not counted in its family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from headtohead.analysis import statistics
from headtohead.analysis.frames import FINAL, Frames
from headtohead.analysis.metrics import higher_is_better, is_loss, label, show
from headtohead.analysis.statistics import ALPHA, Paired

BETTER, WORSE, UNDETECTED, IDENTICAL = "better", "worse", "no difference detected", "identical"


@dataclass(frozen=True)
class Contrast:
    """One comparison: who, on which seeds, by how much, and the word for it.

    ``kind`` is ``variant``, ``factor`` or ``choice``. ``verdict`` is empty where nothing can be
    said; ``reason`` then tells why. ``spread`` is the smallest and largest difference among the
    settings that a factor contrast averages over, or the orders of a choice; ``within`` names axes
    that a factor's block holds fixed.
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
    pairs: tuple[tuple[str, str], ...] = ()

    @property
    def found(self) -> bool:
        """Whether the contrast is a detected difference."""
        return self.verdict in (BETTER, WORSE)

    @property
    def words(self) -> str:
        """The verdict as a reader sees it, with what the study could have seen."""
        if self.paired is None or not self.verdict:
            return self.reason or ""
        if self.verdict == UNDETECTED and math.isfinite(self.paired.detectable):
            return f"{UNDETECTED} (could have seen ≥ {show(self.paired.detectable, self.metric)})"
        return self.verdict


@dataclass(frozen=True)
class Family:
    """Contrasts tested together, and what their number costs."""

    contrasts: tuple[Contrast, ...]
    tested: int
    seeds: int

    @property
    def floor(self) -> float:
        """The smallest Holm-adjusted sign-flip p that this family can reach."""
        return statistics.sign_flip_floor(self.tested, self.seeds)

    @property
    def seeds_needed(self) -> int:
        """The fewest seeds with which a sign-flip p could pass Holm's first step."""
        return statistics.seeds_needed(self.tested)


def variant_family(frames: Frames, metric: str, *, allow_partial: bool = False) -> Family:
    """Test every declared variant against the baseline, paired by seed."""
    drafts = [
        _variant(frames, declared, metric, allow_partial)
        for declared in frames.experiment.get("contrasts", [])
        if declared["kind"] == "variant"
    ]
    return _family(drafts, metric)


def factor_family(frames: Frames, metric: str, *, allow_partial: bool = False) -> Family:
    """Test one axis value against another, averaged within each seed over the rest."""
    drafts = [
        _factor(frames, declared, metric, allow_partial)
        for declared in frames.experiment.get("contrasts", [])
        if declared["kind"] == "factor"
    ]
    return _family(drafts, metric)


def choice_family(frames: Frames, metric: str, *, allow_partial: bool = False) -> Family:
    """Test every choice of a path: its steps' differences, averaged within each seed over walks."""
    drafts = [
        _choice(frames, declared, metric, allow_partial)
        for declared in frames.experiment.get("contrasts", [])
        if declared["kind"] == "choice"
    ]
    return _family(drafts, metric)


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
    states = dict(zip(rows["seed"].tolist(), rows["state"].tolist(), strict=True))
    counts: dict[str, int] = {}
    for seed in lacking:
        state = states.get(seed, "PLANNED")
        label = f"without {metric}" if state == "DONE" else _WORDS.get(state, state.lower())
        counts[label] = counts.get(label, 0) + 1
    parts = ", ".join(f"{count} {label}" for label, count in counts.items())
    return f"{parts} of {len(frames.seeds)} seeds"


_WORDS = {
    "PLANNED": "not run",
    "CLAIMED": "not finished",
    "RUNNING": "not finished",
    "OOM": "out of memory",
    "TIMEOUT": "timed out",
}


def incomplete(frames: Frames) -> dict[str, str]:
    """Return variants with runs that have not come to a result, with what is missing of them."""
    found = {}
    for slug in frames.variants:
        states = list(frames.rows(slug)["state"])
        missing = len(frames.seeds) - sum(state in FINAL for state in states)
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
    """Return what tells data sets apart; how much of one is used, and how, does not."""
    data = (frames.variants[slug].get("config") or {}).get("data", {})
    return data.get("dataset"), data.get("pair")


def loss_mismatch(frames: Frames, left: str, right: str, metric: str) -> str | None:
    """Return why losses of two variants do not compare, or None if they do."""
    if not is_loss(metric):
        return None
    ours, theirs = _loss_setting(frames, left), _loss_setting(frames, right)
    differing = [name for name in ours if ours[name] != theirs[name]]
    return f"losses do not compare: {' and '.join(differing)} differ" if differing else None


def _loss_setting(frames: Frames, slug: str) -> dict[str, Any]:
    config = frames.variants[slug].get("config") or {}
    train, data = config.get("train", {}), config.get("data", {})
    prints = frames.rows(slug)["fingerprint"].dropna().unique()
    return {
        "vocabularies": (data.get("tokens"), data.get("vocabulary"), sorted(map(str, prints))[:1]),
        "label smoothing": train.get("label_smoothing"),
        "predicted tokens": (train.get("target", "next"), data.get("target_boundaries")),
    }


def _variant(
    frames: Frames, declared: Mapping[str, Any], metric: str, allow_partial: bool
) -> Contrast:
    left, right = declared["variant"], declared["baseline"]
    draft = Contrast("variant", declared["name"], left, right, metric, pairs=((left, right),))
    if frames.trained(left) == frames.trained(right):
        return replace(draft, verdict="", reason="equal by construction")
    return _test(frames, draft, allow_partial)


def _factor(
    frames: Frames, declared: Mapping[str, Any], metric: str, allow_partial: bool
) -> Contrast:
    pairs = tuple((left, right) for left, right in declared["pairs"])
    axis, value, against = declared["axis"], declared["value"], declared["against"]
    within = ", ".join(f"{name} {label(one)}" for name, one in declared.get("given", {}).items())
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
    if all(frames.trained(left) == frames.trained(right) for left, right in pairs):
        return replace(draft, reason="equal by construction")
    return _test(frames, draft, allow_partial)


def _choice(
    frames: Frames, declared: Mapping[str, Any], metric: str, allow_partial: bool
) -> Contrast:
    pairs = tuple((left, right) for left, right in declared["pairs"])
    name = declared["name"]
    draft = Contrast("choice", name, name, "", metric, pairs=pairs)
    if all(frames.trained(left) == frames.trained(right) for left, right in pairs):
        return replace(draft, reason="equal by construction")
    return _test(frames, draft, allow_partial)


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
    each = statistics.rounded(differences.mean(axis=1), scale)
    return replace(
        draft,
        seeds=tuple(seeds),
        pairs=tuple(kept),
        paired=statistics.paired_differences(differences.mean(axis=0), scale=scale),
        reason=f"partial: {_sentence(frames, problems)}" if problems else None,
        spread=(float(each.min()), float(each.max())) if len(kept) > 1 else None,
    )


def _sentence(frames: Frames, problems: Mapping[str, str]) -> str:
    shown = [f"{frames.variants[slug]['title']}: {reason}" for slug, reason in problems.items()]
    more = f" and {len(shown) - 2} more variants" if len(shown) > 2 else ""
    return "; ".join(shown[:2]) + more


def _family(drafts: Sequence[Contrast], metric: str) -> Family:
    """Correct the contrasts for their number and give each its word."""
    tested = sum(_has_p(draft) for draft in drafts)
    adjusted = statistics.holm([draft.paired.p if draft.paired else math.nan for draft in drafts])
    flips = statistics.holm(
        [draft.paired.sign_flip_p if draft.paired else math.nan for draft in drafts]
    )
    finished = tuple(
        _with_verdict(draft, p, flip, tested)
        for draft, p, flip in zip(drafts, adjusted, flips, strict=True)
    )
    seeds = min((len(draft.seeds) for draft in drafts if _has_p(draft)), default=0)
    return Family(finished, tested, seeds)


def _has_p(draft: Contrast) -> bool:
    return draft.paired is not None and not math.isnan(draft.paired.p)


def _with_verdict(draft: Contrast, p: float, flip: float, tested: int) -> Contrast:
    if draft.paired is None:
        return draft
    # what could have been seen is judged at the level of Holm's first, hardest step
    level = ALPHA / max(tested, 1)
    detectable = (
        statistics.smallest_detectable(draft.paired.sd, draft.paired.n, alpha=level)
        if draft.paired.kind == "varied"
        else math.nan
    )
    result = replace(draft.paired, detectable=detectable)
    verdict, reason = _verdict(result, p, draft.metric)
    return replace(
        draft,
        paired=result,
        holm_p=p,
        sign_flip_holm_p=flip,
        verdict=verdict,
        reason="; ".join(filter(None, [draft.reason, reason])) or None,
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
