"""Commands that plugins add to ``h2h``."""

from __future__ import annotations

import importlib
from collections.abc import Collection
from functools import cache
from importlib.metadata import entry_points

from headtohead.errors import HeadToHeadError, describe

BUILT_IN = ("headtohead_mlflow.commands", "headtohead_notebooks.commands")
ENTRY_POINT_GROUP = "headtohead.commands"


@cache
def plugin_commands(taken: Collection[str] = frozenset()) -> dict[str, tuple[str, str]]:
    """Return the commands of plugins by name: import path ``module:attribute`` and summary.

    Raises:
        HeadToHeadError: If a module of the group cannot be imported, or a name is taken.
    """
    commands: dict[str, tuple[str, str]] = {}
    found, module = [], "installed packages"
    try:
        for module in [
            *BUILT_IN,
            *(point.value for point in entry_points(group=ENTRY_POINT_GROUP)),
        ]:
            found.append(importlib.import_module(module).register_commands())
    except Exception as error:
        raise HeadToHeadError(
            f"the commands of '{module}' cannot be loaded: {describe(error)}"
        ) from error
    for added in found:
        if again := {*added} & {*taken, *commands}:
            raise HeadToHeadError(
                f"two plugins register the command '{min(again)}'; uninstall one of them"
            )
        commands |= added
    return commands
