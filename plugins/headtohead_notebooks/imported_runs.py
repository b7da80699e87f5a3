"""Runs with imported weights are loaded as `ImportedRun`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headtohead.plugin import hookimpl

if TYPE_CHECKING:
    from headtohead.storage.run import RunRecord
    from headtohead_notebooks.checkpoints.loaded import ImportedRun


@hookimpl
def on_load(record: RunRecord) -> type[ImportedRun] | None:
    """Return the class of an imported run."""
    if record.imported is None:
        return None
    from headtohead_notebooks.checkpoints.loaded import ImportedRun

    return ImportedRun
