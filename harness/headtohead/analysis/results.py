"""The results and training curves of an experiment as pandas tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pandas as pd

if TYPE_CHECKING:
    from headtohead.storage.frames import Frames


class RunsTable(pd.DataFrame):
    """A table with a row per run; Jupyter shows the answer and a line per variant above the rows.

    Selections and computations return an ordinary ``DataFrame``.
    """

    frames: Frames
    _metadata: ClassVar[list[str]] = ["frames"]

    @classmethod
    def from_frames(cls, frames: Frames) -> RunsTable:
        """Return the runs of an experiment."""
        table = cls(frames.runs)
        table.frames = frames
        return table

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame


def training_curves(frames: Frames) -> pd.DataFrame:
    """Return the histories of an experiment with the variant, the axes and the seed of each run."""
    described = frames.runs[["variant", *frames.record.axes, "seed"]]
    order = ["run", *described.columns, "step", "epoch", "metric", "value"]
    table = frames.histories.astype({"run": object, "metric": object}).join(described, on="run")
    return table[order]
