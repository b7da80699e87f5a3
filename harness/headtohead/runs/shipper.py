"""The shipper as a child process: MLflow learns of runs while others train, and slows none of them.

Only the process that is started here imports the tracking library.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

PATIENCE_SECONDS = 180.0
"""How long a finished study waits for its shipper before it leaves it alone."""

DONE = ".shipping-done"


@dataclass
class Shipper:
    """A running shipper of one experiment's folder."""

    experiment: Path
    uri: str
    process: subprocess.Popen[bytes]

    def finish(self) -> str:
        """Say that nothing more will come, wait for the rest to be shipped, and say how it went."""
        try:
            (self.experiment / DONE).touch()
            code = self.process.wait(timeout=PATIENCE_SECONDS)
        except (subprocess.TimeoutExpired, OSError):
            return (
                f"mlflow: still shipping to {self.uri}; "
                f"h2h sync {self.experiment.name} completes it"
            )
        if code == 0:
            return f"mlflow: {self.uri} (h2h ui opens it, on a page that shows this study's charts)"
        last = _last_line(self.experiment / "shipper.log")
        return (
            f"mlflow: not everything was shipped ({last}); nothing is lost, "
            f"type h2h sync {self.experiment.name}"
        )


def start_shipper(experiment: Path, runs_root: Path) -> Shipper | None:
    """Start the shipper, or return None where MLflow is not installed."""
    if importlib.util.find_spec("mlflow") is None:
        return None
    uri = os.environ.get("MLFLOW_TRACKING_URI") or default_store(runs_root)
    try:
        experiment.mkdir(parents=True, exist_ok=True)
        (experiment / DONE).unlink(missing_ok=True)
        log = (experiment / "shipper.log").open("ab")
    except OSError:
        # The same folder is about to be written by the study itself, which says what is wrong.
        return None
    command = [
        sys.executable, "-m", "headtohead.tracking.shipper", str(experiment),
        "--uri", uri, "--parent", str(os.getpid()),
    ]  # fmt: skip
    with log:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
        )
    return Shipper(experiment, uri, process)


def default_store(runs_root: Path) -> str:
    """Return the SQLite store beside the runs folder."""
    return f"sqlite:///{runs_root.resolve().parent / 'mlflow.db'}"


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").strip().splitlines() if path.exists() else []
    return lines[-1].strip() if lines else "no message"
