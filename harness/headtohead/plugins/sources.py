"""Source files of plugin entries, by names that a record can hold. No function imports a module."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def source_name(entry: type, project: Path) -> str | None:
    """Return the name of the file that defines an entry.

    Returns:
        The import name of an installed module; else ``./`` and the path in the project, or an absolute path. None for
        a notebook cell.
    """
    file = getattr(sys.modules.get(entry.__module__), "__file__", None)
    if not file or not Path(file).is_file():
        return None
    path = Path(file).resolve()
    installed = module_file(entry.__module__)
    if installed is not None and installed.resolve() == path:
        return entry.__module__
    return f"./{path.relative_to(project).as_posix()}" if path.is_relative_to(project) else str(path)


def source_file(name: str, project: Path) -> Path | None:
    """Return the file of a name of `source_name`, or None if there is no such file here."""
    path = module_file(name) if MODULE.fullmatch(name) else project / name
    return path if path is not None and path.is_file() else None


def module_file(name: str) -> Path | None:
    """Return the file of a module without importing it or its packages; None if it is not installed."""
    package, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was not imported, such as __main__
        return None
    if spec is None or not parts:
        return Path(spec.origin) if spec is not None and spec.has_location and spec.origin else None
    *folders, module = parts
    for location in spec.submodule_search_locations or ():
        for path in (Path(location, *folders, f"{module}.py"), Path(location, *parts, "__init__.py")):
            if path.is_file():
                return path
    return None
