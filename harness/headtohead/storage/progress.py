"""How far the runs of an experiment are, read from their directories alone."""

from __future__ import annotations

import json
import math
import os
import shlex
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from headtohead.config.loading import experiment_name
from headtohead.errors import HeadToHeadError, nearest
from headtohead.storage import states
from headtohead.storage.existing import read_json
from headtohead.storage.leases import observe
from headtohead.storage.paths import checked_name, inside, run_folder

_TAIL = 16_384
"""Bytes at the end of metrics.jsonl from which the pace is read."""


@dataclass(frozen=True)
class RunProgress:
    """One run: its state, how far it is, and seconds to go where that can be told."""

    variant: str
    seed: int
    directory: str
    state: str
    reason: str | None
    step: int
    steps: int | None
    seconds_left: float | None
    attempt: int
    reused_from: str | None


@dataclass(frozen=True)
class Progress:
    """All runs of an experiment."""

    name: str
    question: str
    runs: tuple[RunProgress, ...]
    equal: Mapping[str, str]

    def with_state(self, *wanted: str) -> list[RunProgress]:
        """Return the runs in one of these states."""
        return [run for run in self.runs if run.state in wanted]


def find_experiment(named: Path, runs_root: Path) -> Path:
    """Return the folder of an experiment that is named by its file, its name or its folder.

    Raises:
        HeadToHeadError: If no run of it has been planned there, with the nearest name.
    """
    is_file = named.suffix in (".yaml", ".yml")
    name = experiment_name(named) if is_file else named.name
    if name and (runs_root / name / "experiment.json").is_file():
        return inside(runs_root, name)
    if (named / "experiment.json").is_file():
        return named
    known = [one.parent.name for one in runs_root.glob("*/experiment.json")]
    hint = nearest(name, known) if known else ""
    run = shlex.join(["h2h", "run", str(named)]) if is_file else "h2h run FILE"
    raise HeadToHeadError(f"no runs of '{name}' in '{runs_root}'{hint or f'; start with {run}'}")


def read_progress(folder: Path) -> Progress:
    """Read the state of every run of an experiment's folder."""
    experiment = read_json(folder / "experiment.json")
    if experiment is None:
        raise HeadToHeadError(f"'{folder}' holds no experiment.json; start with h2h run FILE")
    name = checked_name(experiment["name"], folder / "experiment.json")
    runs = tuple(_run(folder, planned) for planned in experiment["runs"])
    equal = {one["slug"]: one["equal_to"] for one in experiment["variants"] if one["equal_to"]}
    return Progress(name, experiment["question"], runs, equal)


def _run(folder: Path, planned: Mapping[str, Any]) -> RunProgress:
    reused = planned.get("reused_from")
    directory = run_folder(folder, planned["directory"], reused)
    status, state = observe(directory, lambda: read_json(directory / "status.json") or {})
    step, pace = _pace(directory / "metrics.jsonl") if state == states.RUNNING else (0, None)
    step, steps = max(step, int(status.get("step") or 0)), status.get("steps")
    pace = pace or _pace_from_start(status, step)
    left = pace * (steps - step) if pace and steps and state == states.RUNNING else None
    return RunProgress(
        variant=planned["variant"],
        seed=int(planned["seed"]),
        directory=planned["directory"],
        state=state,
        reason=status.get("reason"),
        step=step,
        steps=steps,
        seconds_left=left,
        attempt=int(status.get("attempt") or 0),
        reused_from=reused,
    )


def _pace(metrics: Path) -> tuple[int, float | None]:
    """Return the last logged step, and the seconds per step between the last lines."""
    try:
        with metrics.open("rb") as handle:
            handle.seek(max(0, handle.seek(0, os.SEEK_END) - _TAIL))
            tail = handle.read().split(b"\n")
    except FileNotFoundError:
        return 0, None
    points = {}
    for line in tail:
        try:
            record = json.loads(line)
            points[int(record["step"])] = float(record["time"])
        except (ValueError, KeyError, TypeError):  # cut by the tail, or torn by a crash
            continue
    if not points:
        return 0, None
    first, last = min(points), max(points)
    seconds = points[last] - points[first]
    return last, seconds / (last - first) if last > first and seconds > 0 else None


def _pace_from_start(status: Mapping[str, Any], step: int) -> float | None:
    """Return seconds per step since the run started; misled by the pause before a resumption."""
    started = status.get("started")
    if not started or step < 1:
        return None
    seconds = time.time() - datetime.fromisoformat(str(started)).timestamp()
    return seconds / step if math.isfinite(seconds) and seconds > 0 else None
