"""A ledger of changes that are tested one after another: each candidate against the incumbent, the last kept change.

LORD++ (`headtohead_judge.online`) gives each decision its level, so that at most 5 % of the kept changes are
expected to be no improvement. ``benchmarks/simulation.py`` simulates chains of decisions.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path

from scipy.special import fdtrc

from headtohead_judge import files, online
from headtohead_judge.block_model import BlockModel
from headtohead_judge.copies import is_same_variant, spread
from headtohead_judge.decision import Decision
from headtohead_judge.errors import HeadToHeadError, TooFewSeedsError
from headtohead_judge.judging import Judged
from headtohead_judge.paired_tests import Difference, paired
from headtohead_judge.power import seeds_needed

MAX_PRIOR_DEGREES = 40.0
"""Largest weight of the variance of earlier decisions; with 20 % of the changes at three times the standard deviation,
2.9 % of the chains of changes without effect had a kept change."""

LARGER = 0.01
"""Level of the F-test for a variance above that of the earlier decisions. Such a variance is not moderated: changes
that hardly change any score, such as another order of additions, would make the p-value of other changes too small."""

MIN_SEEDS = 6
"""Smallest number of seeds of each side of a decision, and of scores of the incumbent that were not decided on before.
With the scores of earlier decisions, a drift of half a standard deviation between sessions, and the luck of a kept
change, count as effects of the candidate."""

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
        if not path.exists():
            return ledger
        for number, line in enumerate(files.read_text(path).split("\n"), 1):
            if not line.strip():
                continue
            decision = Decision.read(line, Path(f"{path}, line {number}"))
            if mismatch := ledger._mismatch(decision):
                raise HeadToHeadError(
                    f"{path}: line {number} does not follow from its scores and the lines before it ({mismatch}); a "
                    "line was deleted, added or changed: restore the file"
                )
            ledger = cls(path, (*ledger.decisions, decision))
        return ledger

    def _mismatch(self, decision: Decision) -> str:
        """Return why a decision does not continue this ledger, or an empty text."""
        try:
            expected = self._computed(decision)
        except HeadToHeadError as error:
            return str(error)
        for name in COMPUTED:
            value = getattr(decision, name)
            computed = getattr(expected, name)
            if not math.isclose(value, computed, rel_tol=1e-6, abs_tol=1e-12):
                return f"{name} is {value:g}, not {computed:g}"
        if decision.digest != decision.digest_after(self._digest):
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
        """The scores of the incumbent by seed in the last decision; empty before the first decision."""
        if not self.decisions:
            return {}
        last = self.decisions[-1]
        return last.scores if last.kept else last.incumbent_scores

    @property
    def _degrees(self) -> int:
        """Degrees of freedom of `deviation`; a change without effect on any score has no variance."""
        return sum(decision.degrees for decision in self.decisions if decision.variance)

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the paired differences of the earlier decisions; None without one that varies."""
        if not self._degrees:
            return None
        squares = sum(decision.degrees * decision.variance for decision in self.decisions)
        return math.sqrt(squares / self._degrees)

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
            TooFewSeedsError: If a side has fewer than `MIN_SEEDS` seeds.
            HeadToHeadError: If the table does not continue the ledger, or its scores of the incumbent are those of
                earlier decisions.
        """
        if len(judged.variants) != 1:
            names = ", ".join(f"'{variant.variant}'" for variant in judged.variants)
            raise HeadToHeadError(
                f"--ledger {self.path} decides on one candidate at a time; choose one with --candidate: {names}"
            )
        (candidate,) = judged.variants
        undecided = Decision(
            candidate=candidate.variant,
            incumbent=judged.baseline,
            metric=judged.metric,
            higher_is_better=judged.higher_is_better,
            difference=0.0,
            variance=0.0,
            p=1.0,
            level=0.0,
            kept=False,
            scores={**candidate.scores},
            incumbent_scores={**judged.scores},
            digest="",
        )
        decision = self._computed(undecided)
        self._refuse_second_look(decision)
        self._refuse_stored_scores(decision)
        return replace(decision, digest=decision.digest_after(self._digest))

    def _computed(self, decision: Decision) -> Decision:
        """Return a decision with the fields `COMPUTED` from its scores and the decisions before it.

        Raises:
            HeadToHeadError: If names, metric or seeds do not continue the ledger.
        """
        self._refuse_other_names(decision)
        scores = [decision.scores[seed] for seed in decision.incumbent_scores]
        difference = paired(scores, [*decision.incumbent_scores.values()])
        p = self.p(difference, decision.higher_is_better)
        return replace(
            decision,
            difference=difference.mean,
            variance=difference.n * difference.error**2,
            p=p,
            level=self.level,
            kept=p <= self.level,
        )

    def _refuse_other_names(self, decision: Decision) -> None:
        """Raise a `HeadToHeadError` if names, seeds or metric of a decision do not continue the ledger."""
        where = f"--ledger {self.path}"
        if self.incumbent not in (None, decision.incumbent):
            raise HeadToHeadError(
                f"{where}: the incumbent is '{self.incumbent}', not '{decision.incumbent}'; leave --baseline out"
            )
        if decision.scores.keys() != decision.incumbent_scores.keys():
            raise HeadToHeadError(f"{where}: both sides need scores of the same seeds")
        if len(decision.scores) < MIN_SEEDS:
            raise TooFewSeedsError(f"{where}: both sides need at least {MIN_SEEDS} seeds")
        for number, earlier in enumerate(self.decisions, 1):
            if decision.candidate in (earlier.candidate, earlier.incumbent):
                raise HeadToHeadError(
                    f"{where}: decision {number} already has the variant '{decision.candidate}'; {SECOND_LOOK}"
                )
            is_same_metric = earlier.metric == decision.metric
            if not is_same_metric or earlier.higher_is_better != decision.higher_is_better:
                better = "higher" if earlier.higher_is_better else "lower"
                raise HeadToHeadError(
                    f"{where} is about {earlier.metric}, {better} is better; give scores of it, or start another ledger"
                )

    def _refuse_second_look(self, decision: Decision) -> None:
        """Raise a `HeadToHeadError` if a variant of an earlier decision has the scores of the candidate.

        Scores that are equal to those of the incumbent are not compared: all changes without effect have them.
        """
        changed = {}
        for seed, score in decision.scores.items():
            if not math.isclose(score, decision.incumbent_scores[seed], rel_tol=1e-6):
                changed[seed] = score
        for number, earlier in enumerate(self.decisions, 1):
            deviation = math.hypot(_deviation(decision), _deviation(earlier))
            sides = {earlier.candidate: earlier.scores, earlier.incumbent: earlier.incumbent_scores}
            for name, scores in sides.items():
                if name != decision.incumbent and is_same_variant(changed, scores, deviation):
                    raise HeadToHeadError(
                        f"--ledger {self.path}: decision {number} already has the variant '{decision.candidate}' under "
                        f"the name '{name}', with the same scores; {SECOND_LOOK}"
                    )

    def _refuse_stored_scores(self, decision: Decision) -> None:
        """Raise a `HeadToHeadError` unless `MIN_SEEDS` scores of the incumbent are new.

        A score is new if no earlier decision has it for the incumbent and the same seed.
        """
        stored: set[tuple[str, float]] = set()
        for earlier in self.decisions:
            if earlier.candidate == decision.incumbent:
                stored |= earlier.scores.items()
            if earlier.incumbent == decision.incumbent:
                stored |= earlier.incumbent_scores.items()
        old = stored & decision.incumbent_scores.items()
        num_new = len(decision.incumbent_scores) - len(old)
        if num_new < MIN_SEEDS:
            raise HeadToHeadError(
                f"--ledger {self.path}: {len(old)} scores of the incumbent '{decision.incumbent}' are those of an "
                f"earlier decision; train it again beside '{decision.candidate}', with at least {MIN_SEEDS} seeds (new "
                "ones, if training is deterministic)"
            )

    def p(self, difference: Difference, higher_is_better: bool) -> float:
        """Return the one-sided p-value of "better", with the variance moderated towards that of earlier decisions."""
        if self.deviation:
            variance = self.deviation**2
            prior = min(MAX_PRIOR_DEGREES, self._degrees)
            ratio = difference.n * difference.error**2 / variance
            if fdtrc(difference.n - 1, prior, ratio) > LARGER:
                model = BlockModel(variance, self._degrees + difference.n - 1, prior)
                difference = model.moderated(difference, 1.0)
        is_better = (difference.mean > 0) == higher_is_better
        return difference.p / 2 if is_better else 1 - difference.p / 2

    def append(self, decision: Decision) -> Ledger:
        """Write the ledger with a further decision and return it; a killed process leaves the old or the new file.

        Raises:
            HeadToHeadError: If another process has appended a decision since this ledger was read.
        """
        busy = HeadToHeadError(f"another process writes {self.path}; run the command again")
        lock = self.lock
        with files.writing(lock, "choose another folder"):
            lock.parent.mkdir(parents=True, exist_ok=True)
            lock.touch()
        with files.exclusively(lock, WAIT_SECONDS, busy):
            if Ledger.read(self.path).decisions != self.decisions:
                raise busy
            longer = Ledger(self.path, (*self.decisions, decision))
            text = "".join(f"{decision.line}\n" for decision in longer.decisions)
            # Worktrees may share a ledger by symbolic links.
            files.write_text(self.path.resolve(), text)
        return longer

    def seeds(self, effect: float) -> int | None:
        """Return the seeds with which the next decision keeps a change in 80 % of cases; None for more than 1,000.

        The effect is an improvement in standard deviations of the paired differences.
        """
        prior = min(MAX_PRIOR_DEGREES, self._degrees)
        two_sided = 2 * self.level
        return seeds_needed(effect, level=two_sided, added_degrees=prior)


def _deviation(decision: Decision) -> float:
    """Return the spread, over seeds, of the differences of a decision."""
    against = decision.incumbent_scores
    return spread([score - against[seed] for seed, score in decision.scores.items()], 0.0)
