"""All hooks that headtohead calls. A plugin implements any of them with ``@headtohead.plugin.hookimpl``.

- ``register_*`` hooks are called once per process, when plugins are loaded. Each returns a mapping
  from the name that users type to the class that implements it.
- ``on_*`` hooks are events. They are called in registration order, in the process in which the
  event happens. Return values are ignored, except that of ``on_load``. An exception in
  ``on_run_start`` or ``on_evaluation`` ends that run as FAILED; the other runs of its stack continue.

A hook may leave out arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from headtohead.plugins.attention import Attention
    from headtohead.plugins.dataset import Dataset
    from headtohead.plugins.feed_forward import FeedForward
    from headtohead.plugins.launcher import Launcher
    from headtohead.plugins.logger import Logger
    from headtohead.plugins.masking import Masking
    from headtohead.plugins.norm import Norm
    from headtohead.plugins.positional import Positional
    from headtohead.plugins.quirk import Quirk
    from headtohead.plugins.recipe import Recipe

hookspec = pluggy.HookspecMarker("headtohead")
hookimpl = pluggy.HookimplMarker("headtohead")


@hookspec
def register_positionals() -> Mapping[str, type[Positional]]:
    """Return positional encodings by name."""


@hookspec
def register_attentions() -> Mapping[str, type[Attention]]:
    """Return attention styles by name."""


@hookspec
def register_maskings() -> Mapping[str, type[Masking]]:
    """Return masking schemes by name."""


@hookspec
def register_feed_forwards() -> Mapping[str, type[FeedForward]]:
    """Return feed-forward networks by name."""


@hookspec
def register_norms() -> Mapping[str, type[Norm]]:
    """Return norms by name."""


@hookspec
def register_datasets() -> Mapping[str, type[Dataset]]:
    """Return datasets by name."""


@hookspec
def register_quirks() -> Mapping[str, type[Quirk]]:
    """Return quirks by name: classes that replace parts of a built model, or change batches before training."""


@hookspec
def register_recipes() -> Mapping[str, type[Recipe]]:
    """Return recipes by name."""


@hookspec
def register_launchers() -> Mapping[str, type[Launcher]]:
    """Return launchers by name."""


@hookspec
def register_loggers() -> Mapping[str, type[Logger]]:
    """Return loggers by name."""


@hookspec
def register_commands() -> Mapping[str, tuple[str, str]]:
    """Return commands of ``h2h`` by name: the import path ``module:attribute`` of a click command, and its summary.

    Called in modules of the entry-point group ``headtohead.commands`` only. ``h2h --help`` imports these modules, so
    they should import nothing slow.
    """


@hookspec
def on_experiment_start(experiment: Path) -> None:
    """Called in the parent process before the first stack (of each look) starts, with the study's folder."""


@hookspec
def on_run_start(run: Path) -> None:
    """Called in the worker when a run starts or resumes, with the run directory."""


@hookspec
def on_evaluation(run: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Called in the worker after each evaluation of a run, with the run directory."""


@hookspec
def on_run_end(run: Path, state: str) -> None:
    """Called in the worker when a run has reached a final state, with the run directory."""


@hookspec
def on_experiment_end(experiment: Path) -> None:
    """Called in the parent process after the last stack (of each look) has ended, with the study's folder."""


@hookspec
def on_load(run: Path, record: Any) -> type | None:
    """Called when a run is loaded, with its folder and its record; may return a subclass of ``LoadedRun`` to use."""
