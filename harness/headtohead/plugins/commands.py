"""Commands that plugins add to ``h2h``."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import cache
from importlib.metadata import entry_points

import pluggy

from headtohead.errors import HeadToHeadError, describe
from headtohead.plugins import hookspecs

BUILT_IN = ("headtohead_notebooks.commands",)
ENTRY_POINT_GROUP = "headtohead.commands"


@cache
def plugin_commands(taken: Collection[str] = frozenset()) -> dict[str, tuple[str, str]]:
    """Return the commands of plugins by name: import path ``module:attribute`` and summary.

    Raises:
        HeadToHeadError: If a module of the group cannot be imported, or a name is taken.
    """
    manager = pluggy.PluginManager("headtohead")
    manager.add_hookspecs(hookspecs)
    names = [*BUILT_IN, *(point.value for point in entry_points(group=ENTRY_POINT_GROUP))]
    commands: dict[str, tuple[str, str]] = {}
    for name in names:
        try:
            manager.register(importlib.import_module(name))
        except Exception as error:
            raise HeadToHeadError(f"the commands of '{name}' cannot be loaded: {describe(error)}") from error
    for added in reversed(manager.hook.register_commands()):
        for name, command in added.items():
            if name in taken or name in commands:
                raise HeadToHeadError(f"two plugins register the command '{name}'; uninstall one of them")
            commands[name] = command
    return commands
