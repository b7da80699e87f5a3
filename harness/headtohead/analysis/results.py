"""Results as a table, for Python and Jupyter."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from headtohead.analysis.frames import load_frames

if TYPE_CHECKING:
    import pandas as pd


def results(experiment: Path | str, runs: Path | str | None = None) -> pd.DataFrame:
    """Return one row per run of an experiment: axes, seed, state, costs and final metrics.

    Args:
        experiment: Its file, its name or its folder.
        runs: The runs folder; default: H2H_RUNS, else ``runs``.

    Raises:
        HeadToHeadError: If nothing of the experiment has been run there.
    """
    from headtohead.experiment.progress import find_experiment

    root = Path(runs if runs is not None else os.environ.get("H2H_RUNS", "runs"))
    return load_frames(find_experiment(Path(experiment), root)).runs
