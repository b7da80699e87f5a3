"""Processor time of commands: start, plan, end of a study, report, check.

    python benchmarks/commands.py [COMMAND ...] [--rounds 3] [--folder FOLDER] [--text FILE] [--other PYTHON ...]

The commands:

- finished: `h2h run` of the finished quickstart (24 runs), untracked.
- tracked: the same where MLflow has all runs.
- report: `h2h report` of twelve runs.
- first: `h2h run --no-tracking` up to its first training step; the data are prepared.
- cold, warm: `h2h plan` for a text, given by ``--text``, without and with its prepared data.
- check: `h2h check positional/mine --plugin` of a file that `h2h new-plugin` has written.
- tiny: `h2h run --no-tracking` of 1,024 tiny runs.

A value is user and system time of the command and of all its descendants in seconds, and the median of the rounds.
With ``--other``, the installations of headtohead of these interpreters run the same commands in alternation with the
present one. Linux only: the script adopts the processes that a command leaves behind.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from stacks import machine

QUICKSTART = Path(__file__).parent.parent / "experiments" / "quickstart.yaml"
PR_SET_CHILD_SUBREAPER = 36
POLL_SECONDS = 0.005

LISTENER = '''
"""Creates a file at the first training step, and waits: the script ends the command."""
import os, time
import headtohead as h2h

@h2h.plugin.hookimpl
def on_evaluation(run, step, metrics):
    if step == 1:
        open(os.environ["FIRST_STEP"], "w").close()
        time.sleep(60)
'''

FIRST = """
question: How long does the start take?
base:
  data: {dataset: toy-grammar, size: 600}
  model: {d_model: 32, heads: 2, layers: 1, d_ff: 64}
  train: {steps: 20, batch_tokens: 512, evaluate_every: 1}
baseline: {positional: sinusoidal}
design: [{product: {attention: [split-heads, single-head]}}]
seeds: 2
"""

TEXT = """
question: How long does a plan take?
base:
  model: {architecture: decoder-only, d_model: 128, heads: 4, layers: 4, d_ff: 512}
  data: {dataset: text, file: text.txt}
  train: {steps: 2000, batch_tokens: 768}
baseline: {positional: learned}
design: [{product: {positional: [learned, rotary]}}]
seeds: 3
metrics: {primary: test/bits_per_byte}
"""

TINY = """
question: How long do 1,024 tiny runs take?
base:
  data: {dataset: toy-grammar, size: 200}
  model: {d_model: 8, heads: 1, layers: 1, d_ff: 16}
  train: {steps: 10, batch_tokens: 256}
baseline: {positional: sinusoidal}
design: [{product: {positional: [sinusoidal, rotary], train.lr: [0.001, 0.01]}}]
seeds: 256
margin: 0.1
"""


@dataclass(frozen=True)
class Installation:
    """An interpreter with headtohead, and the folder of its runs, reports and caches."""

    python: str
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands, with a cache and an MLflow store of its own."""
        environment = dict(os.environ)
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # users have compiled modules
        environment["H2H_CACHE"] = str(self.folder / "cache")
        environment["FIRST_STEP"] = str(self.folder / "first-step")
        environment["OMP_NUM_THREADS"] = "1"
        return environment

    def start(self, *words: str, output: Path | None = None) -> subprocess.Popen[bytes]:
        """Start `h2h` with these arguments in the folder; its output goes to a file."""
        with (output or self.folder / "output").open("wb") as stream:
            return subprocess.Popen(
                [self.python, "-m", "headtohead.cli", *words],
                cwd=self.folder,
                env=self.environment,
                stdout=stream,
                stderr=subprocess.STDOUT,
            )

    def run(self, *words: str) -> float:
        """Return the processor time of `h2h` with these arguments in seconds.

        Raises:
            SystemExit: If it fails.
        """
        before = ended_seconds()
        process = self.start(*words)
        if process.wait() != 0:
            sys.exit(f"h2h {' '.join(words)}: {(self.folder / 'output').read_text()[-2000:]}")
        wait_for_all()
        return ended_seconds() - before

    def run_to_first_step(self) -> float:
        """Return the processor time of `h2h run` up to the first training step; the command is then killed."""
        mark = self.folder / "first-step"
        mark.unlink(missing_ok=True)
        shutil.rmtree(self.folder / "runs" / "first", ignore_errors=True)
        before = ended_seconds()
        process = self.start("run", "first.yaml", "--plugin", "listener.py", "--no-tracking")
        while not mark.exists():
            if process.poll() is not None:
                sys.exit(f"no first step: {(self.folder / 'output').read_text()[-2000:]}")
            time.sleep(POLL_SECONDS)
        descendants = psutil.Process().children(recursive=True)
        seconds = ended_seconds() - before
        for descendant in descendants:
            times = descendant.cpu_times()
            seconds += times.user + times.system + times.children_user + times.children_system
        for descendant in descendants:
            descendant.kill()
        process.wait()
        wait_for_all()
        return seconds


def ended_seconds() -> float:
    """Return the processor time of all ended descendants in seconds."""
    times = os.times()
    return times.children_user + times.children_system


