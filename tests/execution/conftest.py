"""Tiny real studies, run by the real command in folders of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from safetensors.torch import load_file
from torch import Tensor

from headtohead import files

Completed = subprocess.CompletedProcess[str]
Command = Callable[..., Completed]

TINY: dict[str, Any] = {
    "question": "Does it survive?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 200},
        "model": {"d_model": 8, "heads": 2, "layers": 1, "d_ff": 16, "dropout": 0.1},
        "train": {"steps": 60, "batch_tokens": 128, "lr": 0.005, "evaluate_every": 20},
    },
    "baseline": {"positional": "sinusoidal"},
    "seeds": 2,
}


@pytest.fixture(autouse=True)
def reports_without_figures(without_figures: None) -> None:
    """Leave figures out of the reports of commands in this process.

    Commands that are processes of their own, and those of fixtures of a module, draw them.
    """


@dataclass(frozen=True)
class Study:
    """One experiment file, and the folders its command writes."""

    folder: Path
    cache: Path
    here: Command

    @property
    def file(self) -> Path:
        return self.folder / "tiny.yaml"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def experiment(self) -> Path:
        return self.runs / "tiny"

    def write(self, **changes: Any) -> None:
        base = {name: dict(part) for name, part in TINY["base"].items()}
        for name, part in changes.pop("base", {}).items():
            base[name] = base.get(name, {}) | part
        content = {**TINY, **changes, "base": base}
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("H2H_", "MLFLOW_"))}
        return kept | {"H2H_CACHE": str(self.cache)}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "headtohead.cli", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            self.command("run", str(self.file), *in_one_process(arguments)),
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    def run(self, *arguments: str, code: int = 0, tracking: bool = False, file: Path | None = None) -> Completed:
        """Run the command to its end; stacks are trained by processes of their own."""
        quiet = () if tracking else ("--no-tracking",)
        words = ("run", str(file or self.file), *quiet, *in_one_process(arguments))
        done = self.here(self.folder, *words, H2H_CACHE=str(self.cache))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def directories(self) -> list[Path]:
        return sorted(path.parent for path in self.experiment.glob("*/run.json"))

    def states(self) -> dict[str, str]:
        return {
            path.parent.name: files.read_json(path)["state"] for path in sorted(self.experiment.glob("*/status.json"))
        }

    def weights(self) -> dict[str, dict[str, Tensor]]:
        return {
            path.name: load_file(path / "checkpoint.safetensors")
            for path in self.directories()
            if (path / "checkpoint.safetensors").exists()
        }

    def scores(self) -> dict[str, dict[str, float]]:
        found = {}
        for path in self.directories():
            if (path / "results.json").exists():
                metrics = files.read_json(path / "results.json")["metrics"]
                found[path.name] = {k: v for k, v in metrics.items() if not k.startswith("system/")}
        return found


def in_one_process(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Have both seeds in one stack, as where there are many; two processes would have one each.

    The stack gets one thread: for tiny tensors, a second thread only costs time.
    """
    arguments = arguments if "--workers" in arguments else (*arguments, "--workers", "1")
    return arguments if "--threads" in arguments else (*arguments, "--threads", "1")


@pytest.fixture
def study(tmp_path: Path, cache: Path, h2h_here: Command) -> Study:
    made = Study(tmp_path, cache, h2h_here)
    made.write()
    return made


@pytest.fixture(scope="session")
def undisturbed(tmp_path_factory: pytest.TempPathFactory, cache: Path, h2h_here: Command) -> Study:
    """The study that nothing happens to."""
    made = Study(tmp_path_factory.mktemp("undisturbed"), cache, h2h_here)
    made.write()
    made.run()
    assert set(made.states().values()) == {"DONE"}
    return made


@pytest.fixture
def finished(study: Study, undisturbed: Study) -> Study:
    """A study whose runs are copies of those of the undisturbed study."""
    shutil.copytree(undisturbed.runs, study.runs, ignore=shutil.ignore_patterns(".reproduced", ".try"))
    return study


@pytest.fixture(scope="session")
def same_results() -> Callable[[Study, Study], None]:
    def check(study: Study, reference: Study) -> None:
        assert study.scores() == reference.scores()
        ours, theirs = study.weights(), reference.weights()
        assert ours.keys() == theirs.keys()
        for name, weights in theirs.items():
            for part, value in weights.items():
                assert bool((ours[name][part] == value).all()), (name, part)

    return check
