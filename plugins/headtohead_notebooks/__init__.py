"""The five teaching notebooks: recipes, data, import of checkpoints, trace, and a page that compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headtohead.lazy_names import import_name

if TYPE_CHECKING:
    from headtohead_notebooks.checkpoints.imported_run import import_checkpoint as import_checkpoint

_MODULES = {
    "import_checkpoint": "headtohead_notebooks.checkpoints.imported_run",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    return import_name(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
