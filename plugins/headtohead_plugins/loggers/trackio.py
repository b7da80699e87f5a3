"""Logs runs to Trackio, in ``trackio/`` beside the runs folder or in the folder ``TRACKIO_DIR``.

The experiment is the project, the variant is the group. A run that begins again replaces its earlier steps. Trackio
stamps a step with the time at which it is logged.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import redirect_stdout, suppress
from contextvars import Context

from headtohead.plugin import Logger, hookimpl


class TrackioLogger(Logger):
    """Logs to Trackio: metrics by step, and the results at the last step."""

    packages = ("trackio",)

    def begin(self) -> int:
        os.environ.setdefault("TRACKIO_DIR", str(self.run.root / "trackio"))  # read at import
        import trackio

        run = self.run
        self.last_step = 0
        self.values: dict[str, float] = {}
        with suppress(ValueError):  # no such project yet
            for old in list(trackio.Api().runs(run.experiment)):
                if old.name == run.name:
                    old.delete()
        # In a context that has another run, Trackio would finish that run.
        with redirect_stdout(None):
            self.tracked = Context().run(
                trackio.init,
                project=run.experiment,
                name=run.name,
                group=run.title,
                config={**run.config, "seed": run.seed, "axes": dict(run.axes)},
                embed=False,
                auto_log_gpu=False,
                auto_log_cpu=False,
            )
        return -1

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        self.tracked.log(dict(metrics), step=step)
        self.last_step = step
        self.values.update(metrics)

    def end(self, state: str, results: Mapping[str, float]) -> None:
        changed = dict(results.items() - self.values.items())
        self.tracked.log({**changed, "state": state}, step=self.last_step)
        self.abort()

    def abort(self) -> None:
        with redirect_stdout(None):
            self.tracked.finish()


@hookimpl
def register_loggers() -> dict[str, type[Logger]]:
    return {"trackio": TrackioLogger}
