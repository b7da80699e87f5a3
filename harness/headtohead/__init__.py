"""headtohead runs Transformer variants head to head.

The public names: what plugins import, and what Python users call. They are resolved at first use,
so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead.api import load, plan, report, run
    from headtohead.analysis.results import results
    from headtohead.errors import HeadToHeadError
    from headtohead.experiment.schema import ModelConfig, RunConfig
    from headtohead.families.attention import Attention
    from headtohead.families.dataset import Corpus, Dataset, Pair
    from headtohead.families.entry import Options, Setting
    from headtohead.families.launcher import Exit, Job, Launcher
    from headtohead.families.masking import Masking
    from headtohead.families.positional import Geometry, Positional
    from headtohead.families.recipe import Recipe
    from headtohead.hookspecs import hookimpl
    from headtohead.model.geometry import find_geometry
    from headtohead.plugins import register
    from headtohead.runs.local import LocalLauncher

_HOMES = {
    "load": "headtohead.api",
    "plan": "headtohead.api",
    "report": "headtohead.api",
    "run": "headtohead.api",
    "results": "headtohead.analysis.results",
    "HeadToHeadError": "headtohead.errors",
    "ModelConfig": "headtohead.experiment.schema",
    "RunConfig": "headtohead.experiment.schema",
    "Attention": "headtohead.families.attention",
    "Corpus": "headtohead.families.dataset",
    "Dataset": "headtohead.families.dataset",
    "Pair": "headtohead.families.dataset",
    "Options": "headtohead.families.entry",
    "Setting": "headtohead.families.entry",
    "Exit": "headtohead.families.launcher",
    "Job": "headtohead.families.launcher",
    "Launcher": "headtohead.families.launcher",
    "Masking": "headtohead.families.masking",
    "Geometry": "headtohead.families.positional",
    "Positional": "headtohead.families.positional",
    "Recipe": "headtohead.families.recipe",
    "hookimpl": "headtohead.hookspecs",
    "find_geometry": "headtohead.model.geometry",
    "register": "headtohead.plugins",
    "LocalLauncher": "headtohead.runs.local",
}

__all__ = [*sorted(_HOMES)]  # noqa: PLE0604 - the table above is the list


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headtohead' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
