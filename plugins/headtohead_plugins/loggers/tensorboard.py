"""Writes TensorBoard event files to ``tensorboard/<experiment>/<run>`` beside the runs folder.

``tensorboard --logdir tensorboard`` displays them. A run that begins again replaces its event files.
"""

from __future__ import annotations

from collections.abc import Mapping

from headtohead.plugin import LoggedRun, Logger, hookimpl

EVENTS = "events.out.tfevents.*"


class TensorBoardLogger(Logger):
    """Writes TensorBoard event files: a scalar per metric, and at the last step the results that differ from it."""

    packages = ("tensorboard",)

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self.folder = run.root / "tensorboard" / run.experiment / run.name
        self.last_step = 0
        self.last_seconds = 0.0
        self.values: dict[str, float] = {}
        """The last value of each metric."""

    def exists(self) -> bool:
        return any(self.folder.glob(EVENTS))

    def begin(self) -> int:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        for old in self.folder.glob(EVENTS):
            old.unlink()
        self.writer = EventFileWriter(str(self.folder))
        return -1

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        event = Event(step=step, wall_time=seconds, summary=Summary(value=values))
        self.writer.add_event(event)
        self.last_step = step
        self.last_seconds = seconds
        self.values.update(metrics)

    def flush(self) -> None:
        self.writer.flush()

    def end(self, state: str, results: Mapping[str, float]) -> None:
        changed = dict(results.items() - self.values.items())
        self.log(self.last_step, self.last_seconds, changed)
        self.writer.close()


@hookimpl
def register_loggers() -> dict[str, type[Logger]]:
    return {"tensorboard": TensorBoardLogger}
