"""Every hook that headtohead calls. A plugin implements any of them with ``@headtohead.hookimpl``.

The ``register_*`` hooks are called once, when plugins are loaded; each returns a mapping from the
name users type to the class that carries it out. The ``on_*`` hooks are events: they are called in
the process where the event happens, in registration order, and what they return is ignored. An
event that raises retires only the run it was called for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from pathlib import Path

    from headtohead.plugins.attention import Attention
    from headtohead.plugins.dataset import Dataset
    from headtohead.plugins.launcher import Launcher
    from headtohead.plugins.masking import Masking
    from headtohead.plugins.positional import Positional
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
def register_datasets() -> Mapping[str, type[Dataset]]:
    """Return datasets by name."""


@hookspec
def register_recipes() -> Mapping[str, type[Recipe]]:
    """Return recipes by name."""


@hookspec
def register_launchers() -> Mapping[str, type[Launcher]]:
    """Return launchers by name."""


@hookspec
def on_experiment_start(experiment: Path) -> None:
    """Called in the parent before the first stack starts, with the experiment's run folder."""


@hookspec
def on_run_start(run: Path) -> None:
    """Called in the worker when a run starts or resumes, with its run directory."""


@hookspec
def on_evaluation(run: Path, step: int, metrics: Mapping[str, float]) -> None:
    """Called in the worker after each evaluation of a run."""


@hookspec
def on_run_end(run: Path, state: str) -> None:
    """Called in the worker when a run has reached a final state."""


@hookspec
def on_experiment_end(experiment: Path) -> None:
    """Called in the parent after the last stack has ended."""
