"""Writes TensorBoard event files to ``tensorboard/<experiment>/<run>`` beside the runs folder.

``tensorboard --logdir tensorboard`` displays them. A run that begins again replaces its event files.
"""

from __future__ import annotations

from collections.abc import Mapping

from headtohead.plugin import Logger, hookimpl


class TensorBoardLogger(Logger):
    """Writes TensorBoard event files: a scalar per metric, and the results at the last step."""

    packages = ("tensorboard",)

    def begin(self) -> int:
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        folder = self.run.root / "tensorboard" / self.run.experiment / self.run.name
        for old in folder.glob("events.out.tfevents.*"):
            old.unlink()
        self.writer = EventFileWriter(str(folder))
        self.last = (0, 0.0)
        return -1

    def log(self, step: int, seconds: float, metrics: Mapping[str, float]) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary

        values = [Summary.Value(tag=name, simple_value=value) for name, value in metrics.items()]
        self.writer.add_event(Event(step=step, wall_time=seconds, summary=Summary(value=values)))
        self.last = (step, seconds)

    def flush(self) -> None:
        self.writer.flush()

    def end(self, state: str, results: Mapping[str, float]) -> None:
        self.log(*self.last, results)
        self.writer.close()


@hookimpl
def register_loggers() -> dict[str, type[Logger]]:
    return {"tensorboard": TensorBoardLogger}
