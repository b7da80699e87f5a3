"""Data frames of an experiment, read from its run directories."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from headtohead.storage import states
from headtohead.storage.experiment import (
    ExperimentDirectory,
    ExperimentRecord,
    PlannedRunRecord,
    ReferenceScores,
    VariantRecord,
    read_reference_points,
)
from headtohead.storage.leases import observe
from headtohead.storage.metrics import is_by_stack, span
from headtohead.storage.record import read_record
from headtohead.storage.results import MetricLine, ResultsRecord
from headtohead.storage.run import RUN, RunRecord, StatusRecord
from headtohead.storage.run_directory import RunDirectory, merged_metrics
from headtohead_judge.looks import Looks
from headtohead_judge.paired_tests import Summary, summarise

PARAMETERS = ("total", "non_embedding", "attention")


@dataclass(frozen=True)
class Frames:
    """The results of an experiment as data frames.

    Attributes:
        runs: A row per planned run, indexed by run directory. Columns: those of `load_frames`, the axes, parameters and
            FLOPs, and the final metrics, including those of ``h2h ablate-heads``.
        histories: Columns run, step, epoch, time, metric, value; the last line of a step wins.
        buckets: Columns run, bucket, low, high, n, counts, scores, and each of the scores, by source length.
        records: The records of the runs that have one, without configuration, by run directory.
        results: The results of the runs that are DONE, without buckets, by run directory.
        folders: The directory of each run, which for a reused result is in another experiment.

    A variant that equals another by construction has no runs of its own: see `trained`.
    """

    directory: Path
    record: ExperimentRecord
    runs: pd.DataFrame
    histories: pd.DataFrame
    buckets: pd.DataFrame
    records: Mapping[str, RunRecord] = field(repr=False)
    results: Mapping[str, ResultsRecord] = field(repr=False)
    folders: Mapping[str, Path] = field(repr=False)

    @property
    def seeds(self) -> list[int]:
        """The seeds of every variant."""
        return list(self.record.seeds)

    @property
    def looks(self) -> Looks | None:
        """The numbers of seeds at which the experiment is judged; None if its number of seeds is fixed."""
        looks = self.record.looks
        if looks is None or not looks.seeds:
            return None
        return Looks(looks.seeds)

    @property
    def baseline(self) -> str:
        """The slug of the baseline."""
        return self.record.baseline

    @cached_property
    def reference_points(self) -> tuple[ReferenceScores, ...]:
        """The reference points of the experiment by data set; empty if they were not computed.

        Raises:
            HeadToHeadError: If their file is damaged.
        """
        return read_reference_points(self.directory)

    @cached_property
    def by_slug(self) -> dict[str, VariantRecord]:
        """The declared variants by slug, in the order of the design."""
        return self.record.by_slug

    def trained(self, slug: str) -> str:
        """Return the slug of the variant with the runs: this variant, or the variant that it equals by construction."""
        return self.by_slug[slug].equal_to or slug

    @property
    def has_result(self) -> pd.Series:
        """Whether each run has a result, by run directory; a diverged run has one."""
        return self.runs["state"].isin(states.RESULTS)

    @property
    def trained_steps(self) -> list[int]:
        """The steps of each run; of a run that stopped early, those until it stopped."""
        stopped = self.runs["stopped_early"].fillna(False).astype(bool)
        steps = self.runs["step"].where(stopped, self.runs["steps"])
        return [int(count) for count in steps.dropna()]

    def same_data(self, slugs: Iterable[str]) -> bool:
        """Return whether variants have the same data."""
        hashes = pd.concat([self.rows(slug)["data_hash"] for slug in slugs])
        return bool(hashes.nunique() <= 1)

    def scores(self, slug: str, metric: str) -> dict[int, float]:
        """Return a variant's values of a final metric by seed, without missing values."""
        rows = self.rows(slug)
        if metric not in rows:
            return {}
        scores = {}
        for seed, value in zip(rows["seed"].tolist(), rows[metric].tolist(), strict=True):
            if value is not None and not math.isnan(value):
                scores[int(seed)] = float(value)
        return scores

    def steps(self, slug: str) -> int:
        """Return the largest number of trained steps of a variant's runs; 0 without a run."""
        return int(max(self.rows(slug)["step"].dropna(), default=0))

    def summary(self, slug: str, metric: str) -> Summary:
        """Return mean and confidence interval of a variant's final metric over seeds.

        Costs that runs of a stack share have no interval: their seeds do not repeat the measurement.
        """
        summary = summarise(list(self.scores(slug, metric).values()), span=span(metric))
        if is_by_stack(metric):
            return replace(summary, sd=math.nan, low=math.nan, high=math.nan)
        return summary

    @cached_property
    def _by_variant(self) -> dict[str, pd.DataFrame]:
        ordered = self.runs.sort_values("seed", kind="stable")
        return {str(slug): rows for slug, rows in ordered.groupby("variant", sort=False)}

    def rows(self, slug: str) -> pd.DataFrame:
        """Return a variant's rows of ``runs``, ordered by seed."""
        rows = self._by_variant.get(self.trained(slug))
        if rows is None:
            return self.runs.iloc[:0]
        return rows


