"""headtohead runs Transformer variants head to head.

The public names: what plugins import, and what Python users call. They are resolved at first use,
so that importing the package costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from headtohead.analysis.judge import judge as judge
    from headtohead.api import curves as curves
    from headtohead.api import export as export
    from headtohead.api import import_checkpoint as import_checkpoint
    from headtohead.api import load as load
    from headtohead.api import plan as plan
    from headtohead.api import results as results
    from headtohead.api import run as run
    from headtohead.api import write_report as write_report
    from headtohead.errors import HeadToHeadError as HeadToHeadError
    from headtohead.execution.local import LocalLauncher as LocalLauncher
    from headtohead.execution.remote import Message as Message
    from headtohead.execution.remote import RemoteJob as RemoteJob
    from headtohead.execution.transfer import Transfer as Transfer
    from headtohead.model.geometry import find_geometry as find_geometry
    from headtohead.plugins.attention import Attention as Attention
    from headtohead.plugins.attention import MaskPattern as MaskPattern
    from headtohead.plugins.dataset import Corpus as Corpus
    from headtohead.plugins.dataset import Dataset as Dataset
    from headtohead.plugins.dataset import Pair as Pair
    from headtohead.plugins.entry import Cost as Cost
    from headtohead.plugins.entry import Options as Options
    from headtohead.plugins.entry import Setting as Setting
    from headtohead.plugins.hookspecs import hookimpl as hookimpl
    from headtohead.plugins.launcher import Exit as Exit
    from headtohead.plugins.launcher import Job as Job
    from headtohead.plugins.launcher import Launcher as Launcher
    from headtohead.plugins.logger import LoggedRun as LoggedRun
    from headtohead.plugins.logger import Logger as Logger
    from headtohead.plugins.masking import Masking as Masking
    from headtohead.plugins.member_rng import PerMemberRNG as PerMemberRNG
    from headtohead.plugins.member_rng import sorted_subset as sorted_subset
    from headtohead.plugins.positional import BuildContext as BuildContext
    from headtohead.plugins.positional import Geometry as Geometry
    from headtohead.plugins.positional import Positional as Positional
    from headtohead.plugins.recipe import Checkpoint as Checkpoint
    from headtohead.plugins.recipe import Recipe as Recipe
    from headtohead.plugins.registry import register as register
    from headtohead.plugins.registry import registered as registered
    from headtohead.schema.run_config import ModelConfig as ModelConfig
    from headtohead.schema.run_config import RunConfig as RunConfig
    from headtohead.schema.sections import FilePath as FilePath
    from headtohead.schema.sections import NotHashed as NotHashed

_HOMES = {
    "judge": "headtohead.analysis.judge",
    "results": "headtohead.api",
    "curves": "headtohead.api",
    "export": "headtohead.api",
    "import_checkpoint": "headtohead.api",
    "load": "headtohead.api",
    "plan": "headtohead.api",
    "write_report": "headtohead.api",
    "run": "headtohead.api",
    "HeadToHeadError": "headtohead.errors",
    "FilePath": "headtohead.schema.sections",
    "ModelConfig": "headtohead.schema.run_config",
    "RunConfig": "headtohead.schema.run_config",
    "NotHashed": "headtohead.schema.sections",
    "Attention": "headtohead.plugins.attention",
    "MaskPattern": "headtohead.plugins.attention",
    "Corpus": "headtohead.plugins.dataset",
    "Dataset": "headtohead.plugins.dataset",
    "Pair": "headtohead.plugins.dataset",
    "PerMemberRNG": "headtohead.plugins.member_rng",
    "sorted_subset": "headtohead.plugins.member_rng",
    "Cost": "headtohead.plugins.entry",
    "Options": "headtohead.plugins.entry",
    "Setting": "headtohead.plugins.entry",
    "Exit": "headtohead.plugins.launcher",
    "Job": "headtohead.plugins.launcher",
    "Launcher": "headtohead.plugins.launcher",
    "LoggedRun": "headtohead.plugins.logger",
    "Logger": "headtohead.plugins.logger",
    "Masking": "headtohead.plugins.masking",
    "BuildContext": "headtohead.plugins.positional",
    "Geometry": "headtohead.plugins.positional",
    "Positional": "headtohead.plugins.positional",
    "Checkpoint": "headtohead.plugins.recipe",
    "Recipe": "headtohead.plugins.recipe",
    "hookimpl": "headtohead.plugins.hookspecs",
    "find_geometry": "headtohead.model.geometry",
    "register": "headtohead.plugins.registry",
    "registered": "headtohead.plugins.registry",
    "LocalLauncher": "headtohead.execution.local",
    "Message": "headtohead.execution.remote",
    "RemoteJob": "headtohead.execution.remote",
    "Transfer": "headtohead.execution.transfer",
}

__all__ = [
    "Attention",
    "BuildContext",
    "Checkpoint",
    "Corpus",
    "Cost",
    "Dataset",
    "Exit",
    "FilePath",
    "Geometry",
    "HeadToHeadError",
    "Job",
    "Launcher",
    "LocalLauncher",
    "LoggedRun",
    "Logger",
    "MaskPattern",
    "Masking",
    "Message",
    "ModelConfig",
    "NotHashed",
    "Options",
    "Pair",
    "PerMemberRNG",
    "Positional",
    "Recipe",
    "RemoteJob",
    "RunConfig",
    "Setting",
    "Transfer",
    "curves",
    "export",
    "find_geometry",
    "hookimpl",
    "import_checkpoint",
    "judge",
    "load",
    "plan",
    "register",
    "registered",
    "results",
    "run",
    "sorted_subset",
    "write_report",
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
