"""A tiny experiment that the real command trains in a folder of its own."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import yaml
from safetensors.torch import load_file

from headtohead import files
from headtohead.storage import leases
from headtohead.storage.stack import stack_folders
from made import PATIENT, plugin_file

Completed = subprocess.CompletedProcess[str]

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

MARK = "STARTED_FOR_STUDY"
"""Environment variable of all processes that a study starts."""


def own_positional(body: str, imports: str = "") -> str:
    """Return a plugin file with a positional encoding ``own``; ``body`` is executed in each worker at each call."""
    hook = f"""calls = 0

def rotate(self, x, positions, role, layer):
    if multiprocessing.parent_process() is not None:
        Own.calls += self.training
{textwrap.indent(body, "        ")}
    return x
"""
    return plugin_file(hook, before=f"import multiprocessing\n{imports}")


def on_evaluation(body: str) -> str:
    """Return a plugin file that executes ``body`` at each evaluation."""
    return (
        "import headtohead as h2h\n\n@h2h.plugin.hookimpl\ndef on_evaluation(run, step, metrics):\n    "
        + "\n    ".join(body.splitlines())
        + "\n"
    )


@dataclass(frozen=True)
class Study:
    """One experiment file, and the folders its command writes."""

    folder: Path
    cache: Path
    here: Callable[..., Completed]
    content: Mapping[str, Any] = field(default_factory=lambda: TINY)
    name: str = "tiny"

    @property
    def file(self) -> Path:
        return self.folder / f"{self.name}.yaml"

    @property
    def runs(self) -> Path:
        return self.folder / "runs"

    @property
    def experiment(self) -> Path:
        return self.runs / self.name

    def write(self, *, plugin: str | None = None, **changes: Any) -> None:
        """Write the experiment file with changed sections, and optionally a plugin file that it names."""
        base = dict(self.content["base"])
        for name, part in changes.pop("base", {}).items():
            base[name] = base.get(name, {}) | part if isinstance(part, dict) else part
        if plugin is not None:
            (self.folder / "mine.py").write_text(plugin)
            changes["plugins"] = ["mine.py"]
        self.file.write_text(
            yaml.safe_dump({**self.content, **changes, "base": base}, sort_keys=False)
        )

    @property
    def environment(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("H2H_", "MLFLOW_"))}
        return kept | PATIENT | {"H2H_CACHE": str(self.cache), MARK: str(self.folder)}

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "headtohead.cli", *arguments]

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start the command as a process."""
        return subprocess.Popen(
            self.command("run", str(self.file), *in_one_process(arguments)),
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )

    @contextmanager
    def started(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Start the command as a process, and end it after the block."""
        parent = self.start("--no-tracking", *arguments)
        try:
            yield parent
        finally:
            if parent.poll() is None:
                parent.send_signal(signal.SIGINT)
                with suppress(subprocess.TimeoutExpired):
                    parent.wait(timeout=20)
                parent.kill()
            parent.wait()
            assert parent.stdout is not None
            parent.stdout.close()

    def end(self) -> None:
        """Kill the processes that a failed test has left running."""
        for process in psutil.process_iter():
            with suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.folder) and process.pid != os.getpid():
                    process.kill()

    def h2h(self, *arguments: str, code: int = 0) -> Completed:
        """Run a command in this process."""
        done = self.here(self.folder, *arguments, H2H_CACHE=str(self.cache))
        assert done.returncode == code, done.stdout + done.stderr
        return done

    def run(
        self, *arguments: str, code: int = 0, tracking: bool = False, file: Path | None = None
    ) -> Completed:
        """Run ``h2h run`` to its end; stacks are trained by processes of their own."""
        quiet = () if tracking else ("--no-tracking",)
        return self.h2h(
            "run", str(file or self.file), *quiet, *in_one_process(arguments), code=code
        )

    def directories(self) -> list[Path]:
        return sorted(path.parent for path in self.experiment.glob("*/run.json"))

    def states(self) -> dict[str, str]:
        return {
            path.parent.name: files.read_json(path)["state"]
            for path in sorted(self.experiment.glob("*/status.json"))
        }

    def attempts(self) -> list[dict[str, Any]]:
        return [files.read_json(path) for path in sorted(self.experiment.glob("*/attempts/*.json"))]

    def results(self) -> dict[str, Any]:
        """Return scores and weights of every finished run, without values that depend on time."""
        found = {}
        for path in sorted(self.experiment.glob("*/results.json")):
            weights = load_file(path.parent / "checkpoint.safetensors")
            scores = files.read_json(path)["metrics"]
            found[path.parent.name] = (
                {name: value for name, value in scores.items() if not name.startswith("system/")},
                {name: value.tolist() for name, value in weights.items()},
            )
        return found

    def scores(self) -> dict[str, dict[str, float]]:
        return {name: scores for name, (scores, _) in self.results().items()}

    def page(self) -> str:
        """Return the report as Markdown."""
        return (self.folder / "reports" / self.name / "report.md").read_text()

    def answer(self) -> dict[str, Any]:
        content: dict[str, Any] = files.read_json(
            self.folder / "reports" / self.name / "answer.json"
        )
        return content

    def step(self) -> int:
        """Return the highest training step of the stacks."""
        steps = [
            (folder.read_progress() or {"step": 0})["step"]
            for folder in stack_folders(self.experiment)
        ]
        return max(steps, default=0)

    def holders(self) -> dict[str, int]:
        """Return the process that holds the lease of each run."""
        found = {run.name: leases.holder_of(run) for run in self.directories()}
        return {name: holder["pid"] for name, holder in found.items() if holder}


def in_one_process(arguments: tuple[str, ...]) -> tuple[str, ...]:
    """Train all seeds in one stack, with one thread: for tiny tensors, a second thread only costs time."""
    arguments = arguments if "--workers" in arguments else (*arguments, "--workers", "1")
    return arguments if "--threads" in arguments else (*arguments, "--threads", "1")


def wait_for(
    condition: Callable[[], object],
    seconds: float = 300.0,
    parent: subprocess.Popen[str] | None = None,
) -> None:
    """Wait until a condition holds; fail after a time, or if the command ends.

    A condition that is dear to compute is computed less often: it takes at most a quarter of a core.
    """
    end = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        if condition():
            return
        if parent is not None and parent.poll() is not None:
            raise AssertionError(f"the command ended: {parent.communicate()[0]}")
        assert time.monotonic() < end, "it never happened"
        time.sleep(max(0.005, 3 * (time.monotonic() - began)))
