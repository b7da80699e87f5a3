"""The public names for authors of components, datasets, recipes, launchers and loggers.

The names are resolved at first use, so that a dataset or a logger does not import torch.
"""

from typing import TYPE_CHECKING

from headtohead.lazy_names import import_name
from headtohead.plugins.families import FAMILIES

if TYPE_CHECKING:
    from headtohead.children import run_program as run_program
    from headtohead.config.project import cache_root as cache_root
    from headtohead.errors import HeadToHeadError as HeadToHeadError
    from headtohead.execution.cluster import ClusterLauncher as ClusterLauncher
    from headtohead.execution.local import InlineLauncher as InlineLauncher
    from headtohead.execution.local import LocalLauncher as LocalLauncher
    from headtohead.model.geometry import find_geometry as find_geometry
    from headtohead.plugins.attention import HeadOptions as HeadOptions
    from headtohead.plugins.attention import MaskPattern as MaskPattern
    from headtohead.plugins.component import BuildContext as BuildContext
    from headtohead.plugins.component import Fixed as Fixed
    from headtohead.plugins.component import Geometry as Geometry
    from headtohead.plugins.dataset import Corpus as Corpus
    from headtohead.plugins.dataset import Pair as Pair
    from headtohead.plugins.dataset import TextUnit as TextUnit
    from headtohead.plugins.entry import Options as Options
    from headtohead.plugins.entry import Setting as Setting
    from headtohead.plugins.families import *  # noqa: F403 (the base classes)
    from headtohead.plugins.hookspecs import hookimpl as hookimpl
    from headtohead.plugins.launcher import Exit as Exit
    from headtohead.plugins.launcher import Job as Job
    from headtohead.plugins.logger import Answer as Answer
    from headtohead.plugins.logger import AnsweredContrast as AnsweredContrast
    from headtohead.plugins.logger import DeniedError as DeniedError
    from headtohead.plugins.logger import LoggedRun as LoggedRun
    from headtohead.plugins.logger import LoggedStudy as LoggedStudy
    from headtohead.plugins.logger import StudyLogger as StudyLogger
    from headtohead.plugins.member_rng import PerMemberRNG as PerMemberRNG
    from headtohead.plugins.member_rng import sorted_subset as sorted_subset
    from headtohead.plugins.schedule import Moment as Moment
    from headtohead.plugins.sums_between import sums_between as sums_between
    from headtohead.schema.run_config import ModelConfig as ModelConfig
    from headtohead.schema.run_config import RunConfig as RunConfig
    from headtohead.schema.sections import FilePath as FilePath
    from headtohead.schema.sections import NotHashed as NotHashed

_MODULES = {family.base_name: family.base_module for family in FAMILIES.values()} | {
    "run_program": "headtohead.children",
    "cache_root": "headtohead.config.project",
    "HeadToHeadError": "headtohead.errors",
    "ClusterLauncher": "headtohead.execution.cluster",
    "InlineLauncher": "headtohead.execution.local",
    "LocalLauncher": "headtohead.execution.local",
    "find_geometry": "headtohead.model.geometry",
    "HeadOptions": "headtohead.plugins.attention",
    "MaskPattern": "headtohead.plugins.attention",
    "BuildContext": "headtohead.plugins.component",
    "Fixed": "headtohead.plugins.component",
    "Geometry": "headtohead.plugins.component",
    "Corpus": "headtohead.plugins.dataset",
    "Pair": "headtohead.plugins.dataset",
    "TextUnit": "headtohead.plugins.dataset",
    "Options": "headtohead.plugins.entry",
    "Setting": "headtohead.plugins.entry",
    "hookimpl": "headtohead.plugins.hookspecs",
    "Exit": "headtohead.plugins.launcher",
    "Job": "headtohead.plugins.launcher",
    "Answer": "headtohead.plugins.logger",
    "AnsweredContrast": "headtohead.plugins.logger",
    "DeniedError": "headtohead.plugins.logger",
    "LoggedRun": "headtohead.plugins.logger",
    "LoggedStudy": "headtohead.plugins.logger",
    "StudyLogger": "headtohead.plugins.logger",
    "PerMemberRNG": "headtohead.plugins.member_rng",
    "sorted_subset": "headtohead.plugins.member_rng",
    "Moment": "headtohead.plugins.schedule",
    "sums_between": "headtohead.plugins.sums_between",
    "ModelConfig": "headtohead.schema.run_config",
    "RunConfig": "headtohead.schema.run_config",
    "FilePath": "headtohead.schema.sections",
    "NotHashed": "headtohead.schema.sections",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> object:
    return import_name(__name__, name, _MODULES)


def __dir__() -> list[str]:
    return sorted(__all__)
