"""Tidy tables of an experiment, read from its run directories, each file once."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headtohead.errors import HeadToHeadError
from headtohead.statistics.paired_tests import Summary, summarise
from headtohead.storage.leases import observe
from headtohead.storage.metrics import span
from headtohead.storage.paths import checked_name, inside, run_folder

FINAL = ("DONE", "DIVERGED")
"""States whose results stand: a run that diverged has answered too."""

KEPT = ("plugins", "versions", "execution")
"""What of ``run.json`` a report cites; configurations of 10,000 runs would fill the memory."""

RUN_COLUMNS = (
    "variant",
    "title",
    "seed",
    "state",
    "reason",
    "key",
    "directory",
    "reused_from",
    "step",
    "steps",
    "started",
    "ended",
    "fingerprint",
    "stopped_early",
    "torn_lines",
)


@dataclass(frozen=True)
class Frames:
    """An experiment as data.

    ``runs``: one row per planned run, indexed by run directory: `RUN_COLUMNS`, one column per axis
    under its own name, parameters and FLOPs, then every final metric under its own name, those that
    ``h2h heads`` has added among them.
    ``histories``: columns run, step, epoch, time, metric, value; the last line of a step wins.
    ``buckets``: columns run, bucket, low, high, n, and the metrics by source length.
    Runs of a variant that equals another by construction do not exist: see `trained`.
    """

    directory: Path
    experiment: Mapping[str, Any]
    runs: pd.DataFrame
    histories: pd.DataFrame
    buckets: pd.DataFrame
    records: Mapping[str, Mapping[str, Any]] = field(repr=False)
    folders: Mapping[str, Path] = field(repr=False)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return str(self.experiment["name"])

    @property
    def axes(self) -> list[str]:
        """What varies, in the order of the file."""
        return list(self.experiment.get("axes", []))

    @property
    def seeds(self) -> list[int]:
        """The replicates that every variant was asked for."""
        return [int(seed) for seed in self.experiment["seeds"]]

    @property
    def baseline(self) -> str:
        """The slug of the variant that others are compared with."""
        return str(self.experiment["baseline"])

    @cached_property
    def variants(self) -> dict[str, Mapping[str, Any]]:
        """The declared variants by slug, in the order of the design."""
        return {variant["slug"]: variant for variant in self.experiment["variants"]}

    def trained(self, slug: str) -> str:
        """Return the slug whose runs are this variant's: its own, or its equal's."""
        equal = self.variants[slug].get("equal_to")
        return str(equal) if equal else slug

    def path(self, run: str) -> Path:
        """Return the directory that holds a run's files, in another experiment where reused."""
        return self.folders[run]

    def scores(self, slug: str, metric: str) -> dict[int, float]:
        """Return a variant's finite values of a final metric by seed."""
        return self._scores(metric).get(self.trained(slug), {})

    def summary(self, slug: str, metric: str) -> Summary:
        """Return mean and interval of a variant's final values of a metric over its seeds."""
        return summarise(list(self.scores(slug, metric).values()), span=span(metric))

    def _scores(self, metric: str) -> dict[str, dict[int, float]]:
        if metric not in self._cache:
            table: dict[str, dict[int, float]] = {}
            if metric in self.runs:
                rows = self.runs[["variant", "seed", metric]].dropna()
                for variant, seed, value in rows.itertuples(index=False, name=None):
                    table.setdefault(variant, {})[int(seed)] = float(value)
            self._cache[metric] = table
        return self._cache[metric]

    @cached_property
    def _cache(self) -> dict[str, dict[str, dict[int, float]]]:
        return {}

    @cached_property
    def _by_variant(self) -> dict[str, pd.DataFrame]:
        ordered = self.runs.sort_values("seed", kind="stable")
        return {str(slug): rows for slug, rows in ordered.groupby("variant", sort=False)}

    def rows(self, slug: str) -> pd.DataFrame:
        """Return a variant's rows of ``runs``, ordered by seed."""
        rows = self._by_variant.get(self.trained(slug))
        return self.runs.iloc[:0] if rows is None else rows


def load_frames(experiment_dir: Path) -> Frames:
    """Read an experiment and all its runs.

    A run without files yet is there with the state PLANNED. Lines of a history that were torn by a
    crash are skipped and counted in the column ``torn_lines``.

    Raises:
        HeadToHeadError: If the folder is no experiment, a record in it cannot be read, or a path
            in it leaves the runs folder.
    """
    experiment = _read(inside(experiment_dir, "experiment.json"))
    if experiment is None:
        raise HeadToHeadError(
            f"{experiment_dir} holds no experiment.json; run the experiment first, or name its runs folder with --runs"
        )
    checked_name(experiment["name"], experiment_dir / "experiment.json")
    histories, buckets = _Histories(), []
    rows, records, folders = [], {}, {}
    variants = {variant["slug"]: variant for variant in experiment["variants"]}
    for run in experiment["runs"]:
        reused = run.get("reused_from")
        folder = run_folder(experiment_dir, run["directory"], reused, tree=True)
        name = folder.name
        directory = f"../{reused}" if reused else str(run["directory"])
        row, record = _run(folder, run, directory, variants[run["variant"]])
        row["torn_lines"] = histories.read(name, folder / "metrics.jsonl")
        buckets += [{"run": name, **bucket} for bucket in row.pop("buckets")]
        rows.append({"run": name, **row})
        records[name], folders[name] = record, folder
    return Frames(
        directory=experiment_dir,
        experiment=experiment,
        runs=_runs_table(rows),
        histories=histories.table(),
        buckets=pd.DataFrame(buckets, columns=None if buckets else ["run", "bucket"]),
        records=records,
        folders=folders,
    )


