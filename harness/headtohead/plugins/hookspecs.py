"""All hooks that headtohead calls. A plugin implements any of them with ``@headtohead.plugin.hookimpl``.

- ``register_*`` hooks are called once per process, when plugins are loaded. Each returns a mapping
  from the name that users type to the class that implements it. Every family has one, which is generated from the list
  of families.
- ``on_*`` hooks are events. They are called in registration order, in the process in which the
  event happens. Return values are ignored, except that of ``on_load``. An exception in
  ``on_run_start`` or ``on_evaluation`` ends that run as FAILED; the other runs of its stack continue.

A hook may leave out arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pluggy

from headtohead.plugins.families import FAMILIES, Family

if TYPE_CHECKING:
    from pathlib import Path


hookspec = pluggy.HookspecMarker("headtohead")
hookimpl = pluggy.HookimplMarker("headtohead")


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


def _registration(family: Family) -> Callable[..., Any]:
    """Return the specification of the hook that registers entries of a family."""

    def register() -> Mapping[str, type]:
        raise NotImplementedError

    register.__name__ = family.hook
    register.__doc__ = f"Return {family.plural} by name."
    specification: Callable[..., Any] = hookspec(register)
    return specification


HOOKS: dict[str, Callable[..., Any]] = {
    **{family.hook: _registration(family) for family in FAMILIES.values()},
    "register_commands": register_commands,
    "on_experiment_start": on_experiment_start,
    "on_run_start": on_run_start,
    "on_evaluation": on_evaluation,
    "on_run_end": on_run_end,
    "on_experiment_end": on_experiment_end,
    "on_load": on_load,
}
"""All hooks by name, in the order of the reference page."""


def plugin_manager() -> pluggy.PluginManager:
    """Return a manager of plugins that has all hooks and no plugin."""
    manager = pluggy.PluginManager("headtohead")
    manager.add_hookspecs(type("Hooks", (), HOOKS))
    return manager
