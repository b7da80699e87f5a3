"""Source files of plugin entries, by names that a record can hold. No function imports a module."""

from __future__ import annotations

import ast
import hashlib
import importlib.util
import re
import site
import sys
import sysconfig
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

OWN = (
    "headtohead_judge",
    "headtohead",
    "headtohead_plugins",
    "headtohead_mlflow",
    "headtohead_notebooks",
)
"""The packages of headtohead."""

PHRASE = rb"^    phrase = (?:\(\n(?: {8}.*\n)+ {4}\)|.+)\n"
PHRASES = re.compile(rb"(?<=\n\n)%b\n|%b" % (PHRASE, PHRASE), re.MULTILINE)
"""The phrases of the classes of a file, each with a blank line after it that it alone needs."""

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
    return name_in_project(path, project)


def name_in_project(path: Path, project: Path) -> str:
    """Return ``./`` and the path in the project of an absolute path, or the path if it is outside."""
    if path.is_relative_to(project):
        return f"./{path.relative_to(project).as_posix()}"
    return str(path)


def source_file(name: str, project: Path) -> Path | None:
    """Return the file of a name of `source_name`, or None if there is no such file here."""
    path = module_file(name) if MODULE.fullmatch(name) else project / name
    if path is None or not path.is_file():
        return None
    return path


def source_sha256(file: Path) -> str:
    """Return the sha256 of a plugin file and of the modules of its project that it imports, also inside functions.

    Phrases of entries do not count, because no result depends on them. A module belongs to the project if it is in the
    package of the file or not installed. The modules of headtohead count by its version. A file that imports no module
    of its project has the sha256 of its content without phrases.
    """
    file = file.resolve()
    package = package_folder(file)
    if package is not None and package.name in OWN:
        return sha256_without_phrases(file.read_bytes())
    hashes: dict[Path, str] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in hashes:
            continue
        content = path.read_bytes()
        hashes[path] = sha256_without_phrases(content)
        for name in _imports(content):
            imported = _imported(name, path)
            if imported is None:
                continue
            imported = imported.resolve()
            if not _is_installed(imported) or package in imported.parents:
                waiting.append(imported)
    own_hash, *other_hashes = hashes.values()
    if not other_hashes:
        return own_hash
    return hashlib.sha256(" ".join([own_hash, *sorted(other_hashes)]).encode()).hexdigest()


def sha256_without_phrases(content: bytes) -> str:
    """Return the sha256 of the source of a plugin without the phrases of its entries."""
    return hashlib.sha256(PHRASES.sub(b"", content)).hexdigest()


def package_folder(file: Path) -> Path | None:
    """Return the folder of the top-level package of a file, if it has one."""
    packages = [folder for folder in file.parents if (folder / "__init__.py").is_file()]
    if not packages:
        return None
    return packages[-1]


def _is_installed(file: Path) -> bool:
    """Return whether a file is in a folder of installed packages or of the standard library."""
    folders = {*sysconfig.get_paths().values(), *site.getsitepackages(), site.getusersitepackages()}
    return any(file.is_relative_to(Path(folder).resolve()) for folder in folders)


def _imported(name: str, file: Path) -> Path | None:
    """Return the file of a module that a file imports, or None if it is headtohead's or there is none."""
    absolute = name.lstrip(".")
    level = len(name) - len(absolute)
    if level:
        return _module_in(file.parents[level - 1], absolute.split("."))
    if absolute.partition(".")[0] in OWN:
        return None
    return _module_in(file.parent, absolute.split(".")) or module_file(absolute)


def _module_in(folder: Path, parts: Sequence[str]) -> Path | None:
    """Return the file of a module of a folder, or None if there is none."""
    module = Path(folder, *parts[:-1], f"{parts[-1]}.py")
    package = Path(folder, *parts, "__init__.py")
    for path in (module, package):
        if path.is_file():
            return path
    return None


@lru_cache(maxsize=64)
def _imports(content: bytes) -> tuple[str, ...]:
    """Return the names of the modules that a file imports; those of relative imports begin with a dot."""
    names: list[str] = []
    try:
        nodes = [*ast.walk(ast.parse(content))]
    except (SyntaxError, ValueError):
        return ()
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            prefix = f"{module}." if node.module else module
            names.append(module)
            names += [prefix + alias.name for alias in node.names]
    return tuple(names)


def module_file(name: str) -> Path | None:
    """Return the file of a module without importing it or its packages; None if it is not installed."""
    package, *parts = name.split(".")
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was not imported, such as __main__
        return None
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.has_location and spec.origin else None
    for location in spec.submodule_search_locations or ():
        path = _module_in(Path(location), parts)
        if path is not None:
            return path
    return None
