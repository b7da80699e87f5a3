"""Reading an experiment's folder and its run directories, as they stand at this moment."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from headtohead.errors import HeadToHeadError
from headtohead.storage import states
from headtohead.storage.leases import observe
from headtohead.storage.paths import checked_name, inside, run_folder

# Raised whenever the same run directory would be shipped differently: everything is shipped anew.
SHIPPING_FORMAT = 1
PLAN = "experiment.json"
UNREADABLE = "UNREADABLE"
LIVE_STATES = states.ACTIVE | {states.PLANNED}
CONTENT = (
    "run.json",
    "status.json",
    "results.json",
    "metrics.jsonl",
    "translations.tsv",
    "attention/probes.json",
    "vocabulary.json",
)
LATER = "heads.json"
"""Written by ``h2h heads``, if it is asked; a run without it is what it was."""
BULK = ("attention/maps.safetensors", "checkpoint.safetensors")


class Point(NamedTuple):
    """One value of a metric's history; ``time`` in milliseconds."""

    step: int
    time: int
    value: float


@dataclass(frozen=True)
class Study:
    """One experiment's folder and its plan."""

    folder: Path
    plan: dict[str, Any]

    @property
    def name(self) -> str:
        """The experiment's name, that of its folder and of its MLflow experiment."""
        return str(self.plan["name"])

    def runs(self) -> list[RunDirectory]:
        """Return the plan's runs, in its order, whether they have begun or not."""
        variants = {variant["slug"]: variant for variant in self.plan["variants"]}
        return [self._run(entry, variants[entry["variant"]]) for entry in self.plan["runs"]]

    def _run(self, entry: dict[str, Any], variant: dict[str, Any]) -> RunDirectory:
        reused = entry.get("reused_from")
        folder = run_folder(self.folder, entry["directory"], reused)
        return RunDirectory(folder, entry["key"], entry["seed"], variant, reused)


@dataclass(frozen=True)
class RunDirectory:
    """Where a run lies, and what the plan says of it."""

    folder: Path
    key: str
    seed: int
    variant: dict[str, Any]
    reused_from: str | None

    def begun(self) -> bool:
        """Whether there is something to ship."""
        return (self.folder / "run.json").is_file() and (self.folder / "status.json").is_file()

    def stamp(self) -> tuple[int, ...]:
        """Return a cheap sign of change: when the status and the metrics were last written."""
        return tuple(_modified(self.folder / name) for name in ("status.json", "metrics.jsonl", "run.json"))

    def record(self) -> dict[str, Any]:
        """Return ``run.json``: what the run is."""
        return read_json(self.folder / "run.json")

    def status(self) -> dict[str, Any]:
        """Return ``status.json``: how far it is."""
        return read_json(self.folder / "status.json")

    def status_or_unreadable(self) -> dict[str, Any]:
        """Return the status for an overview, where one damaged run must not hide the others."""
        try:
            return self.status()
        except HeadToHeadError:
            return {"state": UNREADABLE}

    def observed(self, *, sweep: bool) -> tuple[dict[str, Any], str, str | None]:
        """Return the status, the state and the reason.

        With ``sweep``, a run whose process is gone is KILLED. Without it, the run keeps its state:
        its parent is about to resume it.
        """
        status, state = observe(self.folder, self.status)
        if state != states.INTERRUPTED:
            return dict(status), state, status.get("reason")
        if sweep:
            reason = f"process {status.get('pid')} on {status.get('host')} is gone"
            return dict(status), states.KILLED, reason
        return dict(status), str(status["state"]), status.get("reason")

    def results(self) -> dict[str, Any] | None:
        """Return ``results.json``, with what masking its heads gave; None before it is done."""
        path, later = self.folder / "results.json", self.folder / LATER
        if not path.is_file():
            return None
        results = read_json(path)
        if later.is_file():
            results["metrics"] = results["metrics"] | read_json(later)["metrics"]
        return results

    def digest(self) -> str:
        """Return a hash of what would be shipped; large arrays count by their size."""
        digest = hashlib.sha256(f"{SHIPPING_FORMAT} {self.variant['axes']}".encode())
        for name in CONTENT:
            path = self.folder / name
            digest.update(f"\0{name}\0".encode())
            if path.is_file():
                digest.update(path.read_bytes())
        if (self.folder / LATER).is_file():
            digest.update(f"\0{LATER}\0".encode() + (self.folder / LATER).read_bytes())
        for name in BULK:
            path = self.folder / name
            digest.update(f"\0{name}\0{path.stat().st_size if path.is_file() else -1}".encode())
        return digest.hexdigest()[:32]

    def histories(self) -> dict[str, list[Point]]:
        """Return every metric's history by step.

        A resumed run repeats steps: the last value of a step wins, with the time of the first, so
        that a history shipped before the interruption and one shipped after it are the same.
        """
        histories: dict[str, dict[int, Point]] = {}
        for line in metric_lines(self.folder / "metrics.jsonl"):
            step, time = int(line["step"]), round(line["time"] * 1000)
            for key, value in line["values"].items():
                if value is not None:
                    points = histories.setdefault(key, {})
                    first = points.get(step)
                    points[step] = Point(step, first.time if first else time, float(value))
        return {key: [points[step] for step in sorted(points)] for key, points in histories.items()}


def read_study(folder: Path) -> Study:
    """Read an experiment's plan.

    Raises:
        HeadToHeadError: If the folder holds no plan, or one that cannot be read or names no folder.
    """
    path = inside(folder, PLAN)
    if not path.is_file():
        raise HeadToHeadError(f"'{folder}' holds no {PLAN}; type h2h run EXPERIMENT first")
    study = Study(folder, read_json(path))
    checked_name(study.plan["name"], path)
    return study


def study_folders(runs_root: Path) -> list[Path]:
    """Return the folders of all experiments below a runs folder."""
    return sorted(path.parent for path in runs_root.glob(f"*/{PLAN}"))


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object.

    Raises:
        HeadToHeadError: If the file is not JSON.
    """
    try:
        content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise HeadToHeadError(f"{path} is not readable JSON ({error}); restore it") from error
    return content


def metric_lines(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file; one torn by a kill is passed over."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            content = json.loads(line)
        except ValueError:
            continue
        if isinstance(content, dict) and {"step", "time", "values"} <= content.keys():
            yield content


def milliseconds(moment: str | None) -> int | None:
    """Return an ISO time in milliseconds since 1970."""
    return None if moment is None else round(datetime.fromisoformat(moment).timestamp() * 1000)


def _modified(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
