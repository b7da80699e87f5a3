"""The answer of a path in one sentence: the distance, whose it is, and what was not detected."""

from __future__ import annotations

import math

from headtohead.analysis.contrasts import UNDETECTED, sensitivity
from headtohead.analysis.shapley import PathAnalysis, Share
from headtohead.statistics.paired_tests import Paired
from headtohead.storage.metrics import readable, show

MOST_NAMES = 5
"""Choices named one by one in a part of the sentence; the table names all."""


def path_answer(path: PathAnalysis) -> str:
    """Return which choice accounts for most of the distance, as far as the runs tell."""
    found = [share for share in path.shares if share.contrast.found]
    parts = [_distance(path), *_largest(path, found)]
    undetected = [share for share in path.shares if share.undetected]
    mixed = [share for share in path.shares if share.mixed]
    unknown = [share for share in path.shares if not share.known]
    seen = sensitivity([share.contrast for share in undetected])
    if undetected and not found and not unknown and not mixed:
        parts.append(f"no choice made a detectable difference{seen}")
    elif undetected:
        parts.append(f"no difference detected for {_names(undetected)}{seen}")
    if mixed:
        named = [share.name + _over_orders(share) for share in mixed[:MOST_NAMES]]
        more = f" and {len(mixed) - MOST_NAMES} more" if len(mixed) > MOST_NAMES else ""
        parts.append(
            f"inconclusive on average: {' and '.join(named)}{more}{sensitivity([share.contrast for share in mixed])}"
        )
    nothing = [share for share in path.shares if share.nothing or (_identical(share) and not share.mixed)]
    if nothing:
        parts.append(f"{_names(nothing)} changed no score")
    if unknown:
        parts.append(f"not judged: {_names(unknown)} ({unknown[0].contrast.reason})")
    return "; ".join(parts) + "."


def _distance(path: PathAnalysis) -> str:
    start, end = path.names
    metric = readable(path.distance.metric)
    whole = path.distance.paired
    if whole is None:
        reason = (path.distance.reason or "").removeprefix("not ranked: ")
        return f"the distance from {start} to {end} is not known ({reason})"
    if path.distance.verdict == UNDETECTED:
        return f"between {start} and {end} {path.distance.words} in {metric}"
    if whole.mean == 0:
        return f"{start} and {end} have the same {metric}"
    return f"from {start} to {end} {metric} changes by {_amount(whole, path.distance.metric)}{_untested(whole)}"


def _largest(path: PathAnalysis, found: list[Share]) -> list[str]:
    """Return who accounts for most of the distance, then the other detected shares."""
    if not found:
        return _largest_untested(path)
    whole = path.distance.paired
    along = [share for share in found if whole and share.mean * whole.mean > 0]
    first = (along or found)[0]
    metric = path.distance.metric
    if along and path.distance.found:
        part = "most" if path.is_most(first) else "the largest part"
        says = f"accounts for {part} of it"
    else:
        says = "has the largest share"
    lead = f"{_in_full(first)} {says}, {_told(first)}{_over_orders(first)}"
    others = [share for share in found if share is not first]
    if not others:
        return [lead]
    named = ", ".join(f"{one.name} {_told(one)}" for one in others[:MOST_NAMES])
    more = others[MOST_NAMES:]
    rest = f" and {len(more)} more of at most {show(abs(more[0].mean), metric)} each" if more else ""
    return [lead, f"also detected: {named}{rest}"]


def _largest_untested(path: PathAnalysis) -> list[str]:
    known = [share for share in path.known if share.contrast.paired is not None]
    if not known or path.distance.paired is None:
        return []
    if path.distance.paired.kind == "single":
        return [f"the largest share is {known[0].name}'s, {_told(known[0])}; one seed cannot tell it from chance"]
    return []


def _in_full(share: Share) -> str:
    return f"{share.name} ({share.before} → {share.after})"


def _told(share: Share) -> str:
    paired = share.contrast.paired
    return _amount(paired, share.contrast.metric) if paired else "0"


def _amount(paired: Paired, metric: str) -> str:
    size = show(paired.mean, metric, signed=True)
    if paired.kind == "constant":
        return f"{size} in every seed"
    if not math.isfinite(paired.low):
        return size
    low, high = (show(end, metric, signed=True) for end in (paired.low, paired.high))
    return f"{size} (95 % interval {low} to {high})"


def _untested(paired: Paired) -> str:
    return ", one seed" if paired.kind == "single" else ""


def _over_orders(share: Share) -> str:
    """Return what the share is an average of, where orders differ."""
    spread = share.contrast.spread
    if spread is None:
        return ""
    low, high = (show(end, share.contrast.metric, signed=True) for end in spread)
    return f", {low} to {high} in single orders" if low != high else ""


def _names(shares: list[Share]) -> str:
    names = [share.name for share in shares]
    if len(names) > MOST_NAMES:
        return f"{', '.join(names[:MOST_NAMES])} and {len(names) - MOST_NAMES} more"
    return " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


def _identical(share: Share) -> bool:
    return share.contrast.paired is not None and share.contrast.paired.kind == "identical"
