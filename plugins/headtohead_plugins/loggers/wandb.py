"""Logs runs to Weights & Biases, with ``WANDB_MODE=offline`` to ``wandb/`` beside the runs folder.

``WANDB_PROJECT`` sets the project (default headtohead), the experiment is the group. An offline run that begins again
is replaced; an online run continues after its last step. A retrained run is a new run online.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from collections.abc import Mapping

from headtohead.plugin import Logger, hookimpl


class WandbLogger(Logger):
    """Logs to Weights & Biases, online or offline: metrics by step, and the results as the summary."""

    packages = ("wandb",)

    def begin(self) -> int:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb

        run = self.run
        is_offline = os.environ.get("WANDB_MODE") == "offline"
        settings = wandb.Settings(
            silent=True, console="off", x_disable_stats=True, disable_git=True
        )
        # Unique in the project, and constant for this training of the run.
        identity = f"{run.experiment} {run.run_hash}"
        run_id = hashlib.sha256(identity.encode()).hexdigest()[:16]
        for old in (run.root / "wandb").glob(f"offline-run-*-{run_id}*"):
            shutil.rmtree(old)
            time.sleep(1)  # the new folder is named after the second
        self.tracked = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "headtohead"),
            group=run.experiment,
            name=f"{run.title}, seed {run.seed}",
            id=f"{run_id}-{run.training}",
            config={**run.config, "seed": run.seed, "axes": dict(run.axes)},
            dir=run.root,
            resume=None if is_offline else "allow",
            reinit="create_new",
            settings=settings,
        )
        return int(self.tracked.step) - 1

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        self.tracked.log({**metrics, "_timestamp": seconds}, step=step)

    def end(self, state: str, results: Mapping[str, float]) -> None:
        self.tracked.summary.update({**results, "state": state})
        exit_code = 0 if state == "DONE" else 1
        self.tracked.finish(exit_code=exit_code)

    def abort(self) -> None:
        self.tracked.finish(exit_code=1)


@hookimpl
def register_loggers() -> dict[str, type[Logger]]:
    return {"wandb": WandbLogger}
