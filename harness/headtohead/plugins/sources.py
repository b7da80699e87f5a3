"""Source files of plugin entries, by names that a record can hold. No function imports a module."""

from __future__ import annotations

import ast
import hashlib
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from functools import lru_cache
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

OWN = (
    "headtohead_judge",
    "headtohead",
    "headtohead_plugins",
    "headtohead_mlflow",
    "headtohead_notebooks",
)
"""The packages of headtohead."""

START_PATH = tuple(sys.path)
"""Where modules were found when headtohead was imported; other processes do not know folders that are added later."""

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
    """Return the sha256 of a plugin file and of the modules of its project that it imports (`source_files`).

    Phrases of entries do not count, because no result depends on them. A file that imports no module of its project has
    the sha256 of its content without phrases.
    """
    own_hash, *other_hashes = [
        sha256_without_phrases(path.read_bytes()) for path in source_files(file)
    ]
    if not other_hashes:
        return own_hash
    return hashlib.sha256(" ".join([own_hash, *sorted(other_hashes)]).encode()).hexdigest()


def source_files(file: Path) -> list[Path]:
    """Return a plugin file, then the modules of its project that ``import`` statements name, also inside functions.

    A module belongs to the project if it is in the package of the file or not installed. The modules of headtohead are
    left out, because its version counts.
    """
    file = file.resolve()
    package = package_folder(file)
    if package is not None and package.name in OWN:
        return [file]
    found: dict[Path, None] = {}
    waiting = [file]
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        for name in _imports(path.read_bytes()):
            for imported in map(Path.resolve, _imported(name, path)):
                if not _is_installed(imported) or package in imported.parents:
                    waiting.append(imported)
    return list(found)


def sha256_without_phrases(content: bytes) -> str:
    """Return the sha256 of the source of a plugin without the phrases of its entries.

    A phrase is left out with a blank line after it that it alone needs.
    """
    lines = content.split(b"\n")
    without: set[int] = set()
    for first, end in _phrases(content, lines):
        without.update(range(first, end))
        is_alone = first == 0 or not lines[first - 1].strip()
        if is_alone and end < len(lines) - 1 and not lines[end].strip():
            without.add(end)
    kept = [line for number, line in enumerate(lines) if number not in without]
    return hashlib.sha256(b"\n".join(kept)).hexdigest()


def _phrases(content: bytes, lines: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Yield the first line, and the line after the last, of each assignment to ``phrase`` in the body of a class."""
    try:
        statements = ast.parse(content).body
    except (SyntaxError, ValueError):
        return
    for statement in statements:
        if not isinstance(statement, ast.ClassDef):
            continue
        for assignment in statement.body:
            if isinstance(assignment, ast.Assign) and _is_phrase(assignment, lines):
                assert assignment.end_lineno is not None
                yield assignment.lineno - 1, assignment.end_lineno


def _is_phrase(assignment: ast.Assign, lines: Sequence[bytes]) -> bool:
    """Return whether an assignment to ``phrase`` has its lines for itself."""
    names = [ast.unparse(target) for target in assignment.targets]
    assert assignment.end_lineno is not None
    before = lines[assignment.lineno - 1][: assignment.col_offset]
    after = lines[assignment.end_lineno - 1][assignment.end_col_offset :]
    return names == ["phrase"] and not before.strip() and not after.strip()


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


def _imported(name: str, file: Path) -> list[Path]:
    """Return the files that the import of a module executes: those of its packages, and its own.

    Empty for a module of headtohead, and if there is none.
    """
    absolute = name.lstrip(".")
    level = len(name) - len(absolute)
    if not level and absolute.partition(".")[0] in OWN:
        return []
    parts = absolute.split(".")
    found = []
    for end in range(1, len(parts) + 1):
        if level:
            path = _module_in(file.parents[level - 1], parts[:end])
        else:
            path = _module_in(file.parent, parts[:end]) or module_file(".".join(parts[:end]))
        if path is not None:
            found.append(path)
    return found


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
    """Return the file of a module without importing it or its packages; None if other processes do not find it."""
    package, *parts = name.split(".")
    spec = _spec(package)
    if spec is None:
        return None
    if not parts:
        return Path(spec.origin) if spec.has_location and spec.origin else None
    for location in spec.submodule_search_locations or ():
        path = _module_in(Path(location), parts)
        if path is not None:
            return path
    return None


def _spec(package: str) -> ModuleSpec | None:
    """Return the specification of a top-level module, or None if a process with the `START_PATH` does not find it."""
    spec = PathFinder.find_spec(package, START_PATH)
    for finder in sys.meta_path:
        if spec is None and finder is not PathFinder:
            spec = finder.find_spec(package, None)
    return spec
