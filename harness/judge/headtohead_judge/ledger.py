"""A ledger of changes that are tested one after another: each candidate against the incumbent, the last kept change.

LORD++ (`headtohead_judge.online`) gives each decision its level, so that the expected share of changes without
an improvement among the kept ones is at most 5 %. ``benchmarks/simulation.py`` simulates chains of decisions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
"""Largest weight of the variance of earlier decisions. With 20 % of the changes at 3, 4, 5, 7 and 10 times the standard
deviation and six seeds, 4.0, 5.2, 4.3, 2.2 and 0.9 % of the chains of changes without effect had a kept change."""

LARGER = 0.05
"""Level of the F-test for a variance above that of the earlier decisions. Such a variance is not moderated: changes
that hardly change any score, such as another order of additions, would make the p-value of other changes too small."""

APART = 0.01
"""Level, divided by the number of decisions, of the F-tests for variances that have no part in the common variance.
With one change at ten times the standard deviation in it, the common variance would hide most later improvements:
14 % of those of 2 standard deviations were kept with eight seeds, and 84 % without that change."""

MIN_SEEDS = 6
"""Smallest number of seeds of each side of a decision, and of scores of the incumbent that were not decided on before.
With the scores of earlier decisions, a drift of half a standard deviation between sessions, and the luck of a kept
change, count as effects of the candidate."""

WAIT_SECONDS = 30.0

SECOND_LOOK = "a change is decided once: further seeds or another name would be a second look"

COMPUTED = ("difference", "variance", "test_variance", "test_degrees", "p", "level", "kept")
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
    def incumbent_seeds(self) -> list[str]:
        """The seeds of all scores of the incumbent in the decisions so far, in their order."""
        seeds: dict[str, None] = {}
        for decision in self.decisions:
            if self.incumbent in (decision.candidate, decision.incumbent):
                seeds |= dict.fromkeys(decision.scores)
        return [*seeds]

    def new_seeds(self, number: int) -> list[str]:
        """Return whole numbers that are larger than all seeds of the decisions so far; from 1 without decisions."""
        largest = 0
        for decision in self.decisions:
            for seed in decision.scores:
                if seed.isascii() and seed.isdigit():
                    largest = max(largest, int(seed))
        return [str(seed) for seed in range(largest + 1, largest + 1 + number)]

    @property
    def _variances(self) -> list[tuple[float, int]]:
        """Variance and degrees of freedom of each decision; a change without effect on any score has none."""
        return [
            (decision.variance, decision.degrees)
            for decision in self.decisions
            if decision.variance
        ]

    @property
    def _common(self) -> tuple[float, int]:
        """The variance of the paired differences of the decisions without a larger one, and its degrees of freedom."""
        largest = _largest_common(self._variances)
        return _pooled([pair for pair in self._variances if pair[0] <= largest])

    @property
    def deviation(self) -> float | None:
        """The standard deviation of the paired differences of the decisions so far; None if none varies.

        Decisions with a larger variance have no part in it.
        """
        variance, degrees = self._common
        return math.sqrt(variance) if degrees else None

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
            test_variance=0.0,
            test_degrees=0.0,
            decimals_error=candidate.difference.decimals_error,
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
        variance = difference.n * difference.error**2
        tested = self._moderated(difference, variance)
        is_better = (difference.mean > 0) == decision.higher_is_better
        two_sided_p = tested.with_decimals_error(decision.decimals_error).p
        p = two_sided_p / 2 if is_better else 1 - two_sided_p / 2
        return replace(
            decision,
            difference=difference.mean,
            variance=variance,
            test_variance=tested.n * tested.error**2,
            test_degrees=float(tested.degrees),
            p=p,
            level=self.level,
            kept=p <= self.level,
        )

    def refuse_other_incumbent(self, baseline: str) -> None:
        """Raise a `HeadToHeadError` unless a baseline is the incumbent, or the ledger has none."""
        if self.incumbent not in (None, baseline):
            raise HeadToHeadError(
                f"--ledger {self.path}: the incumbent is '{self.incumbent}', not '{baseline}'; leave --baseline out"
            )

    def _refuse_other_names(self, decision: Decision) -> None:
        """Raise a `HeadToHeadError` if names, seeds or metric of a decision do not continue the ledger."""
        where = f"--ledger {self.path}"
        self.refuse_other_incumbent(decision.incumbent)
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
        stored = self.stored_scores(decision.incumbent)
        old = stored & decision.incumbent_scores.items()
        num_new = len(decision.incumbent_scores) - len(old)
        if num_new < MIN_SEEDS:
            raise HeadToHeadError(
                f"--ledger {self.path}: {len(old)} scores of the incumbent '{decision.incumbent}' are those of an "
                f"earlier decision; train it again beside '{decision.candidate}', with at least {MIN_SEEDS} seeds (if "
                f"training is deterministic, new ones: {', '.join(self.new_seeds(MIN_SEEDS))})"
            )

    def stored_scores(self, variant: str) -> set[tuple[str, float]]:
        """Return the scores of a variant in the decisions so far, as pairs of seed and score."""
        stored: set[tuple[str, float]] = set()
        for decision in self.decisions:
            if decision.candidate == variant:
                stored |= decision.scores.items()
            if decision.incumbent == variant:
                stored |= decision.incumbent_scores.items()
        return stored

    def _moderated(self, difference: Difference, variance: float) -> Difference:
        """Return a difference with its variance over seeds moderated towards that of earlier decisions.

        A difference with a larger variance is returned as it is: its test is the paired t-test.
        """
        own_degrees = difference.n - 1
        largest = _largest_common([*self._variances, (variance, own_degrees)])
        earlier = [pair for pair in self._variances if pair[0] <= largest]
        common, degrees = _pooled(earlier)
        if not degrees or variance > largest:
            return difference
        prior = min(MAX_PRIOR_DEGREES, degrees)
        if fdtrc(own_degrees, prior, variance / common) <= LARGER:
            return difference
        return BlockModel(common, degrees + own_degrees, prior).moderated(difference, 1.0)

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
        _, degrees = self._common
        prior = min(MAX_PRIOR_DEGREES, degrees)
        two_sided = 2 * self.level
        return seeds_needed(effect, level=two_sided, added_degrees=prior)


def _pooled(variances: Sequence[tuple[float, int]]) -> tuple[float, int]:
    """Return the mean of variances, weighted by their degrees of freedom, and the sum of these; 0 for both of none."""
    degrees = sum(of_variance for _, of_variance in variances)
    squares = sum(variance * of_variance for variance, of_variance in variances)
    return (squares / degrees if degrees else 0.0), degrees


def _largest_common(variances: Sequence[tuple[float, int]]) -> float:
    """Return the largest of variances, with their degrees of freedom, that is not larger than those below it.

    In their order, each variance of the upper half is compared with all below it by an F-test. The first larger one,
    and all above it, have no part in the common variance. Infinite if none is larger.
    """
    ordered = sorted(variances)
    half = math.ceil(len(ordered) / 2)
    for count in range(max(1, half), len(ordered)):
        common, degrees = _pooled(ordered[:count])
        variance, own_degrees = ordered[count]
        if common and fdtrc(own_degrees, degrees, variance / common) <= APART / len(ordered):
            return ordered[count - 1][0]
    return math.inf


def _deviation(decision: Decision) -> float:
    """Return the spread, over seeds, of the differences of a decision."""
    against = decision.incumbent_scores
    return spread([score - against[seed] for seed, score in decision.scores.items()], 0.0)
