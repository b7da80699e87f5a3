"""What the next decision of a ledger needs: which runs are missing, as an instruction."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from headtohead_judge.errors import HeadToHeadError, similar_or_known
from headtohead_judge.ledger import MIN_SEEDS, Ledger
from headtohead_judge.listing import listed
from headtohead_judge.numbers import counted
from headtohead_judge.request import Request
from headtohead_judge.table import Columns, read_runs

FIRST = "run the baseline and a candidate, {number} of both, side by side; name the baseline with --baseline"
WITHOUT_TABLE = (
    "run {incumbent} and a candidate, {number} of both, side by side; new seeds begin with {first}"
)
WITHOUT_CANDIDATE = "run a candidate beside {incumbent}, {number} of both"
NUMBER = "{least} seeds or more ({seeds} for an improvement of {effect:g} standard deviation)"
RUN_BOTH = "run {more} of both {candidate} and {incumbent}, side by side"
RUN_MISSING = "run {missing}, beside the runs of the other side"
READY = "decide on {candidate}, with this command without --status"
DECIDED = "{candidate} is already decided: decision {number}, {outcome}"

EFFECT = 1.0
"""Improvement, in standard deviations of the differences, for which the instruction states the number of seeds."""


@dataclass(frozen=True)
class Sides:
    """The runs of a table for the next decision.

    Attributes:
        incumbent: Name of the incumbent.
        candidate: Name of the candidate; None if the table has none that is not decided.
        decided: Numbers of the decisions whose two sides are in the table, from 1.
        common: Seeds that both sides have, with scores of the incumbent that no earlier decision has.
        only_candidate: Seeds that the incumbent does not have.
        only_incumbent: Seeds that the candidate does not have, without those of earlier decisions.
    """

    incumbent: str
    candidate: str | None
    decided: tuple[int, ...]
    common: tuple[str, ...]
    only_candidate: tuple[str, ...]
    only_incumbent: tuple[str, ...]

    @property
    def more_seeds(self) -> int:
        """Number of seeds that both sides need beside those that one of them has."""
        one_side = len(self.only_candidate) + len(self.only_incumbent)
        return max(0, MIN_SEEDS - len(self.common) - one_side)


def sides_of(request: Request, table: pd.DataFrame, ledger: Ledger) -> Sides:
    """Return the runs of a table for the next decision; no score of the candidate is compared.

    Raises:
        HeadToHeadError: If the incumbent is unknown, or has no run before the first decision; or if the table has
            several candidates, or one although ``--baseline`` is not the incumbent.
    """
    incumbent = ledger.incumbent or request.baseline
    if incumbent is None:
        raise HeadToHeadError(
            "--status of a FILE before the first decision requires --baseline VARIANT"
        )
    metric = request.metric
    if metric is None and ledger.decisions:
        metric = ledger.decisions[-1].metric
    columns = Columns(request.variant_columns, request.seed_column, request.step_column)
    scores = read_runs(table, columns, metric, incumbent, request.candidates).scores
    if not ledger.decisions and incumbent not in scores:
        raise HeadToHeadError(
            f"no variant '{incumbent}' for --baseline{similar_or_known(incumbent, scores)}"
        )

    variants_in_ledger = {incumbent}
    decided = []
    for number, decision in enumerate(ledger.decisions, 1):
        both = {decision.candidate, decision.incumbent}
        variants_in_ledger |= both
        if both <= scores.keys():
            decided.append(number)
    candidates = [variant for variant in scores if variant not in variants_in_ledger]
    if candidates:
        ledger.refuse_other_incumbent(request.baseline or incumbent)
    if len(candidates) > 1:
        raise HeadToHeadError(
            f"a ledger decides on one candidate at a time; choose one with --candidate: {listed(candidates)}"
        )

    candidate = candidates[0] if candidates else None
    candidate_scores = scores[candidate] if candidate else {}
    incumbent_scores = scores.get(incumbent, {})
    # Scores of the incumbent that an earlier decision has are not used again.
    stored = ledger.stored_scores(incumbent)
    new_seeds = [seed for seed, score in incumbent_scores.items() if (seed, score) not in stored]
    common = [seed for seed in candidate_scores if seed in new_seeds]
    only_candidate = [seed for seed in candidate_scores if seed not in incumbent_scores]
    only_incumbent = [seed for seed in new_seeds if seed not in candidate_scores]
    return Sides(
        incumbent=incumbent,
        candidate=candidate,
        decided=tuple(decided),
        common=tuple(common),
        only_candidate=tuple(only_candidate),
        only_incumbent=tuple(only_incumbent),
    )


def next_line(ledger: Ledger, sides: Sides | None) -> str:
    """Return the instruction for the next decision; without a table, ``sides`` is None."""
    number = _number(ledger)
    if sides is None:
        if ledger.incumbent is None:
            return FIRST.format(number=number)
        (first,) = ledger.new_seeds(1)
        return WITHOUT_TABLE.format(incumbent=ledger.incumbent, number=number, first=first)
    if sides.candidate is None:
        instruction = WITHOUT_CANDIDATE.format(incumbent=sides.incumbent, number=number)
        return "; ".join([*_decided(ledger, sides), instruction])
    missing = []
    for name, seeds in (
        (sides.incumbent, sides.only_candidate),
        (sides.candidate, sides.only_incumbent),
    ):
        if seeds:
            noun = "seed" if len(seeds) == 1 else "seeds"
            missing.append(f"{noun} {listed(seeds)} of {name}")
    if missing:
        line = RUN_MISSING.format(missing=" and ".join(missing))
        if sides.more_seeds:
            line += f"; then {counted(sides.more_seeds, 'more seed')} of both"
        return line
    if sides.more_seeds:
        more = counted(sides.more_seeds, "more seed")
        return RUN_BOTH.format(more=more, candidate=sides.candidate, incumbent=sides.incumbent)
    return READY.format(candidate=sides.candidate)


def _number(ledger: Ledger) -> str:
    """Return the smallest number of seeds, and the number for an improvement of `EFFECT`."""
    seeds = ledger.seeds(EFFECT) or "more than 1,000"
    return NUMBER.format(least=MIN_SEEDS, seeds=seeds, effect=EFFECT)


def _decided(ledger: Ledger, sides: Sides) -> list[str]:
    """Return the earlier decisions on a table, as texts."""
    texts = []
    for number in sides.decided:
        decision = ledger.decisions[number - 1]
        outcome = "kept" if decision.kept else "not kept"
        texts.append(DECIDED.format(candidate=decision.candidate, number=number, outcome=outcome))
    return texts


def next_fields(ledger: Ledger, sides: Sides | None) -> dict[str, Any]:
    """Return the instruction, seeds that no decision has, and the number of further seeds of both sides, as JSON data.

    The number is None without a table.
    """
    return {
        "next_seeds": ledger.new_seeds(max(MIN_SEEDS, ledger.seeds(EFFECT) or 0)),
        "more_seeds": None if sides is None else sides.more_seeds,
        "next": next_line(ledger, sides),
    }
