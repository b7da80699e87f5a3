"""Data frames of an experiment, read from its run directories."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from headtohead.schema.run_config import PER_RUN
from headtohead.statistics.looks import Looks
from headtohead.statistics.paired_tests import Summary, summarise
from headtohead.storage.experiment import ExperimentDirectory, ExperimentRecord, PlannedRunRecord, VariantRecord
from headtohead.storage.histories import MetricLine
from headtohead.storage.leases import observe
from headtohead.storage.metrics import span
from headtohead.storage.record import Versions, read_record
from headtohead.storage.reference_points import ReferenceScores, read_reference_points
from headtohead.storage.results import BackendRecord
from headtohead.storage.run import RUN, ExecutionRecord, PluginRecord, RunRecord, StatusRecord
from headtohead.storage.run_directory import RunDirectory

RUN_COLUMNS = (
    "variant",
    "title",
    "seed",
    "state",
    "reason",
    "run_hash",
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
class RunDetails:
    """The parts of ``run.json`` and ``results.json`` that a report cites.

    ``languages`` are those of source and target. ``leak`` is the fraction of the test pairs with a source sentence
    that is also in training.

    Whole records are not kept: the configurations of 10,000 runs would exhaust the memory.
    """

    plugins: tuple[PluginRecord, ...]
    versions: Versions
    execution: ExecutionRecord | None
    signatures: Mapping[str, str]
    notes: tuple[str, ...]
    decoding: Mapping[str, Any] | None
    backend: BackendRecord | None
    languages: tuple[str, ...]
    leak: float | None


@dataclass(frozen=True)
class Frames:
    """The results of an experiment as data frames.

    Attributes:
        runs: A row per planned run, indexed by run directory. Columns: `RUN_COLUMNS`, the axes, parameters and
            FLOPs, and the final metrics, including those of ``h2h ablate-heads``.
        histories: Columns run, step, epoch, time, metric, value; the last line of a step wins.
        buckets: Columns run, bucket, low, high, n, counts, and the metrics by source length.

    A variant that equals another by construction has no runs of its own: see `trained`.
    """

    directory: Path
    record: ExperimentRecord
    runs: pd.DataFrame
    histories: pd.DataFrame
    buckets: pd.DataFrame
    details: Mapping[str, RunDetails] = field(repr=False)
    folders: Mapping[str, Path] = field(repr=False)

    @property
    def name(self) -> str:
        """The experiment's name."""
        return self.record.name

    @property
    def axes(self) -> list[str]:
        """The names of the axes in the order of the file."""
        return list(self.record.axes)

    @property
    def seeds(self) -> list[int]:
        """The seeds of every variant."""
        return list(self.record.seeds)

    @property
    def looks(self) -> Looks | None:
        """The numbers of seeds at which the experiment is judged; None if its number of seeds is fixed."""
        return Looks(self.record.looks.seeds) if self.record.looks and self.record.looks.seeds else None

    @property
    def baseline(self) -> str:
        """The slug of the baseline."""
        return self.record.baseline

    @cached_property
    def reference_points(self) -> tuple[ReferenceScores, ...]:
        """The reference points of the experiment by data set; empty if they were not computed."""
        return read_reference_points(self.directory)

    @cached_property
    def by_slug(self) -> dict[str, VariantRecord]:
        """The declared variants by slug, in the order of the design."""
        return self.record.by_slug

    def trained(self, slug: str) -> str:
        """Return the slug of the variant with the runs: this variant, or the variant that it equals by construction."""
        return self.by_slug[slug].equal_to or slug

    @property
    def has_draws(self) -> bool:
        """Whether each seed has its own draw of the data (``data.seed: per-run``)."""
        return bool(self.by_slug[self.baseline].config["data"]["seed"] == PER_RUN)

    @property
    def trained_steps(self) -> list[int]:
        """The steps of each run; of a run that stopped early, those until it stopped."""
        stopped = self.runs["stopped_early"].fillna(False).astype(bool)
        return [int(steps) for steps in self.runs["step"].where(stopped, self.runs["steps"]).dropna()]

    def same_data(self, slugs: Iterable[str]) -> bool:
        """Return whether variants have the same data in each seed."""
        by_seed: dict[int, set[str]] = {}
        for slug in slugs:
            rows = self.rows(slug)[["seed", "data_hash"]].dropna()
            for seed, data_hash in rows.itertuples(index=False, name=None):
                by_seed.setdefault(seed, set()).add(data_hash)
        return all(len(hashes) == 1 for hashes in by_seed.values())

    def path(self, run: str) -> Path:
        """Return the directory of a run, which for a reused result is in another experiment."""
        return self.folders[run]

    def scores(self, slug: str, metric: str) -> dict[int, float]:
        """Return a variant's values of a final metric by seed, without missing values."""
        return self._scores(metric).get(self.trained(slug), {})

    def summary(self, slug: str, metric: str) -> Summary:
        """Return mean and confidence interval of a variant's final metric over seeds."""
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

    A run without files is PLANNED. Damaged lines of a history, such as the incomplete line of a crash, are skipped
    and counted in the column ``torn_lines``.

    Raises:
        HeadToHeadError: If the folder is not an experiment, a record cannot be read, a file of a finished run has
            changed, or a path is outside the runs folder.
    """
    experiment = ExperimentDirectory.read(experiment_dir)
    histories, buckets = _Histories(), []
    rows, details, folders = [], {}, {}
    variants = experiment.record.by_slug
    for planned in experiment.record.runs:
        folder = experiment.run_path(planned, tree=True)
        name = folder.name
        status, state = observe(folder)
        row, run_buckets, run_details = _run(folder, status, state, planned, variants[planned.variant])
        row["torn_lines"] = histories.read(name, RunDirectory(folder).history(status))
        buckets += [{"run": name, **bucket, **bucket["scores"]} for bucket in run_buckets]
        rows.append({"run": name, **row})
        details[name], folders[name] = run_details, folder
    return Frames(
        directory=experiment_dir,
        record=experiment.record,
        runs=_runs_table(rows),
        histories=histories.table(),
        buckets=pd.DataFrame(buckets, columns=None if buckets else ["run", "bucket"]),
        details=details,
        folders=folders,
    )


def _runs_table(rows: list[dict[str, Any]]) -> pd.DataFrame:
    if not rows:
        return pd.DataFrame(columns=pd.Index(RUN_COLUMNS), index=pd.Index([], name="run"))
    return pd.DataFrame(rows).set_index("run")


def _run(
    folder: Path, status: StatusRecord, state: str, planned: PlannedRunRecord, variant: VariantRecord
) -> tuple[dict[str, Any], Sequence[Mapping[str, Any]], RunDetails]:
    """Return a run's row, its scores by source length, and its details.

    Axes and title come from this experiment, since the record of a reused run has those of another experiment.
    """
    record = read_record(RunRecord, folder / RUN)
    run = RunDirectory(folder)
    results = run.results_of(status)
    row: dict[str, Any] = {
        "variant": planned.variant,
        "title": variant.title,
        "seed": planned.seed,
        "state": state,
        "reason": status.reason or status.signature,
        "run_hash": planned.run_hash,
        "directory": f"../{planned.reused_from}" if planned.reused_from else planned.directory,
        "reused_from": planned.reused_from,
        "step": status.step,
        "steps": status.steps,
        "started": status.started,
        "ended": status.ended,
        "data_hash": record.data["data_hash"] if record else None,
        "stopped_early": results.stopped_early if results else None,
        **variant.axes,
        "flops_per_token": variant.counts.flops_per_token,
        **{f"parameters/{part}": getattr(variant.counts, part) for part in ("total", "non_embedding", "attention")},
        **(results.metrics if results else {}),
        **run.head_metrics_of(status),
    }
    details = RunDetails(
        plugins=record.plugins if record else (),
        versions=record.versions if record else {},
        execution=record.execution if record else None,
        signatures=results.signatures if results else {},
        notes=results.notes if results else (),
        decoding=results.decoding if results else None,
        backend=results.backend if results else None,
        languages=tuple(record.data["languages"]) if record else (),
        leak=record.data.get("leak") if record else None,
    )
    return row, results.buckets if results else (), details


class _Histories:
    """Columns of all histories as typed arrays, which need no Python object per value."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.metrics: dict[str, int] = {}
        self.run, self.metric, self.step = array("i"), array("i"), array("q")
        self.epoch, self.time, self.value = array("d"), array("d"), array("d")

    def read(self, run: str, lines: Iterable[MetricLine | None]) -> int:
        """Append the lines of a history and return the number of damaged lines."""
        code = len(self.runs)
        self.runs.append(run)
        values: dict[tuple[int, str], tuple[float, float, float]] = {}
        torn = 0
        for line in lines:
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
