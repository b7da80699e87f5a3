"""A ledger of changes that are tested one after another: each candidate against the incumbent, the last kept change.

LORD++ (`headtohead.statistics.online`) gives each decision its level, so that at most 5 % of the kept changes are
expected to be no improvement. ``benchmarks/simulation.py`` simulates chains of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from scipy.special import fdtrc

from headtohead import files
from headtohead.analysis.judge import Judged
from headtohead.errors import HeadToHeadError
from headtohead.statistics import online
from headtohead.statistics.block_model import BlockModel
from headtohead.statistics.paired_tests import Difference, paired, seeds_needed
from headtohead.storage.record import Number, Record, parse_record

MAX_PRIOR_DEGREES = 40.0
"""Largest weight of the variance of earlier decisions; with 20 % of the changes at three times the standard deviation,
2.9 % of the chains of changes without effect had a kept change."""

LARGER = 0.01
"""Level of the F-test for a variance above that of the earlier decisions. Such a variance is not moderated: changes
that hardly change any score, such as another order of additions, would make the p-value of other changes too small."""

WAIT_SECONDS = 30.0

COMPUTED = ("difference", "variance", "p", "level", "kept")
"""Fields of a decision that follow from its scores and the decisions before it."""


class Decision(Record):
    """The decision on a change, a line of the ledger.

    Attributes:
        candidate: Name of the changed variant.
        incumbent: Name of the variant that it was compared with.
        metric: The metric.
        higher_is_better: Direction of the metric.
        difference: Mean difference, paired by seed.
        variance: Variance of the differences over seeds.
        p: One-sided p-value of "better".
        level: The level that LORD++ gave the decision.
        kept: Whether the candidate became the incumbent: ``p`` is at most ``level``.
        scores: Scores of the candidate by seed.
        incumbent_scores: Scores of the incumbent by seed.
    """

    candidate: str
    incumbent: str
    metric: str
    higher_is_better: bool
    difference: Number
    variance: Number
    p: Number
    level: Number
    kept: bool
    scores: dict[str, Number]
    incumbent_scores: dict[str, Number]


@dataclass(frozen=True)
class Ledger:
    """The decisions of a file so far."""

    path: Path
    decisions: tuple[Decision, ...]

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Return the ledger of a JSON Lines file; one that does not exist has no decision.

        Raises:
            HeadToHeadError: If a line is damaged, or does not follow from its scores and the lines before it.
        """
        ledger = cls(path, ())
        lines = enumerate(files.read_text(path).split("\n") if path.exists() else [], 1)
        for number, line in ((number, line) for number, line in lines if line.strip()):
            found = parse_record(Decision, line.encode(), Path(f"{path}, line {number}"))
            try:
                own = ledger._decision(found)
                named = {name: (getattr(found, name), getattr(own, name)) for name in COMPUTED}
                wrong = [name for name, sides in named.items() if not math.isclose(*sides, rel_tol=1e-6, abs_tol=1e-12)]
                reason = f"{wrong[0]} is {named[wrong[0]][0]:g}, not {named[wrong[0]][1]:g}" if wrong else ""
            except HeadToHeadError as error:
                reason = str(error)
            if reason:
                raise HeadToHeadError(
                    f"{path}: line {number} does not follow from its scores and the lines before it ({reason}); a line "
                    "was deleted, added or changed: restore the file"
                )
            ledger = cls(path, (*ledger.decisions, found))
        return ledger

    @property
    def incumbent(self) -> str | None:
        """The name of the incumbent; None before the first decision."""
        if not self.decisions:
            return None
        last = self.decisions[-1]
        return last.candidate if last.kept else last.incumbent

    @property
    def scores(self) -> dict[str, float]:
        """The scores of the incumbent by seed, as they were last decided on."""
        last = self.decisions[-1] if self.decisions else None
        return {} if last is None else last.scores if last.kept else last.incumbent_scores

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the paired differences of the earlier decisions; None without one that varies."""
        own = self._variances
        return math.sqrt(sum(count * value for count, value in own) / sum(count for count, _ in own)) if own else None

    @property
    def kept(self) -> list[int]:
        """The numbers of the decisions that kept their change, from 1."""
        return [number for number, decision in enumerate(self.decisions, 1) if decision.kept]

    @property
    def level(self) -> float:
        """The level of the next decision."""
        return online.level(len(self.decisions) + 1, self.kept)

    @property
    def wealth(self) -> float:
        """The sum of the levels that remain if no further change is kept."""
        return online.wealth(len(self.decisions), self.kept)

    def decide(self, judged: Judged) -> Decision:
        """Return the decision on the only variant of a judged table.

        Raises:
            HeadToHeadError: If the table does not continue the ledger.
        """
        if len(judged.variants) != 1:
            names = ", ".join(f"'{found.variant}'" for found in judged.variants)
            raise HeadToHeadError(
                f"--ledger {self.path} decides on one candidate at a time; choose one with --candidate: {names}"
            )
        (found,) = judged.variants
        return self._decision(
            Decision(
                candidate=found.variant,
                incumbent=judged.baseline,
                metric=judged.metric,
                higher_is_better=judged.higher_is_better,
                difference=0.0,
                variance=0.0,
                p=1.0,
                level=0.0,
                kept=False,
                scores={**found.scores},
                incumbent_scores={**judged.scores},
            )
        )

    def _decision(self, asked: Decision) -> Decision:
        """Return a decision with difference, variance, p, level and result of its scores."""
        where, scores, against = f"--ledger {self.path}", asked.scores, asked.incumbent_scores
        if self.incumbent not in (None, asked.incumbent):
            raise HeadToHeadError(
                f"{where}: the incumbent is '{self.incumbent}', not '{asked.incumbent}'; leave --baseline out"
            )
        if scores.keys() != against.keys() or len(scores) < 2:
            raise HeadToHeadError(f"{where}: both sides need scores of the same seeds, two or more")
        is_copy = len({*scores.values()}) > 1 and not _coincide(scores, against)
        for number, earlier in enumerate(self.decisions, 1):
            decided = {earlier.candidate: earlier.scores, earlier.incumbent: earlier.incumbent_scores}
            same = next((name for name, own in decided.items() if is_copy and _coincide(own, scores)), None)
            if asked.candidate in decided or same:
                reason = f" under the name '{same}', with the same scores" * (asked.candidate not in decided)
                raise HeadToHeadError(
                    f"{where}: decision {number} already has the variant '{asked.candidate}'{reason}; a change is "
                    "decided once: further seeds or another name would be a second look"
                )
            if (earlier.metric, earlier.higher_is_better) != (asked.metric, asked.higher_is_better):
                better = "higher" if earlier.higher_is_better else "lower"
                raise HeadToHeadError(
                    f"{where} is about {earlier.metric}, {better} is better; give scores of it, or start another ledger"
                )
        difference = paired([scores[seed] for seed in against], [*against.values()])
        p = self.p(difference, asked.higher_is_better)
        values = difference.mean, difference.n * difference.error**2, p, self.level, p <= self.level
        return asked.model_copy(update=dict(zip(COMPUTED, values, strict=True)))

    def measured_again(self, decision: Decision) -> str | None:
        """Return a warning if the incumbent's stored scores differ from those of a decision."""
        gaps = [value - self.scores[seed] for seed, value in decision.incumbent_scores.items() if seed in self.scores]
        if not any(gaps):
            return None
        return (
            f"{sum(map(bool, gaps))} of {len(gaps)} scores of '{decision.incumbent}' differ from those in the ledger "
            f"with the same seed, by {fmean(filter(None, gaps)):+.3g} on average; the ledger now has these"
        )

    def p(self, found: Difference, higher_is_better: bool) -> float:
        """Return the one-sided p-value of "better", with the variance moderated towards that of earlier decisions."""
        if self.deviation:
            variance, degrees = self.deviation**2, sum(count for count, _ in self._variances)
            prior = min(MAX_PRIOR_DEGREES, degrees)
            if fdtrc(found.n - 1, prior, found.n * found.error**2 / variance) > LARGER:
                found = BlockModel(variance, degrees + found.n - 1, prior).moderated(found, 1.0)
        return found.p / 2 if (found.mean > 0) == higher_is_better else 1 - found.p / 2

    def append(self, decision: Decision) -> Ledger:
        """Write the ledger with a further decision and return it; a killed process leaves the old or the new file.

        Raises:
            HeadToHeadError: If another process has appended a decision since this ledger was read.
        """
        busy = HeadToHeadError(f"another process writes {self.path}; run the command again")
        path = self.path.resolve()  # worktrees may share a ledger by symbolic links
        lock = path.with_name(f".{path.name}.lock")
        with files.writing(lock, "choose another folder"):
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()  # FileLock waits for a file that cannot be created
        with files.locked(lock, WAIT_SECONDS, busy):
            if Ledger.read(self.path).decisions != self.decisions:
                raise busy
            longer = Ledger(self.path, (*self.decisions, decision))
            files.write_text(path, "".join(f"{each.model_dump_json()}\n" for each in longer.decisions))
        return longer

    def seeds(self, effect: float) -> int | None:
        """Return the seeds with which the next decision keeps a change in 80 % of cases; None for more than 1,000.

        The effect is an improvement in standard deviations of the paired differences.
        """
        known = min(MAX_PRIOR_DEGREES, sum(count for count, _ in self._variances))
        return seeds_needed(effect, level=2 * self.level, known=known)  # half of a two-sided test

    @property
    def _variances(self) -> list[tuple[int, float]]:
        """Degrees of freedom and variance of the decisions; a change without effect on any score has no variance."""
        return [(len(found.scores) - 1, found.variance) for found in self.decisions if found.variance]


def _coincide(scores: Mapping[str, float], others: Mapping[str, float]) -> bool:
    """Return whether two variants have the same scores under their common seeds, at least two."""
    common = scores.keys() & others.keys()
    return len(common) > 1 and all(math.isclose(scores[seed], others[seed], rel_tol=1e-6) for seed in common)
