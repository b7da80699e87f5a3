"""Tidy tables of an experiment, read from its run directories, each file once."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headtohead.statistics.paired_tests import Summary, summarise
from headtohead.storage import states
from headtohead.storage.experiment import ExperimentDirectory
from headtohead.storage.histories import read_metrics
from headtohead.storage.leases import observe
from headtohead.storage.metrics import span
from headtohead.storage.records import (
    METRICS,
    RUN,
    ExperimentRecord,
    PlannedRunRecord,
    RunRecord,
    VariantRecord,
    read_record,
)
from headtohead.storage.run_directory import RunDirectory

KEPT = {"plugins", "versions", "execution"}
"""Fields of ``run.json`` that a report cites; configurations of 10,000 runs would fill the memory."""

CITED = ("signatures", "notes", "decoding", "backend")
"""Fields of ``results.json`` that a report cites."""

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
    "data_hash",
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
    record: ExperimentRecord
    runs: pd.DataFrame
    histories: pd.DataFrame
    buckets: pd.DataFrame
    records: Mapping[str, Mapping[str, Any]] = field(repr=False)
    folders: Mapping[str, Path] = field(repr=False)

    @cached_property
    def experiment(self) -> Mapping[str, Any]:
        """The record as plain data."""
        return self.record.to_json()

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.record.name

    @property
    def axes(self) -> list[str]:
        """The names of what varies, in the order of the file."""
        return list(self.record.axes)

    @property
    def seeds(self) -> list[int]:
        """The seeds of every variant."""
        return list(self.record.seeds)

    @property
    def baseline(self) -> str:
        """The slug of the variant that others are compared with."""
        return self.record.baseline

    @cached_property
    def by_slug(self) -> dict[str, VariantRecord]:
        """The declared variants by slug, in the order of the design."""
        return self.record.by_slug

    @cached_property
    def variants(self) -> dict[str, Mapping[str, Any]]:
        """The declared variants by slug as plain data."""
        return {variant["slug"]: variant for variant in self.experiment["variants"]}

    def trained(self, slug: str) -> str:
        """Return the slug whose runs are this variant's: its own, or its equal's."""
        return self.by_slug[slug].equal_to or slug

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
    experiment = ExperimentDirectory.read(experiment_dir)
    histories, buckets = _Histories(), []
    rows, records, folders = [], {}, {}
    variants = experiment.record.by_slug
    for planned in experiment.record.runs:
        folder = experiment.run_path(planned, tree=True)
        name = folder.name
        row, run_buckets, record = _run(folder, planned, variants[planned.variant])
        row["torn_lines"] = histories.read(name, folder / METRICS)
        buckets += [{"run": name, **bucket} for bucket in run_buckets]
        rows.append({"run": name, **row})
        records[name], folders[name] = record, folder
    return Frames(
        directory=experiment_dir,
        record=experiment.record,
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
    folder: Path, planned: PlannedRunRecord, variant: VariantRecord
) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]], dict[str, Any]]:
    """Return a run's row, its scores by source length, and the fields of its records that a report cites.

    Axes and title are those of this experiment: the record of a reused run has those of another.
    """
    record = read_record(RunRecord, folder / RUN)
    status, state = observe(folder)
    run = RunDirectory(folder)
    results = run.results if state == states.DONE else None
    row: dict[str, Any] = {
        "variant": planned.variant,
        "title": variant.title,
        "seed": planned.seed,
        "state": state,
        "reason": status.reason or status.signature,
        "key": planned.key,
        "directory": f"../{planned.reused_from}" if planned.reused_from else planned.directory,
        "reused_from": planned.reused_from,
        "step": status.step,
        "steps": status.steps,
        "started": status.started,
        "ended": status.ended,
        "data_hash": record.data["data_hash"] if record else None,
        "stopped_early": results.stopped_early if results else None,
        **variant.axes,
        "flops_per_token": variant.flops_per_token,
        **{f"parameters/{part}": n for part, n in variant.parameters},
        **(results.metrics if results else {}),
        **(run.head_metrics if results else {}),
    }
    kept = record.model_dump(mode="json", include=KEPT) if record else {}
    cited = results.to_json() if results else {}
    return row, results.buckets if results else (), kept | {name: cited[name] for name in CITED if cited.get(name)}


class _Histories:
    """Columns of all histories, grown run by run without an object per value."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.metrics: dict[str, int] = {}
        self.run, self.metric, self.step = array("i"), array("i"), array("q")
        self.epoch, self.time, self.value = array("d"), array("d"), array("d")

    def read(self, run: str, path: Path) -> int:
        """Take one file in and return how many of its lines could not be read."""
        code = len(self.runs)
        self.runs.append(run)
        values: dict[tuple[int, str], tuple[float, float, float]] = {}
        torn = 0
        for line in read_metrics(path):
            if line is None:
                torn += 1
                continue
            for metric, value in line.values.items():
                number = float("nan") if value is None else float(value)
                values[line.step, metric] = (line.epoch, line.time, number)
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
