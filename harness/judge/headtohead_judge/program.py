"""What the command does: check the options, read the scores, judge, decide, write the answer, print."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from headtohead_judge import files, same_command
from headtohead_judge.answer import answer_of, is_answer
from headtohead_judge.decision import Decision
from headtohead_judge.errors import HeadToHeadError, MissingBaselineError, TooFewSeedsError
from headtohead_judge.judging import Judged, judge
from headtohead_judge.ledger import MIN_SEEDS, Ledger
from headtohead_judge.looks import Looks
from headtohead_judge.next_decision import next_fields, next_line, sides_of
from headtohead_judge.output import echo, echo_json, print_verdicts
from headtohead_judge.request import NEED_MARGIN, Request
from headtohead_judge.sources import has_steps, read_source, refuse_overwriting
from headtohead_judge.text import (
    Numbers,
    decision_lines,
    exit_line,
    judged_rows,
    look_lines,
    method_lines,
    status_fields,
    status_lines,
)

NOT_KEPT = 3
"""Exit code of a decision that does not keep the candidate, unless it is worse."""

NO_DECISION = 4
"""Exit code if a ledger needs further seeds before it can decide."""

ANSWER_ADVICE = "choose another file with --answer"


class _Outcome(NamedTuple):
    """A judgement and the decision on it.

    ``ledger`` is the ledger that the decision follows; both are None without a ledger. ``is_repeated`` is whether the
    ledger's file has this decision already.
    """

    judged: Judged
    decision: Decision | None = None
    ledger: Ledger | None = None
    is_repeated: bool = False


def run(request: Request) -> int:
    """Judge scores, or print the status of a ledger; return the exit code.

    With too few seeds for a decision of a ledger, one line on standard error says so, and no file is written.

    Raises:
        HeadToHeadError: If options contradict each other, or scores or ledger cannot be judged.
    """
    _refuse_contradictions(request)
    same_command.refuse_contradictions(request)
    ledger = Ledger.read(request.ledger_file) if request.ledger_file else None
    if request.status:
        _print_status(request, ledger)
        return 0
    if request.source is None:
        raise HeadToHeadError("missing argument 'FILE', a table of scores such as scores.csv")
    refuse_overwriting(_outputs(request, ledger), request.source)
    table = read_source(request.source, request.experiment, request.metric)
    if has_steps(table, request.source):
        request = replace(request, step_column=request.step_column or "step")
    if request.same:
        return same_command.run_same(request, table)

    try:
        outcome = _outcome(request, table, ledger)
    except TooFewSeedsError as error:
        if ledger is None:
            raise
        return _undecided(request, table, ledger, error)
    return _answered(request, outcome)


def _undecided(
    request: Request, table: pd.DataFrame, ledger: Ledger, error: TooFewSeedsError
) -> int:
    """Print that a decision needs further seeds, as JSON with the fields of ``--status``; return the exit code.

    Raises:
        HeadToHeadError: If the table has several candidates.
    """
    sides = sides_of(request, table, ledger)
    echo(f"no decision: {error}", err=True)
    if request.form == "json":
        fields = {"decision": None, "exit_code": NO_DECISION}
        echo_json(fields | status_fields(ledger) | next_fields(ledger, sides))
    else:
        echo(f"next: {next_line(ledger, sides)}")
    return NO_DECISION


def _answered(request: Request, outcome: _Outcome) -> int:
    """Write and print an outcome; return the exit code."""
    code = outcome.judged.exit_code(request.accept)
    warnings = list(outcome.judged.warnings)
    if outcome.decision is not None:
        code = 0 if outcome.decision.kept else code or NOT_KEPT
    if outcome.is_repeated:
        warnings.append(
            f"{request.ledger_file} has this decision already; this is its answer again"
        )
    answer = {}
    if request.answer is not None or request.form == "json":
        answer = answer_of(outcome.judged, code)
        answer["decision"] = asdict(outcome.decision) if outcome.decision else None
    longer_ledger = _write(request, outcome, answer)
    for warning in warnings:
        echo(f"warning: {warning}", err=True)
    if request.form == "json":
        echo_json(answer)
    else:
        _print(request, outcome, longer_ledger, code)
    return code


def _refuse_contradictions(request: Request) -> None:
    """Raise a `HeadToHeadError` if options contradict each other or a number is not positive."""
    if request.ledger_file and (request.unpaired or request.looks or request.margin):
        raise HeadToHeadError("--ledger does not accept --unpaired, --looks or --margin")
    if request.looks is None and request.is_at_most_chosen:
        raise HeadToHeadError("--at-most requires --looks N, the number of looks")
    for name, number in (("margin", request.margin), ("sd", request.sd)):
        if number is not None and not 0 < number < float("inf"):
            raise HeadToHeadError(f"--{name} must be a positive number, got {number:g}")
    for verdict in request.accept:
        if request.margin is None and verdict in NEED_MARGIN:
            raise HeadToHeadError(
                f"--accept '{verdict}' requires --margin X, the smallest difference that matters"
            )


def _outputs(request: Request, ledger: Ledger | None) -> dict[str, Path]:
    """Return the files that a call writes, by the name of their option."""
    outputs = {}
    if request.answer is not None:
        outputs["--answer"] = request.answer
    if ledger is not None:
        outputs["--ledger"] = ledger.path
        outputs["the lock of --ledger"] = ledger.lock
    return outputs


def _outcome(request: Request, table: pd.DataFrame, ledger: Ledger | None) -> _Outcome:
    """Return the judgement of a table and the decision on it; that of a repeated command is the last one again."""
    if ledger is None:
        return _Outcome(_judge(request, table, None))
    if ledger.decisions:
        earlier = replace(ledger, decisions=ledger.decisions[:-1])
        with suppress(HeadToHeadError):
            judged = _judge(request, table, earlier)
            decision = earlier.decide(judged)
            if decision == ledger.decisions[-1]:
                return _Outcome(judged, decision, earlier, is_repeated=True)
    judged = _judge(request, table, ledger)
    return _Outcome(judged, ledger.decide(judged), ledger)


def _judge(request: Request, table: pd.DataFrame, ledger: Ledger | None) -> Judged:
    """Return the judgement of a table; baseline, metric and direction are by default those of the ledger."""
    baseline = request.baseline
    metric = request.metric
    higher_is_better = request.higher_is_better
    if ledger is not None and ledger.decisions:
        last = ledger.decisions[-1]
        if baseline is None:
            baseline = ledger.incumbent
        if metric is None:
            metric = last.metric
        if higher_is_better is None:
            higher_is_better = last.higher_is_better
    try:
        return judge(
            table,
            baseline=baseline,
            metric=metric,
            margin=request.margin,
            higher_is_better=higher_is_better,
            is_paired=not request.unpaired,
            looks=Looks.planned(request.looks, request.at_most) if request.looks else None,
            variant_columns=request.variant_columns,
            seed_column=request.seed_column,
            step_column=request.step_column,
            candidates=request.candidates,
            sd=request.sd,
            min_seeds=MIN_SEEDS if ledger is not None else 2,
        )
    except MissingBaselineError as error:
        if ledger is None:
            raise
        raise HeadToHeadError(
            f"{error}; a ledger needs the incumbent trained again beside each candidate, with at least {MIN_SEEDS} "
            "seeds"
        ) from error


def _write(request: Request, outcome: _Outcome, answer: dict[str, Any]) -> Ledger | None:
    """Append the decision to the ledger and write the answer if a file is named; return the ledger with the decision.

    Whether the answer may be written is tested before the decision is appended.
    """
    if request.answer is not None:
        files.refuse_foreign(request.answer, is_answer, ANSWER_ADVICE)
    ledger = outcome.ledger
    if ledger is not None and outcome.decision is not None:
        if outcome.is_repeated:
            ledger = replace(ledger, decisions=(*ledger.decisions, outcome.decision))
        else:
            ledger = ledger.append(outcome.decision)
    if request.answer is not None:
        text = json.dumps(answer, ensure_ascii=False, indent=1) + "\n"
        with files.writing(request.answer, ANSWER_ADVICE):
            files.write_text(request.answer, text)
    return ledger


def _print(request: Request, outcome: _Outcome, ledger: Ledger | None, code: int) -> None:
    """Print the heading, the table, and the lines on looks and on the decision, which ``ledger`` contains."""
    judged = outcome.judged
    heading = judged.heading(Numbers(judged))
    rows = judged_rows(judged)
    lines = method_lines(judged) + look_lines(judged)
    if ledger is not None and outcome.decision is not None:
        lines += decision_lines(ledger, outcome.decision, judged)
    else:
        lines.append(exit_line(judged, code, request.accept))
    print_verdicts(heading, rows, lines, is_markdown=request.form == "markdown")


def _print_status(request: Request, ledger: Ledger | None) -> None:
    """Print the incumbent, the level of the next decision, and what the decision needs, also of the runs in FILE."""
    if ledger is None:
        raise HeadToHeadError("--status requires --ledger LEDGER")
    if not ledger.path.exists():
        echo(f"warning: {ledger.path} does not exist; the first decision creates it", err=True)
    sides = None
    if request.source is not None:
        table = read_source(request.source, request.experiment, request.metric)
        sides = sides_of(request, table, ledger)
    if request.form == "json":
        echo_json(status_fields(ledger) | next_fields(ledger, sides))
    else:
        echo(*status_lines(ledger), f"next: {next_line(ledger, sides)}")
