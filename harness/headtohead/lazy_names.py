"""Names of a module that are imported at first use."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    module: str, names: Mapping[str, str]
) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a module that imports its names at first use.

    Args:
        module: The name of the module.
        names: The names by the module that defines them, separated by spaces. A submodule is found by its own name,
            and not listed.
    """
    homes = {name: home for home, own in names.items() for name in own.split()}
    listed = sorted(name for name, home in homes.items() if home != f"{module}.{name}")

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home = importlib.import_module(homes[name])
        value = home if homes[name] == f"{module}.{name}" else getattr(home, name)
        setattr(sys.modules[module], name, value)
        return value

    return listed, get, lambda: listed
