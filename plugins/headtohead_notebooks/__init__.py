"""The five teaching notebooks: recipes, data, import of checkpoints, trace, and a page that compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead_notebooks.checkpoints.imported_run import import_checkpoint as import_checkpoint

__all__ = ["import_checkpoint"]


def __getattr__(name: str) -> Any:
    if name != "import_checkpoint":
        raise AttributeError(f"module 'headtohead_notebooks' has no attribute '{name}'")
    from headtohead_notebooks.checkpoints.imported_run import import_checkpoint

    return import_checkpoint
