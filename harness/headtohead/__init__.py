"""headtohead runs Transformer variants head to head.

The public names: what plugins import, and what Python users call. They are resolved at first use,
so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead.analysis.results import results as results
    from headtohead.api import import_checkpoint as import_checkpoint
    from headtohead.api import load as load
    from headtohead.api import plan as plan
    from headtohead.api import report as report
    from headtohead.api import run as run
    from headtohead.errors import HeadToHeadError as HeadToHeadError
    from headtohead.experiment.schema import FilePath as FilePath
    from headtohead.experiment.schema import ModelConfig as ModelConfig
    from headtohead.experiment.schema import RunConfig as RunConfig
    from headtohead.experiment.schema import Runtime as Runtime
    from headtohead.families.attention import Attention as Attention
    from headtohead.families.attention import Shows as Shows
    from headtohead.families.dataset import Corpus as Corpus
    from headtohead.families.dataset import Dataset as Dataset
    from headtohead.families.dataset import Pair as Pair
    from headtohead.families.draws import Draws as Draws
    from headtohead.families.draws import sorted_subset as sorted_subset
    from headtohead.families.entry import Options as Options
    from headtohead.families.entry import Setting as Setting
    from headtohead.families.launcher import Exit as Exit
    from headtohead.families.launcher import Job as Job
    from headtohead.families.launcher import Launcher as Launcher
    from headtohead.families.masking import Masking as Masking
    from headtohead.families.positional import BuildContext as BuildContext
    from headtohead.families.positional import Geometry as Geometry
    from headtohead.families.positional import Positional as Positional
    from headtohead.families.recipe import Checkpoint as Checkpoint
    from headtohead.families.recipe import Recipe as Recipe
    from headtohead.families.recipe import Tensors as Tensors
    from headtohead.hookspecs import hookimpl as hookimpl
    from headtohead.model.geometry import find_geometry as find_geometry
    from headtohead.plugins import register as register
    from headtohead.plugins import registered as registered
    from headtohead.runs.local import LocalLauncher as LocalLauncher
    from headtohead.runs.remote import Message as Message
    from headtohead.runs.remote import RemoteJob as RemoteJob
    from headtohead.runs.sending import Sending as Sending

_HOMES = {
    "results": "headtohead.analysis.results",
    "import_checkpoint": "headtohead.api",
    "load": "headtohead.api",
    "plan": "headtohead.api",
    "report": "headtohead.api",
    "run": "headtohead.api",
    "HeadToHeadError": "headtohead.errors",
    "FilePath": "headtohead.experiment.schema",
    "ModelConfig": "headtohead.experiment.schema",
    "RunConfig": "headtohead.experiment.schema",
    "Runtime": "headtohead.experiment.schema",
    "Attention": "headtohead.families.attention",
    "Shows": "headtohead.families.attention",
    "Corpus": "headtohead.families.dataset",
    "Dataset": "headtohead.families.dataset",
    "Pair": "headtohead.families.dataset",
    "Draws": "headtohead.families.draws",
    "sorted_subset": "headtohead.families.draws",
    "Options": "headtohead.families.entry",
    "Setting": "headtohead.families.entry",
    "Exit": "headtohead.families.launcher",
    "Job": "headtohead.families.launcher",
    "Launcher": "headtohead.families.launcher",
    "Masking": "headtohead.families.masking",
    "BuildContext": "headtohead.families.positional",
    "Geometry": "headtohead.families.positional",
    "Positional": "headtohead.families.positional",
    "Checkpoint": "headtohead.families.recipe",
    "Recipe": "headtohead.families.recipe",
    "Tensors": "headtohead.families.recipe",
    "hookimpl": "headtohead.hookspecs",
    "find_geometry": "headtohead.model.geometry",
    "register": "headtohead.plugins",
    "registered": "headtohead.plugins",
    "LocalLauncher": "headtohead.runs.local",
    "Message": "headtohead.runs.remote",
    "RemoteJob": "headtohead.runs.remote",
    "Sending": "headtohead.runs.sending",
}

__all__ = [
    "Attention",
    "BuildContext",
    "Checkpoint",
    "Corpus",
    "Dataset",
    "Draws",
    "Exit",
    "FilePath",
    "Geometry",
    "HeadToHeadError",
    "Job",
    "Launcher",
    "LocalLauncher",
    "Masking",
    "Message",
    "ModelConfig",
    "Options",
    "Pair",
    "Positional",
    "Recipe",
    "RemoteJob",
    "RunConfig",
    "Runtime",
    "Sending",
    "Setting",
    "Shows",
    "Tensors",
    "find_geometry",
    "hookimpl",
    "import_checkpoint",
    "load",
    "plan",
    "register",
    "registered",
    "report",
    "results",
    "run",
    "sorted_subset",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'headtohead' has no attribute '{name}'")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names alone: what completion should offer."""
    return sorted(__all__)
