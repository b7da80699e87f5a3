"""The five teaching notebooks: recipes, data, import of checkpoints, trace, and a page that compares them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headtohead.lazy_names import lazy_names

if TYPE_CHECKING:
    from headtohead_notebooks.checkpoints.imported_run import import_checkpoint as import_checkpoint

__getattr__, __dir__ = lazy_names(__name__)
