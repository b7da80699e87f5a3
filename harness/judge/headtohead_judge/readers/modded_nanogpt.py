"""Logs of modded-nanogpt (github.com/KellerJordan/modded-nanogpt), tracks 1, 2 and 3.

A log has lines ``step:N/M val_loss:X``; a smaller step begins another run of the file. Folders of repeated runs, such
as ``baseline-1480`` and ``NAME-1480``, are variants; a file ``baseline3-1480.txt`` is seed 3 of such a variant. A run
whose last step is not M is not finished, unless no run of its variant is longer and two stop there, as in track 3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headtohead_judge.errors import HeadToHeadError
from headtohead_judge.files import read_bytes
from headtohead_judge.readers.formats import FolderFormat, Rows, subfolder_or_name

EVALUATION = re.compile(r"^step:(\d{1,9})/(\d{1,9}) (val_loss:.*\n?)", re.ASCII | re.MULTILINE)
SCORE = re.compile(r"val_\w+", re.ASCII)
TIME = re.compile(r"(\d{1,15}(?:\.\d{0,15})?)(ms|s)", re.ASCII)
PER_SECOND = {"ms": 1000, "s": 1}
REPEAT = re.compile(r"(?P<name>[^-]*?[^-\d])(?P<seed>\d{1,6})-(?P<steps>\d{2,6})", re.ASCII)
"""Names of files such as ``baseline3-1480``: the variant, the number of the run and the steps."""

FINISHED = "finished"


@dataclass
class _LoggedRun:
    """A run of a log: the last step that its lines state, and a row per evaluation."""

    steps: str
    rows: Rows = field(default_factory=list)

    @property
    def last(self) -> int:
        return int(self.rows[-1]["step"])

    @property
    def is_cut(self) -> bool:
        """Whether the run has a score at its last line, which is not that of its last step."""
        return self.last != int(self.steps) and self.rows[-1]["state"] == FINISHED


@dataclass
class _Log:
    """The runs of a log, with its variant and the name of its seeds; there are none in a log without evaluations."""

    file: Path
    variant: str
    seed: str
    runs: list[_LoggedRun]


def read(files: list[Path], folder: Path) -> Rows:
    """Return the validation scores and the times of logs, a row per run and step."""
    logs = []
    for file in files:
        text = read_bytes(file, advice="name a folder of readable logs").decode(errors="replace")
        runs = _logged_runs(text, file)
        if runs or "val_loss" in text:  # the log begins with the source of the script
            variant, seed = _identity(file, folder)
            logs.append(_Log(file, variant, seed, runs))
    planned = _planned_stops(logs)
    rows: Rows = []
    for log in logs:
        for row in _rows(log, planned.get(log.variant)):
            rows.append({"variant": log.variant} | row)
    return rows


def _identity(file: Path, folder: Path) -> tuple[str, str]:
    """Return the variant and the seed of a log."""
    repeat = REPEAT.fullmatch(file.stem)
    if repeat is None:
        return subfolder_or_name(file, folder), file.stem
    variant = f"{repeat['name']}-{repeat['steps']}"
    parent = file.parent.relative_to(folder)
    return str(parent / variant), repeat["seed"]


def _planned_stops(logs: list[_Log]) -> dict[str, int]:
    """Return the step at which runs of a variant stop before their last one, if no run is longer and two stop there."""
    last_steps: dict[str, list[int]] = {}
    complete: set[str] = set()
    for log in logs:
        for run in log.runs:
            if run.is_cut:
                last_steps.setdefault(log.variant, []).append(run.last)
            elif run.rows[-1]["state"] == FINISHED:
                complete.add(log.variant)
    stops = {}
    for variant, steps in last_steps.items():
        if variant not in complete and steps.count(max(steps)) > 1:
            stops[variant] = max(steps)
    return stops


def _rows(log: _Log, planned_stop: int | None) -> Rows:
    """Return the rows of a log; a run that is not finished has one row, with the reason in its state."""
    name = log.file.name
    if not log.runs:
        return [{"seed": log.seed, "step": "0", "state": f"incomplete: no evaluation in {name}"}]
    rows: Rows = []
    for number, run in enumerate(log.runs, 1):
        seed = f"{log.seed}#{number}" if len(log.runs) > 1 else log.seed
        evaluations = run.rows
        if run.is_cut and run.last != planned_stop:
            state = f"incomplete: {name} ends at step {run.last} of {run.steps}"
            evaluations = [run.rows[-1] | {"state": state}]
        rows += [{"seed": seed} | row for row in evaluations]
    return rows


def _logged_runs(text: str, file: Path) -> list[_LoggedRun]:
    """Return the runs of a log; a smaller step than that of the line before begins a run.

    Raises:
        HeadToHeadError: If the lines of a run state different last steps.
    """
    runs: list[_LoggedRun] = []
    for step, steps, line in EVALUATION.findall(text):
        if not runs or int(step) < runs[-1].last:
            runs.append(_LoggedRun(steps))
        run = runs[-1]
        if run.steps != steps:
            raise HeadToHeadError(
                f"{file}: the last step of a run is {run.steps} in 'step:{run.last}/{run.steps}', and {steps} in "
                f"'step:{step}/{steps}'; correct one of them"
            )
        row: dict[str, Any] = {"step": step, "state": FINISHED} | _logged(line, file, step)
        if not any(name.startswith("val_") for name in row):
            # The scores of the steps before are not the final ones.
            run.rows = []
            row["state"] = f"incomplete: step {step} of {file.name} has no complete score"
        run.rows.append(row)
    return runs


def _logged(line: str, file: Path, step: str) -> dict[str, str]:
    """Return the scores and the seconds of an evaluation.

    Raises:
        HeadToHeadError: If the line has two values of a name.
    """
    words = line.split()
    if not line[-1].isspace():  # a number at the end of a cut file can miss digits
        words.pop()
    values: dict[str, str] = {}
    for word in words:
        name, _, value = word.partition(":")
        if not value or not (name == "train_time" or SCORE.fullmatch(name)):
            continue
        if values.setdefault(name, value) != value:
            raise HeadToHeadError(
                f"{file}: step {step} has '{name}:{values[name]}' and '{name}:{value}'; correct one of them"
            )
    time = TIME.fullmatch(values.pop("train_time", ""))
    if time:
        values["train_seconds"] = repr(float(time[1]) / PER_SECOND[time[2]])
    return values


MODDED_NANOGPT = FolderFormat("logs of modded-nanogpt", ("*.txt", "*.log"), read)
