"""Results as a table, for Python and Jupyter."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import pandas as pd

if TYPE_CHECKING:
    from headtohead.storage.frames import Frames


class RunsTable(pd.DataFrame):
    """One row per run; in Jupyter the answer and a line per variant stand above the rows.

    What is cut from it, or computed with it, is an ordinary frame.
    """

    frames: Frames
    _metadata: ClassVar[list[str]] = ["frames"]

    @classmethod
    def of(cls, frames: Frames) -> RunsTable:
        """Return the rows of an experiment."""
        table = cls(frames.runs)
        table.frames = frames
        return table

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame
