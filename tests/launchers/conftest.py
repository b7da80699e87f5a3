"""A tiny study, run by the real command, and what it comes to without a cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml
from safetensors.torch import load_file

from headtohead import files
from headtohead.storage.histories import read_metrics
from headtohead.storage.stack import stack_folders

STUDY: dict[str, Any] = {
    "question": "Is it the same elsewhere?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.1},
        "train": {
            # Long enough after the first evaluation that a test can kill what still trains.
            "steps": 1000,
            "batch_tokens": 128,
            "lr": 0.005,
            "evaluate_every": 60,
            "checkpoint_seconds": 0.1,
        },
    },
    "baseline": {"positional": "sinusoidal"},
    # Four shapes, two seeds each: four stacks for two processes and for four.
    "design": [{"one_at_a_time": {"model.d_ff": [20, 24, 28]}}],
    "seeds": 2,
}


MARK = "STARTED_FOR_STUDY"
"""Variable of the environment of all that a study starts, whoever its parent has become."""


@dataclass(frozen=True)
class Study:
    """One experiment file, and the folders its command writes."""

    folder: Path
    cache: Path

    @property
    def file(self) -> Path:
        return self.folder / "tiny.yaml"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def experiment(self) -> Path:
        return self.runs / "tiny"

    def write(self, **base: Any) -> None:
        content = {**STUDY, "base": {name: part | base.get(name, {}) for name, part in STUDY["base"].items()}}
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    def write_one_stack(self, **base: Any) -> None:
        """Write a study of the baseline alone: a process of a cluster takes seconds to import torch."""
        content = {name: part for name, part in STUDY.items() if name != "design"}
        content["base"] = {name: part | base.get(name, {}) for name, part in STUDY["base"].items()}
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start the command; whatever happens, it is gone at the end."""
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("H2H_", "MLFLOW_"))}
        command = [
            sys.executable,
            "-m",
            "headtohead.cli",
            "run",
            str(self.file),
            "--no-tracking",
            "--threads",
            "1",
            *arguments,
        ]
        parent = subprocess.Popen(
            command,
            cwd=self.folder,
            text=True,
            env=kept | {"H2H_CACHE": str(self.cache), MARK: str(self.folder)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield parent
        finally:
            if parent.poll() is None:
                parent.send_signal(signal.SIGINT)
                try:
                    parent.wait(timeout=20)
                except subprocess.TimeoutExpired:
                    parent.kill()
            parent.wait()
            assert parent.stdout is not None
            parent.stdout.close()

    def end(self) -> None:
        """Kill what a test that failed has left running: jobs outlive the command."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder):
                    process.kill()

    def run(self, *arguments: str) -> str:
        with self.started(*arguments) as parent:
            output, _ = parent.communicate(timeout=240)
        assert parent.returncode == 0, output
        return output

    def holders(self) -> dict[str, int]:
        """Return by stack the process that holds the leases of its runs."""
        found = {}
        for folder in stack_folders(self.experiment):
            run = folder.runs()[-1].path  # the last one that is leased
            lease = read_if_there(self.experiment / ".leases" / f"{run.name}.json")
            if lease:
                found[folder.path.name] = int(lease["pid"])
        return found

    def begun(self) -> set[str]:
        """Return the stacks that were evaluated and have a resume point from after that."""
        found = set()
        for folder in stack_folders(self.experiment):
            metrics = folder.runs()[-1].path / "metrics.jsonl"
            with suppress(FileNotFoundError, IndexError):
                if folder.resume_points.newest_first()[0].path.stat().st_mtime_ns > metrics.stat().st_mtime_ns:
                    found.add(folder.path.name)
        return found

    def began_anew(self) -> list[str]:
        """Return the runs that were trained again from their start: evaluated twice as early."""
        found = []
        for path in self.experiment.glob("*/metrics.jsonl"):
            steps = [
                line.step
                for line in read_metrics(path)
                if line is not None and not any(name.startswith("test/") for name in line.values)
            ]
            if steps.count(min(steps)) > 1:
                found.append(path.parent.name)
        return found

    def states(self) -> set[str]:
        paths = self.experiment.glob("*/status.json")
        return {files.read_json(path)["state"] for path in paths}

    def attempts(self) -> list[dict[str, Any]]:
        return [files.read_json(path) for path in sorted(self.experiment.glob("*/attempts/*.json"))]

    def content(self) -> dict[str, Any]:
        """Return the scores and the weights of every run."""
        found = {}
        for path in sorted(self.experiment.glob("*/results.json")):
            scores = files.read_json(path)["metrics"]
            kept = {k: v for k, v in scores.items() if not k.startswith("system/")}
            weights = load_file(path.parent / "checkpoint.safetensors")
            found[path.parent.name] = (kept, {k: v.tolist() for k, v in weights.items()})
        return found


def read_if_there(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = files.read_json(path)
    except (FileNotFoundError, ValueError):
        return {}
    return content


@pytest.fixture(scope="session")
def wait_for() -> Callable[..., None]:
    def wait(
        condition: Callable[[], bool], seconds: float = 150.0, parent: subprocess.Popen[str] | None = None
    ) -> None:
        end = time.monotonic() + seconds
        while not condition():
            if parent is not None and parent.poll() is not None:
                raise AssertionError(f"the command ended: {parent.communicate()[0]}")
            assert time.monotonic() < end, "it never happened"
            time.sleep(0.02)

    return wait


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def study(tmp_path: Path, cache: Path) -> Iterator[Study]:
    made = Study(tmp_path, cache)
    made.write()
    yield made
    made.end()


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Study]:
    """The study by the local launcher, undisturbed."""
    made = Study(tmp_path_factory.mktemp("here"), cache)
    made.write()
    made.run()
    assert made.states() == {"DONE"}
    yield made
    made.end()
