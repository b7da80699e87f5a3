"""Names of a module that are imported at first use."""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any


def lazy_names(module: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` of a module that imports its names at first use.

    The names are those that ``module`` imports in its block ``if TYPE_CHECKING``. A submodule is not listed.
    """
    source = ast.parse(Path(str(sys.modules[module].__file__)).read_bytes())
    blocks = [statement for block in source.body if isinstance(block, ast.If) for statement in block.body]
    imports = [statement for statement in blocks if isinstance(statement, ast.ImportFrom)]
    homes = {alias.name: str(statement.module) for statement in imports for alias in statement.names}
    listed = sorted(name for name, home in homes.items() if home != module)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home = importlib.import_module(f"{module}.{name}" if homes[name] == module else homes[name])
        value = home if homes[name] == module else getattr(home, name)
        setattr(sys.modules[module], name, value)
        return value

    return listed, get, lambda: listed
