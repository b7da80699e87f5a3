"""Generate a study of any size on disk by training only a few of its runs.

headtohead plans and executes the experiment file with a launcher that trains nothing. `train` trains one stack of each
model. Every other run gets the files of the trained run of its model:
attention maps, weights and vocabularies as hard links; histories, scores, buckets and translations
shifted by random effects of its variant and its seed. The script does not call fsync, which would
take most of the time.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import yaml

from headtohead import files
from headtohead.config.loading import load_file
from headtohead.data import cache_root
from headtohead.execution.scheduler import Machine, Watcher, execute
from headtohead.planning.planner import make_plan
from headtohead.plugins.launcher import Exit, Job, Launcher
from headtohead.plugins.registry import current
from headtohead.storage import exits, states
from headtohead.storage.histories import read_metrics
from headtohead.storage.results import ResultsRecord
from headtohead.storage.run import CHECKPOINT, MAPS, METRICS, PROBES, RESULTS, TRANSLATIONS, VOCABULARY, RunRecord
from headtohead.storage.run_directory import RunDirectory, RunWriter, leased
from headtohead.storage.stack import StackFolder
from headtohead.storage.translations import Translation, read_translations, translations_text

LINKED = (CHECKPOINT, VOCABULARY, MAPS, PROBES)
DIVERGED_IN = 1000
"""One of this many runs diverges."""


@dataclass(frozen=True)
class StudySize:
    """Size of a study: values of each axis, number of seeds, and steps per run."""

    axes: Mapping[str, Sequence[Any]]
    seeds: int
    steps: int = 200

    def write(self, path: Path) -> None:
        """Write the experiment file."""
        content = {
            "question": "What do position, attention and learning rate do together?",
            "base": {
                "data": {"dataset": "toy-grammar"},
                "model": {"d_model": 16, "heads": 2, "layers": 1, "d_ff": 32, "dropout": 0.0},
                "train": {"steps": self.steps, "batch_tokens": 512, "evaluate_every": max(1, self.steps // 10)},
            },
            "baseline": {axis: values[0] for axis, values in self.axes.items() if "." not in axis},
            "design": [{"product": {axis: list(values) for axis, values in self.axes.items()}}],
            "seeds": self.seeds,
        }
        content["base"]["train"] |= {axis.split(".")[1]: values[0] for axis, values in self.axes.items() if "." in axis}
        path.write_text(yaml.safe_dump(content, sort_keys=False), encoding="utf-8")


def make_study(
    folder: Path,
    shape: StudySize,
    trained: Path | None = None,
    watcher: Watcher | None = None,
    workers: int | None = None,
) -> Path:
    """Write ``large.yaml`` and ``runs/large`` in a folder and return the file.

    Args:
        folder: Where to write.
        shape: Size of the study.
        trained: Result of `train` for the same models; by default they are trained here.
        watcher: Observes the execution.
        workers: Number of workers.
    """
    trained = trained or train(folder / "trained", shape)
    file = folder / "large.yaml"
    shape.write(file)
    plan = make_plan(load_file(file), current(), folder / "runs")
    launcher = GeneratedLauncher(trained)
    with patch.object(os, "fsync", lambda handle: None):
        machine = Machine(launcher, workers=workers)
        execute(plan, machine, cache_root(), watcher or Quiet(), "h2h run large.yaml")
    return file


def train(folder: Path, shape: StudySize) -> Path:
    """Train two seeds of every model of the design and return the folder of their runs."""
    folder.mkdir(parents=True, exist_ok=True)
    few = replace(
        shape, seeds=2, axes={axis: values[:1] if "." in axis else values for axis, values in shape.axes.items()}
    )
    file = folder / "trained.yaml"
    few.write(file)
    registry = current()
    plan = make_plan(load_file(file), registry, folder)
    local = registry.launcher("local")()
    outcome = execute(plan, Machine(local, threads=1), cache_root(), Quiet(), "h2h run")
    if set(outcome.states) != {states.DONE}:
        raise SystemExit(f"training failed: {dict(outcome.states)}, {outcome.stopped}")
    return plan.directory


class Quiet(Watcher):
    """A watcher without output."""

    def start(self, folders: Sequence[StackFolder]) -> None:
        """Nothing."""

    def tick(self) -> None:
        """Nothing."""

    def ended(self, folder: StackFolder, code: int) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class GeneratedLauncher(Launcher):
    """Writes the files that a worker would write, without training."""

    name = "written"

    def __init__(self, trained: Path) -> None:
        runs = [TrainedRun.read(path.parent) for path in sorted(trained.glob("*/results.json"))]
        self.trained = {(run.model, run.seed): run for run in runs}

    def launch(self, jobs: Sequence[Job], workers: int) -> Iterator[Exit | None]:
        """Write the stacks in sequence."""
        for job in jobs:
            folder = StackFolder(job.stack)
            for run, member in zip(folder.runs(), folder.record.members, strict=True):
                record = run.record
                with leased(run.path) as writer:
                    self.trained[_model(record), 1 + member.seed % 2].write(writer, record)
            yield Exit(job, exits.OK)


@dataclass(frozen=True)
class TrainedRun:
    """The files of a trained run."""

    path: Path
    model: tuple[str, str]
    seed: int
    results: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    translations: Sequence[Translation]

    @classmethod
    def read(cls, path: Path) -> TrainedRun:
        """Read a run directory."""
        record = RunDirectory(path).record
        return cls(
            path,
            _model(record),
            record.seed,
            files.read_json(path / RESULTS),
            [line._asdict() for line in read_metrics(path / METRICS) if line],
            read_translations(path),
        )

    def write(self, run: RunWriter, record: RunRecord) -> None:
        """Write the files of another run of this model."""
        run.begin_attempt()
        steps = record.config["train"]["steps"]
        run.set_state(states.RUNNING, steps=steps)
        draws = _draws("run", record.run_hash)
        quality = _quality(record)
        right = draws.random(len(self.translations)) < quality
        factor = (1.6 - quality) * math.exp(draws.normal(0, 0.02))
        diverged = int(record.run_hash[:8], 16) % DIVERGED_IN == 0
        history = self.history[: len(self.history) // 2] if diverged else self.history
        scores = {
            "exact_match": float(right.mean()),
            "exact_match_unpadded": float(right.mean()),
            "bleu": 100 * quality**0.6,
            "chrf": 100 * quality**0.5,
        }

        def moved(values: Mapping[str, float]) -> dict[str, float]:
            return {name: _moved(name, value, factor, scores, draws) for name, value in values.items()}

        lines = [{**line, "values": moved(line["values"])} for line in history]
        files.append_lines(run.path / METRICS, lines)
        if diverged:
            reason = f"train/loss is not finite at step {lines[-1]['step'] + 20}"
            run.set_state(states.DIVERGED, step=lines[-1]["step"] + 20, reason=reason)
            return
        for name in LINKED:
            target = run.path / name
            target.parent.mkdir(exist_ok=True)
            os.link(self.path / name, target)
        self._write_translations(run.path / TRANSLATIONS, right)
        results = {**self.results, "metrics": moved(self.results["metrics"])}
        results["buckets"] = [bucket | {"scores": moved(bucket["scores"])} for bucket in self.results["buckets"]]
        run.set_state(states.RUNNING, step=steps)
        run.finish(ResultsRecord.model_validate(results))

    def _write_translations(self, path: Path, right: Sequence[bool]) -> None:
        rows = (
            replace(row, hypothesis=row.references[0] if exact else row.hypothesis, exact=bool(exact))
            for row, exact in zip(self.translations, right, strict=True)
        )
        path.write_text(translations_text(rows), encoding="utf-8")


def _moved(name: str, value: float, factor: float, scores: Mapping[str, float], draws: np.random.Generator) -> float:
    leaf = name.rsplit("/", 1)[-1]
    if leaf in scores:
        return scores[leaf]
    if name.startswith("system/"):
        return value * math.exp(draws.normal(0, 0.03))
    if "loss" in leaf:
        return value * factor
    return math.exp(math.log(value) * factor) if leaf == "perplexity" else value


def _quality(record: RunRecord) -> float:
    """Return the share of correct translations, from random effects of axis values, seed and run."""
    effect = 0.4 + _draws("seed", record.seed).normal(0, 0.25)
    effect += sum(_draws(axis, value).normal(0, 0.5) for axis, value in record.axes.items())
    effect += _draws("variant", record.variant).normal(0, 0.2)
    return float(1 / (1 + math.exp(-effect - _draws("run", record.run_hash).normal(0, 0.15))))


def _draws(*seed: object) -> np.random.Generator:
    return np.random.default_rng(list(hashlib.sha256(json.dumps(seed).encode()).digest()[:16]))


def _model(record: RunRecord) -> tuple[str, str]:
    config = record.config
    return config["positional"]["encoder"]["name"], config["attention"]["encoder"]["name"]