def _runs_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    if not rows:
        return pd.DataFrame(columns=pd.Index(RUN_COLUMNS), index=pd.Index([], name="run"))
    return pd.DataFrame(rows).set_index("run")


def _run(
    folder: Path, planned: Mapping[str, Any], directory: str, variant: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a run's row and what else of its records a report cites.

    Axes and title are this experiment's: a reused run's own record speaks of another's.
    """
    record = _read(folder / "run.json") or {}
    status, state = observe(folder, lambda: _read(folder / "status.json") or {})
    results = (_read(folder / "results.json") or {}) if state == "DONE" else {}
    heads = (_read(folder / "heads.json") or {}) if state == "DONE" else {}
    row: dict[str, Any] = {
        "variant": planned["variant"],
        "title": variant["title"],
        "seed": int(planned["seed"]),
        "state": state,
        "reason": status.get("reason") or status.get("signature"),
        "key": planned["key"],
        "directory": directory,
        "reused_from": planned.get("reused_from"),
        "step": status.get("step"),
        "steps": status.get("steps"),
        "started": status.get("started"),
        "ended": status.get("ended"),
        "fingerprint": record.get("data", {}).get("fingerprint"),
        "stopped_early": results.get("stopped_early"),
        "buckets": results.get("buckets", []),
        **variant["axes"],
        "flops_per_token": variant.get("flops_per_token"),
        **{f"parameters/{part}": n for part, n in (variant.get("parameters") or {}).items()},
        **results.get("metrics", {}),
        **heads.get("metrics", {}),
    }
    kept = {key: value for key, value in record.items() if key in KEPT}
    cited = ("signatures", "notes", "decoding", "backend")
    kept |= {key: results[key] for key in cited if results.get(key)}
    return row, kept


def _read(path: Path) -> dict[str, Any] | None:
    try:
        text = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HeadToHeadError(f"{path} cannot be read: {error.strerror}") from error
    try:
        content = json.loads(text)
    except ValueError as error:
        raise HeadToHeadError(
            f"{path} is not valid JSON ({error}); remove the file and run the experiment again"
        ) from error
    if not isinstance(content, dict):
        raise HeadToHeadError(f"{path} holds no JSON object; remove it and run again")
    return content


class _Histories:
    """Columns of all histories, grown run by run without an object per value."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.metrics: dict[str, int] = {}
        self.run, self.metric, self.step = array("i"), array("i"), array("q")
        self.epoch, self.time, self.value = array("d"), array("d"), array("d")

    def read(self, run: str, path: Path) -> int:
        """Take one file in and return how many of its lines could not be read."""
        try:
            content = path.read_bytes()
        except FileNotFoundError:
            return 0
        except OSError as error:
            raise HeadToHeadError(f"{path} cannot be read: {error.strerror}") from error
        code = len(self.runs)
        self.runs.append(run)
        values: dict[tuple[int, str], tuple[float, float, float]] = {}
        torn = 0
        for line in _lines(content):
            if line is None:
                torn += 1
                continue
            for metric, value in line["values"].items():
                number = float("nan") if value is None else float(value)
                values[line["step"], metric] = (line.get("epoch", 0.0), line.get("time", 0.0), number)
        for (step, metric), (epoch, time, number) in values.items():
            self.run.append(code)
            self.metric.append(self.metrics.setdefault(metric, len(self.metrics)))
            self.step.append(step)
            self.epoch.append(epoch)
            self.time.append(time)
            self.value.append(number)
        return torn

    def table(self) -> pd.DataFrame:
        runs, metrics = pd.Index(self.runs), pd.Index(list(self.metrics))
        return pd.DataFrame(
            {
                "run": pd.Categorical.from_codes(_integers(self.run), categories=runs),
                "step": np.array(self.step),
                "epoch": np.array(self.epoch),
                "time": np.array(self.time),
                "metric": pd.Categorical.from_codes(_integers(self.metric), categories=metrics),
                "value": np.array(self.value),
            }
        )


def _integers(values: array[int]) -> NDArray[np.intc]:
    return np.array(values, dtype=np.intc)


def _lines(content: bytes) -> Iterator[dict[str, Any] | None]:
    """Yield each line's object, None for a torn one; the whole file at once where none is torn."""
    lines = [line for line in content.split(b"\n") if line.strip()]
    entries = _parse(b"[" + b",".join(lines) + b"]")
    if not isinstance(entries, list) or len(entries) != len(lines):
        entries = [_parse(line) for line in lines]
    for entry in entries:
        yield entry if isinstance(entry, dict) and "values" in entry else None


def _parse(text: bytes) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None  # a torn line; the caller counts it
