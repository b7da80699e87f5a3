"""The public names for authors of components, datasets, recipes, launchers and loggers.

The names are resolved at first use, so that a dataset or a logger does not import torch.
"""

from typing import TYPE_CHECKING

from headtohead.lazy_names import lazy_names

if TYPE_CHECKING:
    from headtohead.children import run_program as run_program
    from headtohead.config.project import cache_root as cache_root
    from headtohead.errors import HeadToHeadError as HeadToHeadError
    from headtohead.execution.cluster import ClusterLauncher as ClusterLauncher
    from headtohead.execution.local import InlineLauncher as InlineLauncher
    from headtohead.execution.local import LocalLauncher as LocalLauncher
    from headtohead.model.geometry import find_geometry as find_geometry
    from headtohead.plugins.attention import Attention as Attention
    from headtohead.plugins.attention import HeadOptions as HeadOptions
    from headtohead.plugins.attention import MaskPattern as MaskPattern
    from headtohead.plugins.component import BuildContext as BuildContext
    from headtohead.plugins.component import Fixed as Fixed
    from headtohead.plugins.component import Geometry as Geometry
    from headtohead.plugins.dataset import Corpus as Corpus
    from headtohead.plugins.dataset import Dataset as Dataset
    from headtohead.plugins.dataset import Pair as Pair
    from headtohead.plugins.dataset import TextUnit as TextUnit
    from headtohead.plugins.entry import Options as Options
    from headtohead.plugins.entry import Setting as Setting
    from headtohead.plugins.feed_forward import FeedForward as FeedForward
    from headtohead.plugins.hookspecs import hookimpl as hookimpl
    from headtohead.plugins.launcher import Exit as Exit
    from headtohead.plugins.launcher import Job as Job
    from headtohead.plugins.launcher import Launcher as Launcher
    from headtohead.plugins.logger import LoggedRun as LoggedRun
    from headtohead.plugins.logger import Logger as Logger
    from headtohead.plugins.masking import Masking as Masking
    from headtohead.plugins.member_rng import PerMemberRNG as PerMemberRNG
    from headtohead.plugins.member_rng import sorted_subset as sorted_subset
    from headtohead.plugins.norm import Norm as Norm
    from headtohead.plugins.positional import Positional as Positional
    from headtohead.plugins.recipe import Recipe as Recipe
    from headtohead.plugins.sums_between import sums_between as sums_between
    from headtohead.schema.run_config import ModelConfig as ModelConfig
    from headtohead.schema.run_config import RunConfig as RunConfig
    from headtohead.schema.sections import FilePath as FilePath
    from headtohead.schema.sections import NotHashed as NotHashed

__getattr__, __dir__ = lazy_names(__name__)
