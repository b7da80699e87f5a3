"""A trace as a file of arrays, by the names of the steps."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from headtohead.tools.trace.steps import Trace


def write_archive(trace: Trace, path: Path) -> None:
    """Write every step in full, to be read by ``numpy.load(path)[name]``."""
    arrays = {step.name: step.values for step in trace}
    with path.open("wb") as handle:
        np.savez_compressed(handle, **arrays)  # type: ignore[arg-type]