def load_frames(experiment_dir: Path) -> Frames:
    """Read an experiment and all its runs.

    A run without files is PLANNED. Damaged lines of a history, such as the incomplete line of a crash, are skipped
    and counted in the column ``torn_lines``.

    Raises:
        HeadToHeadError: If ``experiment.json`` is missing, or it, a record or a result of a run is damaged.
    """
    experiment = ExperimentDirectory.read(experiment_dir)
    variants = experiment.record.by_slug
    histories = _Histories()
    rows: list[dict[str, Any]] = []
    buckets: list[dict[str, Any]] = []
    records: dict[str, RunRecord] = {}
    results: dict[str, ResultsRecord] = {}
    folders: dict[str, Path] = {}
    for planned in experiment.record.runs:
        folder = planned.path(experiment.path, tree=True)
        name = folder.name
        run = RunDirectory(folder, observed_status=observe(folder))
        record = read_record(RunRecord, folder / RUN)
        result = run.results
        folders[name] = folder
        if record is not None:
            records[name] = record.model_copy(update={"config": {}})
        if result is not None:
            results[name] = result.model_copy(update={"buckets": ()})
            for bucket in result.buckets:
                buckets.append({"run": name, **bucket, **bucket["scores"]})
        # Axes and title come from this experiment, since the record of a reused run has those of another experiment.
        variant = variants[planned.variant]
        row = {"run": name, **_planned_columns(planned, variant, run.status)}
        row["data_hash"] = record.data["data_hash"] if record else None
        row["stopped_early"] = result.stopped_early if result else None
        row["torn_lines"] = histories.read(name, run.history())
        rows.append({**row, **_variant_columns(variant), **merged_metrics(result, run.heads)})
    return Frames(
        directory=experiment_dir,
        record=experiment.record,
        runs=pd.DataFrame(rows).set_index("run"),
        histories=histories.table(),
        buckets=pd.DataFrame(buckets, columns=None if buckets else ["run", "bucket"]),
        records=records,
        results=results,
        folders=folders,
    )


def _planned_columns(
    planned: PlannedRunRecord, variant: VariantRecord, status: StatusRecord
) -> dict[str, Any]:
    """Return what the plan and the status have of a run."""
    directory = planned.directory
    if planned.reused_from:
        directory = f"../{planned.reused_from}"
    return {
        "variant": planned.variant,
        "title": variant.title,
        "seed": planned.seed,
        "state": status.state,
        "reason": status.reason or status.signature,
        "run_hash": planned.run_hash,
        "directory": directory,
        "reused_from": planned.reused_from,
        "step": status.step,
        "steps": status.steps,
        "started": status.started,
        "ended": status.ended,
    }


def _variant_columns(variant: VariantRecord) -> dict[str, Any]:
    """Return the axes of a variant, its FLOPs and its numbers of parameters."""
    columns = {**variant.axes, "flops_per_token": variant.counts.flops_per_token}
    for part in PARAMETERS:
        columns[f"parameters/{part}"] = getattr(variant.counts, part)
    return columns


class _Histories:
    """Columns of all histories as typed arrays, which need no Python object per value."""

    def __init__(self) -> None:
        types = {"run": "i", "step": "q", "epoch": "d", "time": "d", "metric": "i", "value": "d"}
        self.columns: dict[str, array[Any]] = {}
        for name, code in types.items():
            self.columns[name] = array(code)
        self.runs: list[str] = []
        self.metrics: dict[str, int] = {}

    def read(self, run: str, lines: Iterable[MetricLine | None]) -> int:
        """Append the lines of a history and return the number of damaged lines."""
        values: dict[tuple[int, str], tuple[float, ...]] = {}
        torn = 0
        for line in lines:
            if line is None:
                torn += 1
                continue
            place = (len(self.runs), line.step, line.epoch, line.time)
            for metric, value in line.values.items():
                code = self.metrics.setdefault(metric, len(self.metrics))
                number = math.nan if value is None else value
                values[line.step, metric] = (*place, code, number)
        for index, column in enumerate(self.columns.values()):
            column.extend([row[index] for row in values.values()])
        self.runs.append(run)
        return torn

    def table(self) -> pd.DataFrame:
        """Return the columns as a table, in which runs and metrics are categories."""
        table = pd.DataFrame({name: np.array(column) for name, column in self.columns.items()})
        for name, categories in (("run", self.runs), ("metric", list(self.metrics))):
            table[name] = pd.Categorical.from_codes(table[name], categories=pd.Index(categories))
        return table
