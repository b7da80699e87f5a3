"""Results as a table, for Python and Jupyter."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pandas as pd

from headtohead.analysis.frames import load_frames
from headtohead.project import runs_folder

if TYPE_CHECKING:
    from headtohead.analysis.frames import Frames


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

    def _repr_html_(self) -> str:
        from headtohead.display.results import rows_html, summary_html

        return summary_html(self.frames) + rows_html(self)


def results(experiment: Path | str, runs: Path | str | None = None) -> RunsTable:
    """Return one row per run of an experiment: axes, seed, state, costs and final metrics.

    Args:
        experiment: Its file, its name or its folder.
        runs: The runs folder; default: H2H_RUNS, else ``runs`` in the project root.

    Raises:
        HeadToHeadError: If nothing of the experiment has been run there.
    """
    from headtohead.experiment.progress import find_experiment

    folder = find_experiment(Path(experiment), runs_folder(experiment, runs))
    return RunsTable.of(load_frames(folder))
