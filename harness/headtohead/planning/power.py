"""The smallest difference that a design can detect, before and after the first runs."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headtohead.statistics.paired_tests import ALPHA, POWER, minimum_detectable_effect, seeds_needed, sign_flip_floor
from headtohead.storage.metrics import show


@dataclass(frozen=True)
class Power:
    """What one family of contrasts can detect.

    ``effect`` is the minimum detectable effect in standard deviations of the paired difference;
    ``difference`` the same in the ``metric`` for the median contrast, once finished runs give its
    standard deviation ``sd``. ``floor`` is the smallest Holm-adjusted sign-flip p that these seeds
    can reach.
    """

    family: str
    contrasts: int
    seeds: int
    effect: float
    floor: float
    seeds_needed: int
    metric: str
    sd: float | None
    difference: float | None

    @property
    def words(self) -> str:
        """Tell a reader in one line."""
        what = f"{self.contrasts} {self.family} contrast{'s' if self.contrasts != 1 else ''}"
        if self.seeds < 2:
            return f"{what}: one seed gives a difference but no test; use at least 2, better 6"
        seen = f"{what} on {self.seeds} seeds detect {self.effect:.2f} sd of the paired difference"
        if self.difference is not None:
            seen += f", for the median contrast {show(self.difference, self.metric)}"
        seen += f" ({POWER:.0%} power, Holm at {ALPHA})"
        floor = f"sign-flip p after Holm cannot go below {self.floor:.2g}"
        if self.floor > ALPHA:
            floor += f"; {self.seeds_needed} seeds are needed for {ALPHA}"
        return f"{seen}; {floor}"


def power_of(family: str, contrasts: int, seeds: int, metric: str, sd: float | None = None) -> Power:
    """Compute the power of a paired t-test over a family of that many contrasts."""
    effect = minimum_detectable_effect(1.0, seeds, contrasts)
    return Power(
        family=family,
        contrasts=contrasts,
        seeds=seeds,
        effect=effect,
        floor=sign_flip_floor(contrasts, seeds),
        seeds_needed=seeds_needed(contrasts),
        metric=metric,
        sd=sd,
        difference=None if sd is None else effect * sd,
    )


def typical_sd(pairs: Sequence[tuple[str, str]], scores: Mapping[str, Mapping[int, float]]) -> float | None:
    """Return the median, over contrasts, of the sd of differences paired by seed."""
    found = []
    for left, right in pairs:
        ours, theirs = scores.get(left, {}), scores.get(right, {})
        differences = [ours[seed] - theirs[seed] for seed in sorted(ours.keys() & theirs.keys())]
        if len(differences) > 1:
            found.append(statistics.stdev(differences))
    return statistics.median(found) if found else None