def wait_for_all() -> None:
    """Wait for the processes that ended commands have left behind."""
    while True:
        try:
            os.wait()
        except ChildProcessError:
            return


def study(installation: Installation, name: str, *seeds: str) -> None:
    """Train the quickstart as an experiment of this name, if it is not finished."""
    file = installation.folder / f"{name}.yaml"
    if not file.exists():
        shutil.copyfile(QUICKSTART, file)
    if not (installation.folder / "reports" / name).exists():
        installation.run("run", file.name, "--no-tracking", *seeds)


def finished(installation: Installation) -> float:
    """Return the time of `h2h run` for the finished quickstart."""
    study(installation, "quickstart")
    return installation.run("run", "quickstart.yaml", "--no-tracking")


def tracked(installation: Installation) -> float:
    """Return the time of `h2h run` for the finished quickstart with tracking, where MLflow has all runs."""
    study(installation, "quickstart")
    if not (installation.folder / "mlflow.db").exists():
        installation.run("sync", "quickstart.yaml")
        installation.run("run", "quickstart.yaml")
    return installation.run("run", "quickstart.yaml")


def report(installation: Installation) -> float:
    """Return the time of `h2h report` for twelve runs."""
    study(installation, "twelve", "--seeds", "2")
    return installation.run("report", "twelve.yaml")


def first(installation: Installation) -> float:
    """Return the time of `h2h run` up to the first training step."""
    (installation.folder / "first.yaml").write_text(FIRST)
    (installation.folder / "listener.py").write_text(LISTENER)
    installation.run("plan", "first.yaml")
    return installation.run_to_first_step()


def cold(installation: Installation) -> float:
    """Return the time of `h2h plan` for a text without prepared data."""
    (installation.folder / "text.yaml").write_text(TEXT)
    shutil.rmtree(installation.folder / "cache", ignore_errors=True)
    return installation.run("plan", "text.yaml")


def warm(installation: Installation) -> float:
    """Return the time of `h2h plan` for a text with prepared data."""
    (installation.folder / "text.yaml").write_text(TEXT)
    installation.run("plan", "text.yaml")
    return installation.run("plan", "text.yaml")


def check(installation: Installation) -> float:
    """Return the time of `h2h check` for a plugin file as `h2h new-plugin` writes it."""
    package = installation.folder / "mine"
    if not package.exists():
        installation.run("new-plugin", "positional", "mine")
    (file,) = [path for path in package.glob("*.py") if not path.name.startswith("test")]
    return installation.run("check", "positional/mine", "--plugin", str(file))


def tiny(installation: Installation) -> float:
    """Return the time of `h2h run` for 1,024 tiny runs."""
    (installation.folder / "tiny.yaml").write_text(TINY)
    shutil.rmtree(installation.folder / "runs" / "tiny", ignore_errors=True)
    return installation.run("run", "tiny.yaml", "--no-tracking")


COMMANDS: dict[str, Callable[[Installation], float]] = {
    "finished": finished,
    "tracked": tracked,
    "report": report,
    "first": first,
    "cold": cold,
    "warm": warm,
    "check": check,
    "tiny": tiny,
}


def main(words: list[str] | None = None) -> None:
    """Print a line per command, with a column per installation."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("commands", nargs="*", metavar="COMMAND", default=[*COMMANDS])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="keeps the trained studies for a further call")
    parser.add_argument("--text", type=Path, help="a text file of 1 MB for cold and warm")
    parser.add_argument("--other", nargs="*", default=[], metavar="PYTHON")
    options = parser.parse_args(words)
    if options.text is None and not {"cold", "warm"}.isdisjoint(options.commands):
        parser.error("cold and warm read a text: --text FILE, or name the other commands")
    if ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1) != 0:
        sys.exit("this system cannot adopt the processes of a command")
    with tempfile.TemporaryDirectory() as temporary:
        folder = (options.folder or Path(temporary)).resolve()
        installations = []
        for python in [*options.other, sys.executable]:
            directory = folder / str(len(installations))
            directory.mkdir(parents=True, exist_ok=True)
            if options.text is not None:
                shutil.copyfile(options.text, directory / "text.txt")
            (directory / "pyproject.toml").touch()  # marks the root of a project
            installations.append(Installation(python, directory))
        print(f"# {machine(torch.device('cpu'))}, load {os.getloadavg()[0]:.1f}")
        for name in options.commands:
            print_command(name, installations, options.rounds)


def print_command(name: str, installations: list[Installation], rounds: int) -> None:
    """Measure a command once per installation and round, in alternation, and print the medians."""
    seconds: dict[str, list[float]] = {installation.python: [] for installation in installations}
    for _ in range(rounds):
        for installation in installations:
            seconds[installation.python].append(COMMANDS[name](installation))
    medians = [f"{statistics.median(values):.2f}" for values in seconds.values()]
    spans = [f"{min(values):.2f} to {max(values):.2f}" for values in seconds.values()]
    print(f"{name}: {', '.join(medians)} ({'; '.join(spans)})", flush=True)


if __name__ == "__main__":
    main()
