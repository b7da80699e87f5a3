"""Leave out the rows of runs that are not finished, by a column such as ``state`` or ``status``.

The words are those of W&B, MLflow, Optuna, Ray Tune, Lightning, Slurm, Kubernetes, ClearML and SageMaker. Another word
beside one of them is an error, since a failed run must not count, and a finished one must not be left out. A column
without any of them, such as the arms of a trial, has no states.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple

import pandas as pd

from headtohead_judge.cells import texts_of
from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.listing import listed, shortened

NAMES = frozenset({
    "state", "status", "run_state", "run_status", "trial_state", "trial_status", "job_state", "job_status",
    "task_state", "task_status"
})  # fmt: skip
"""Names of columns of states, as `_word` returns them."""

FINISHED = frozenset({
    "finished", "done", "ok", "complete", "completed", "success", "successful", "succeeded", "passed", "published"
})  # fmt: skip
"""States that mark a finished run, as `_word` returns them."""

ENDED = frozenset({"terminated"})
"""State of a finished run of Ray Tune. Beside a word of `FINISHED`, it can be that of a killed one."""

NO_WORD = frozenset({""})
"""An empty cell."""

NOT_FINISHED = frozenset({
    "aborted", "aborting", "active", "boot_fail", "canceled", "cancelled", "completing", "crash", "crashed",
    "created", "deadline", "error", "errored", "evicted", "exception", "fail", "failed", "failure", "in_progress",
    "incomplete", "initializing", "inprogress", "interrupted", "killed", "node_fail", "oom", "oomkilled", "out_of_me",
    "out_of_memory", "paused", "pending", "preempted", "preempting", "pruned", "queued", "requeued", "restarting",
    "running", "scheduled", "starting", "stopped", "stopping", "submitted", "suspended", "timed_out", "timeout",
    "unknown", "waiting"
})  # fmt: skip
"""States that mark a run without a final score, as `_word` returns them; Slurm shortens ``out_of_memory``."""

NOT_LETTERS = re.compile(r"[\W_]+")


class _StateColumn(NamedTuple):
    """A column with the states of runs, and the states of the rows that are not finished."""

    name: str
    states: list[str]
    not_finished: dict[int, str]


def finished_rows(
    table: pd.DataFrame, identifying: Collection[str]
) -> tuple[pd.DataFrame, list[str]]:
    """Return the rows of finished runs, and a warning if there are others.

    Args:
        table: The table, with the row numbers from 0 as its index.
        identifying: Columns of variant and seed, which have no states.

    Raises:
        HeadToHeadError: If no run is finished, a state is not known, or two columns have different states of a run.
    """
    columns = _state_columns(table, identifying)
    if not columns:
        return table, []
    first, *others = columns
    for other in others:
        _refuse_other_states(first, other)
    if first.states and len(first.not_finished) == len(first.states):
        states = sorted({*first.not_finished.values()})
        raise HeadToHeadError(f"no run is finished: the column '{first.name}' has {listed(states)}")
    if not first.not_finished:
        return table, []
    rows = listed([f"row {row + 1} ({state})" for row, state in first.not_finished.items()])
    warning = f"left out, as their {first.name} is not finished: {rows}"
    return table.drop([*first.not_finished]), [warning]


def _state_columns(table: pd.DataFrame, identifying: Collection[str]) -> list[_StateColumn]:
    """Return the columns that are named as states are and have a known state.

    Where no run is marked as finished, as in a table that is kept by hand, an empty cell is a finished run.
    """
    columns = []
    for name in table.columns:
        if name in identifying or _word(name) not in NAMES:
            continue
        states = texts_of(table[name])
        words = [_word(state) for state in states]
        if (FINISHED | ENDED | NOT_FINISHED).isdisjoint(words):
            continue
        finished = FINISHED
        if FINISHED.isdisjoint(words):
            finished = ENDED if not ENDED.isdisjoint(words) else NO_WORD
        unknown = {*words} - finished - NOT_FINISHED
        if unknown:
            raise _unknown_states(name, states, unknown)
        rows = {}
        for row, word in enumerate(words):
            if word in NOT_FINISHED:
                rows[row] = states[row]
        columns.append(_StateColumn(name, states, rows))
    return columns


def _word(text: str) -> str:
    """Return the word of a state: ``out_of_memory`` of ``OUT OF MEMORY``, ``complete`` of ``TrialState.COMPLETE``.

    A reason can follow a colon. Slurm writes ``CANCELLED by 1001``, with the number of the user.
    """
    state = text.partition(":")[0].rpartition(".")[2].partition(" by ")[0]
    return NOT_LETTERS.sub("_", state.lower()).strip("_")


def _unknown_states(name: str, states: list[str], unknown: set[str]) -> HeadToHeadError:
    """Return the error about states of which it is not known whether they are those of finished runs."""
    shown = dict.fromkeys(state or "(empty)" for state in states if _word(state) in unknown)
    return HeadToHeadError(
        f"the column '{name}' has unknown states: {listed([*shown])}; remove or rename the column if all rows count, "
        "or write finished or failed in it: failed rows are left out"
    )


def _refuse_other_states(first: _StateColumn, other: _StateColumn) -> None:
    """Raise a `HeadToHeadError` if a run is finished by one of two columns and not by the other."""
    differing = first.not_finished.keys() ^ other.not_finished.keys()
    if not differing:
        return
    row = min(differing)
    raise HeadToHeadError(
        f"row {row + 1}: '{first.name}' is '{shortened(first.states[row])}' and '{other.name}' is "
        f"'{shortened(other.states[row])}'; remove one of the two columns"
    )
