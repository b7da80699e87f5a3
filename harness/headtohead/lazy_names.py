"""Names of a module that are imported at first use."""

# Without imports that take time: the command line cannot handle Ctrl-C before this module is imported.
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


def lazy_names(module: str) -> "tuple[Callable[[str], Any], Callable[[], list[str]]]":
    """Return ``__getattr__`` and ``__dir__`` of a module that imports its names at first use.

    The names are those that ``module`` imports in its block ``if TYPE_CHECKING``. ``__all__`` lists them without
    submodules.
    """
    homes: dict[str, str] = {}

    def get(name: str) -> "Any":
        import importlib

        if not homes:
            homes.update(_homes(module))
        if name == "__all__":
            return sorted(name for name, home in homes.items() if home != module)
        if name not in homes:
            raise AttributeError(f"module '{module}' has no attribute '{name}'")
        home = importlib.import_module(f"{module}.{name}" if homes[name] == module else homes[name])
        value = home if homes[name] == module else getattr(home, name)
        setattr(sys.modules[module], name, value)
        return value

    def names() -> list[str]:
        listed: list[str] = get("__all__")
        return listed

    return get, names


def _homes(module: str) -> dict[str, str]:
    """Return the module of each name that a module imports in its block ``if TYPE_CHECKING``."""
    import ast
    from pathlib import Path

    source = ast.parse(Path(str(sys.modules[module].__file__)).read_bytes())
    blocks = [
        statement for block in source.body if isinstance(block, ast.If) for statement in block.body
    ]
    imports = [statement for statement in blocks if isinstance(statement, ast.ImportFrom)]
    return {alias.name: str(statement.module) for statement in imports for alias in statement.names}
