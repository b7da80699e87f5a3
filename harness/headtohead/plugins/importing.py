"""Importing the modules and files of plugins; errors name the plugin."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import linecache
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from headtohead.errors import HeadToHeadError, similar_file
from headtohead.plugins.entry_checks import named_failure
from headtohead.plugins.process_state import unchanged_process
from headtohead.plugins.watched_reads import WatchedReads, code_of


@contextmanager
def importing(label: str, distribution: str, module: str) -> Iterator[WatchedReads]:
    """Name the plugin whose import fails or changes what all variants share; return what the import reads."""
    where = f"plugin '{label}' ({distribution})"
    failure = f"{where} failed to import:"
    watch = WatchedReads(code_of(module))
    with unchanged_process(where, module), named_failure(failure, module), watch:
        yield watch


def import_source(path: Path, source: bytes) -> tuple[ModuleType, WatchedReads]:
    """Execute the source of a plugin file and return the module with what it read.

    The file itself may have changed meanwhile, or be missing.
    """
    name = f"headtohead_file_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    module = ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    try:
        with importing(str(path), "file", name) as imported:
            exec(compile(source, str(path), "exec"), module.__dict__)
            # Tracebacks and inspect then show the executed source, not the current content of the file.
            lines = importlib.util.decode_source(source).splitlines(keepends=True)
            linecache.cache[str(path)] = (len(source), None, lines, str(path))
    except HeadToHeadError:
        del sys.modules[name]
        raise
    return module, imported


def plugin_files(path: Path) -> list[Path]:
    """Return a plugin file, or the plugin files of a folder: ``*.py`` except ``_*.py`` and tests."""
    if not path.is_dir():
        return [path]
    files = sorted(
        file for file in path.glob("*.py") if not file.name.startswith(("_", "test_", "conftest."))
    )
    if not files:
        raise HeadToHeadError(
            f"plugin folder '{path}' has no plugin file; name a Python file, or a folder of them"
        )
    return files


def read_source(path: Path) -> bytes:
    """Return the content of a plugin file; a path that is no Python file is an error."""
    if not path.exists():
        raise HeadToHeadError(f"plugin file '{path}' does not exist{similar_file(path, '.py')}")
    if not path.is_file() or path.suffix != ".py":
        raise HeadToHeadError(
            f"plugin file '{path}' is not a regular file with a name that ends in .py"
        )
    return path.read_bytes()


def distribution_of(package: str) -> str:
    """Return the distribution that has installed a package or module of this name, else ``module``.

    A search of the lists of files: ``packages_distributions`` parses all of them, which takes a second.
    """
    file = re.compile(rf"^{re.escape(package)}(/|\.py,)", re.MULTILINE)
    for distribution in importlib.metadata.distributions():
        packages = (distribution.read_text("top_level.txt") or "").split()
        if package in packages or file.search(distribution.read_text("RECORD") or ""):
            return distribution.name
    return "module"


def version_of(distribution: str) -> str:
    """Return the version of an installed distribution, or ``?``."""
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return "?"
