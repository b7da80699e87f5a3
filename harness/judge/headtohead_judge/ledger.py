"""A ledger of changes that are tested one after another: each candidate against the incumbent, the last kept change.

LORD++ (`headtohead_judge.online`) gives each decision its level, so that at most 5 % of the kept changes are
expected to be no improvement. ``benchmarks/simulation.py`` simulates chains of decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

from scipy.special import fdtrc

from headtohead_judge import files, online
from headtohead_judge.block_model import BlockModel
from headtohead_judge.copies import is_same_variant, spread
from headtohead_judge.decision import Decision
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.judging import Judged
from headtohead_judge.paired_tests import Difference, paired, seeds_needed

MAX_PRIOR_DEGREES = 40.0
"""Largest weight of the variance of earlier decisions; with 20 % of the changes at three times the standard deviation,
2.9 % of the chains of changes without effect had a kept change."""

LARGER = 0.01
"""Level of the F-test for a variance above that of the earlier decisions. Such a variance is not moderated: changes
that hardly change any score, such as another order of additions, would make the p-value of other changes too small."""

WAIT_SECONDS = 30.0

SECOND_LOOK = "a change is decided once: further seeds or another name would be a second look"

COMPUTED = ("difference", "variance", "p", "level", "kept")
"""Fields of a decision that follow from its scores and the decisions before it."""


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
        lines = files.read_text(path).split("\n") if path.exists() else []
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            where = Path(f"{path}, line {number}")
            found = Decision.read(line, where)
            if reason := ledger._mismatch(found):
                raise HeadToHeadError(
                    f"{path}: line {number} does not follow from its scores and the lines before it ({reason}); a line "
                    "was deleted, added or changed: restore the file"
                )
            ledger = cls(path, (*ledger.decisions, found))
        return ledger

    def _mismatch(self, found: Decision) -> str:
        """Return why a line does not continue this ledger, or an empty text."""
        try:
            expected = self._decision(found)
        except HeadToHeadError as error:
            return str(error)
        for name in COMPUTED:
            value, computed = getattr(found, name), getattr(expected, name)
            if not math.isclose(value, computed, rel_tol=1e-6, abs_tol=1e-12):
                return f"{name} is {value:g}, not {computed:g}"
        if found.digest != found.digest_after(self._digest):
            return "its digest is that of other names or scores"
        return ""

    @property
    def _digest(self) -> str:
        return self.decisions[-1].digest if self.decisions else ""

    @property
    def lock(self) -> Path:
        """The lock file beside the ledger."""
        path = self.path.resolve()
        return path.with_name(f".{path.name}.lock")

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
        return (
            math.sqrt(sum(count * value for count, value in own) / sum(count for count, _ in own))
            if own
            else None
        )

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
        decision = self._decision(
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
                digest="",
            )
        )
        self._refuse_second_look(decision)
        return replace(decision, digest=decision.digest_after(self._digest))

    def _decision(self, asked: Decision) -> Decision:
        """Return a decision with difference, variance, p, level and result of its scores."""
        where, scores, against = f"--ledger {self.path}", asked.scores, asked.incumbent_scores
        if self.incumbent not in (None, asked.incumbent):
            raise HeadToHeadError(
                f"{where}: the incumbent is '{self.incumbent}', not '{asked.incumbent}'; leave --baseline out"
            )
        if scores.keys() != against.keys() or len(scores) < 2:
            raise HeadToHeadError(f"{where}: both sides need scores of the same seeds, two or more")
        for number, earlier in enumerate(self.decisions, 1):
            if asked.candidate in (earlier.candidate, earlier.incumbent):
                raise HeadToHeadError(
                    f"{where}: decision {number} already has the variant '{asked.candidate}'; {SECOND_LOOK}"
                )
            if (earlier.metric, earlier.higher_is_better) != (asked.metric, asked.higher_is_better):
                better = "higher" if earlier.higher_is_better else "lower"
                raise HeadToHeadError(
                    f"{where} is about {earlier.metric}, {better} is better; give scores of it, or start another ledger"
                )
        difference = paired([scores[seed] for seed in against], [*against.values()])
        p = self.p(difference, asked.higher_is_better)
        return replace(
            asked,
            difference=difference.mean,
            variance=difference.n * difference.error**2,
            p=p,
            level=self.level,
            kept=p <= self.level,
        )

    def _refuse_second_look(self, asked: Decision) -> None:
        """Raise a `HeadToHeadError` if a variant of an earlier decision has the scores of the candidate.

        Scores that are equal to those of the incumbent are not compared: all changes without effect have them.
        """
        scores = {
            seed: score
            for seed, score in asked.scores.items()
            if not math.isclose(score, asked.incumbent_scores[seed], rel_tol=1e-6)
        }
        for number, earlier in enumerate(self.decisions, 1):
            deviation = math.hypot(_deviation(asked), _deviation(earlier))
            sides = {earlier.candidate: earlier.scores, earlier.incumbent: earlier.incumbent_scores}
            for name, decided in sides.items():
                if name != asked.incumbent and is_same_variant(scores, decided, deviation):
                    raise HeadToHeadError(
                        f"--ledger {self.path}: decision {number} already has the variant '{asked.candidate}' under "
                        f"the name '{name}', with the same scores; {SECOND_LOOK}"
                    )

    def measured_again(self, decision: Decision) -> str | None:
        """Return a warning if the incumbent's stored scores differ from those of a decision."""
        gaps = [
            value - self.scores[seed]
            for seed, value in decision.incumbent_scores.items()
            if seed in self.scores
        ]
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
        path, lock = (
            self.path.resolve(),
            self.lock,
        )  # worktrees may share a ledger by symbolic links
        with files.writing(lock, "choose another folder"):
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with files.exclusively(lock, WAIT_SECONDS, busy):
            if Ledger.read(self.path).decisions != self.decisions:
                raise busy
            longer = Ledger(self.path, (*self.decisions, decision))
            files.write_text(path, "".join(f"{each.line}\n" for each in longer.decisions))
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
        return [
            (len(found.scores) - 1, found.variance) for found in self.decisions if found.variance
        ]


def _deviation(decision: Decision) -> float:
    """Return the spread, over seeds, of the differences of a decision."""
    against = decision.incumbent_scores
    return spread([score - against[seed] for seed, score in decision.scores.items()], 0.0)
