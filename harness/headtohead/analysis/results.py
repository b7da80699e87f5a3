"""The results of an experiment as a pandas table."""

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

    @property
    def _constructor(self) -> type[pd.DataFrame]:
        return pd.DataFrame

    def _repr_html_(self) -> str:
        from headtohead.report.notebook import runs_html  # loads matplotlib

        return runs_html(self)
