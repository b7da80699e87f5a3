"""Detect what code of a plugin reads without declaring it: files, environment variables and imported modules.

Python reports every file that its own functions open to an audit hook, and `os.environ` is a Python mapping. Seen are
therefore ``open``, `pathlib`, `numpy.load`, `torch.load`, `os.environ` and `os.getenv`, also in threads that the code
starts. Native libraries that open files themselves, such as safetensors and sqlite3, child processes, and C code that
reads the environment are not seen, and neither are files that were read, and variables that were copied, before.
"""

from __future__ import annotations

import importlib.util
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

from headtohead.errors import ReadsError, shown_path
from headtohead.plugins.entry import Entry, Options
from headtohead.plugins.reads import Read, code_name, declared_paths, reads_folder, require_existing
from headtohead.plugins.sources import OWN, module_file, package_folder, source_files
from headtohead.schema.sections import is_path

SYSTEM_FOLDERS = ("/proc", "/sys", "/dev", "/etc")
"""Folders of the operating system, which describe the machine."""

CACHE_VARIABLES = ("XDG_CACHE_HOME", "H2H_CACHE", "HF_HOME", "TORCH_HOME")
"""Environment variables that name folders in which libraries keep downloads and compiled code."""

SOURCE = ".py"
BYTECODE = ".pyc"
"""Suffix of compiled sources, which a library may load without an import; the source counts."""

MAX_FILES = 5
"""Number of undeclared files of a folder above which the message names the folder."""

_active: list[WatchedReads] = []
"""The watches of this process, the innermost last."""


class WatchedReads:
    """Records the files and environment variables that code outside headtohead reads in a ``with`` block.

    Not recorded are files of installed packages, of headtohead, of the system and of caches, in which
    libraries keep their own data; files that the block itself has created; and files that do not exist.

    Args:
        code: Files and folders of the plugin. They count even if they are installed.
    """

    def __init__(self, code: Sequence[Path] = ()) -> None:
        self.code = tuple(os.path.realpath(path) for path in code)
        self.files: dict[str, None] = {}
        """Resolved paths of the files, in the order in which they were opened."""
        self.imported: dict[str, None] = {}
        """Resolved paths of the source files of imported modules."""
        self.variables: dict[str, None] = {}
        """Names of the environment variables."""
        self._created: set[str] = set()
        self._callers: set[FrameType] = set()
        self._other_threads: set[int | None] = set()

    def __enter__(self) -> Self:
        _add_hook()
        frame: FrameType | None = sys._getframe()
        while frame is not None:
            self._callers.add(frame)
            frame = frame.f_back
        self._other_threads = {thread.ident for thread in threading.enumerate()} - {
            threading.get_ident()
        }
        _active.append(self)
        os.environ.__class__ = _WatchedEnvironment
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _active.remove(self)
        self._callers.clear()
        if not _active:
            os.environ.__class__ = os._Environ

    @property
    def is_for_this_thread(self) -> bool:
        """Whether the current thread executes the block, or was started in it."""
        return threading.get_ident() not in self._other_threads

    def add_opened(self, path: str, flags: int, frame: FrameType | None) -> None:
        """Record a file that is opened for reading, and note a file that is created."""
        exists = os.path.lexists(path)
        if flags & os.O_TRUNC or (flags & os.O_CREAT and not exists):
            self._created.add(path)
            return
        if flags & os.O_WRONLY or not os.path.isfile(path) or self._is_created(path):
            return
        resolved = os.path.realpath(path)
        if frame is not None and _is_of_import(frame) and resolved.endswith((SOURCE, BYTECODE)):
            source = _source_of(resolved)
            if self._is_called_by_plugin(frame) and not _is_below(source, _installed()):
                self.imported[source] = None
        elif self._counts(resolved) and self._is_opened_by_plugin(frame):
            self.files[resolved] = None

    def add_folder(self, path: str) -> None:
        """Note a folder that is created."""
        if not os.path.lexists(path):
            self._created.add(path)

    def add_renamed(self, old: str, new: str) -> None:
        """Note the new name of a created file."""
        if self._is_created(old):
            self._created.add(new)

    def add_variable(self, name: str, frame: FrameType | None) -> None:
        """Record an environment variable that the code of the plugin itself reads by its name."""
        while frame is not None and frame.f_globals.get("__name__") in (
            "os",
            "collections.abc",
            "_collections_abc",
        ):
            if frame.f_code.co_name in ("setdefault", "copy", "__iter__"):
                return
            frame = frame.f_back
        if frame is not None and frame not in self._callers and self._is_of_plugin(frame):
            self.variables[name] = None

    def _is_created(self, path: str) -> bool:
        return any(
            path == created or path.startswith(created + os.sep) for created in self._created
        )

    def _counts(self, path: str) -> bool:
        if path.endswith(BYTECODE):
            return False
        return _is_below(path, self.code) or not _is_below(path, _data_of_libraries())

    def _is_opened_by_plugin(self, frame: FrameType | None) -> bool:
        """Return whether code of the plugin, or a library that it calls, opens a file outside an import."""
        while frame is not None and frame not in self._callers:
            if _is_of_import(frame) and frame.f_code.co_name == "_find_and_load":
                return False
            if self._is_of_plugin(frame):
                return True
            frame = frame.f_back
        return False

    def _is_called_by_plugin(self, frame: FrameType | None) -> bool:
        """Return whether code of the plugin, directly or through libraries, has called a frame."""
        while frame is not None and frame not in self._callers:
            if self._is_of_plugin(frame):
                return True
            frame = frame.f_back
        return False

    def _is_of_plugin(self, frame: FrameType) -> bool:
        """Return whether a frame executes code that is neither installed nor a part of headtohead."""
        if str(frame.f_globals.get("__name__", "")).partition(".")[0] in OWN:
            return False
        file = str(frame.f_globals.get("__file__") or frame.f_code.co_filename)
        if file.startswith("<frozen"):
            return False
        resolved = _resolved(file)
        return _is_below(resolved, self.code) or not _is_below(resolved, _installed())


def _is_of_import(frame: FrameType) -> bool:
    """Return whether a frame is Python's own code that finds and loads modules."""
    return frame.f_code.co_filename.startswith("<frozen importlib")


def _source_of(file: str) -> str:
    """Return the source file of a file that an import opens, which can be compiled code."""
    if not file.endswith(BYTECODE):
        return file
    try:
        return os.path.realpath(importlib.util.source_from_cache(file))
    except ValueError:  # a compiled module without a source
        return file


class _WatchedEnvironment(os._Environ[str]):
    """The class of `os.environ` while a block is watched."""

    def __getitem__(self, key: str) -> str:
        watch = _current_watch()
        if watch is not None:
            watch.add_variable(key, sys._getframe(1))
        return super().__getitem__(key)


def _current_watch() -> WatchedReads | None:
    """Return the innermost watch of this thread."""
    return next((watch for watch in reversed(_active) if watch.is_for_this_thread), None)


@cache
def _add_hook() -> None:
    """Add the audit hook of this process, which cannot be removed; without a watch it does nothing."""
    sys.addaudithook(_on_event)


def _on_event(event: str, arguments: tuple[Any, ...]) -> None:
    if not _active or event not in ("open", "os.mkdir", "os.rename"):
        return
    watch = _current_watch()
    path = _absolute(arguments[0])
    if watch is None or path is None:
        return
    if event == "open":
        watch.add_opened(path, arguments[2], sys._getframe(1))
    elif event == "os.mkdir":
        watch.add_folder(path)
    else:
        new = _absolute(arguments[1])
        if new is not None:
            watch.add_renamed(path, new)


def _absolute(path: object) -> str | None:
    """Return the absolute path of an audit event, or None for a file descriptor."""
    return (
        os.path.abspath(os.fsdecode(path)) if isinstance(path, str | bytes | os.PathLike) else None
    )


def _resolved(file: str) -> str:
    return _without_links(os.path.abspath(file))


@cache
def _without_links(path: str) -> str:
    return os.path.realpath(path)


def _is_below(path: str, folders: Iterable[str]) -> bool:
    """Return whether a path is one of these files and folders, or in one of the folders."""
    return any(
        path == folder or path.startswith(folder.rstrip(os.sep) + os.sep) for folder in folders
    )


@cache
def _installed() -> tuple[str, ...]:
    """Return the folders of the standard library and of installed packages, and the packages of headtohead."""
    paths = sysconfig.get_paths()
    folders = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    folders += [*site.getsitepackages(), site.getusersitepackages()]
    folders += [str(file.parent) for file in map(module_file, OWN) if file is not None]
    return tuple(dict.fromkeys(map(os.path.realpath, folders)))


def _data_of_libraries() -> tuple[str, ...]:
    """Return the folders in which libraries and the system keep their own data."""
    named = [os.environ.get(name) for name in CACHE_VARIABLES]
    caches = [os.path.expanduser("~/.cache"), *filter(None, named)]
    return (*_installed(), *SYSTEM_FOLDERS, *map(os.path.realpath, caches))


class WatchedConstruction(type):
    """Class of components: the construction of an object may only read what its class declares."""

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        options = arguments[0] if arguments else named.get("options")
        with only_declared_reads(cls, options):  # type: ignore[arg-type]
            return super().__call__(*arguments, **named)


@contextmanager
def only_declared_reads(entry: type[Entry], options: Options) -> Iterator[None]:
    """Raise if code outside headtohead reads in the block what an entry does not declare.

    Raises:
        ReadsError: With the file or variable, and the declaration to add; or if a declared file is missing.
    """
    if entry.__module__.partition(".")[0] in OWN:
        yield
        return
    require_existing(entry, options)
    with WatchedReads(code_of(entry.__module__)) as watch:
        yield
    require_declared(entry, options, watch)


def code_of(module: str) -> tuple[Path, ...]:
    """Return the package folder or the file of a module, which is empty for a notebook cell."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        folder_or_file = module_file(module)
        file = str(folder_or_file) if folder_or_file is not None else None
    if file is None:
        return ()
    path = Path(file).absolute()
    return (package_folder(path) or path,)


def require_declared(
    entry: type[Entry],
    options: Options,
    watch: WatchedReads,
    others: Sequence[Read] = (),
    sources: Collection[str] = (),
) -> None:
    """Raise if an entry does not declare all that was read, or a module that was imported is not in its hash.

    Args:
        entry: The entry.
        options: Its options.
        watch: What was read and imported.
        others: The declarations of other entries that could have read it.
        sources: Source files in the hashes of other entries, as `hashed_files` returns them.

    Raises:
        ReadsError: With the file or variable, and the declaration to add.
    """
    if not watch.files and not watch.imported and not watch.variables:
        return
    declared = declared_paths(entry, options) | {read.name: read.path for read in others}
    paths = [*_path_options(options), *filter(None, declared.values())]
    allowed = {os.path.realpath(path) for path in paths}
    readable = allowed | _source_files()
    hashed = allowed | hashed_files(entry) | {*sources}
    undeclared = [file for file in watch.files if not _is_below(file, readable)]
    undeclared += [file for file in watch.imported if not _is_below(file, hashed)]
    variables = [f"${name}" for name in watch.variables if f"${name}" not in declared]
    if not undeclared and not variables:
        return
    shown = (
        f"'{shown_path(undeclared[0])}'"
        if undeclared
        else f"the environment variable {variables[0]}"
    )
    more = len(undeclared) + len(variables) - 1
    further = f" and {more} more" if more else ""
    names = [*entry.reads, *_declarations(undeclared, entry, options), *variables]
    declaration = ", ".join(f'"{name}"' for name in dict.fromkeys(names))
    comma = "," if len(names) == 1 else ""
    raise ReadsError(
        f"{code_name(entry)} reads {shown}{further} without declaring it, so that a change would not make its runs "
        f"STALE; add to the class: reads = ({declaration}{comma})"
    )


def _source_files() -> set[str]:
    """Return the source files of the imported modules, which libraries read to inspect code."""
    named = [getattr(module, "__file__", None) for module in [*sys.modules.values()]]
    return {_resolved(file) for file in named if file}


def hashed_files(entry: type[Entry]) -> set[str]:
    """Return the source files that the hashes of an entry, and of the classes that it inherits from, contain."""
    found: set[str] = set()
    for base in entry.__mro__:
        found |= module_files(base.__module__)
    return found


def module_files(module: str) -> set[str]:
    """Return the source files in the hash of a module that is not installed; none without a file."""
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None or not os.path.isfile(file) or _is_below(_resolved(file), _installed()):
        return set()
    return {str(path) for path in source_files(Path(file))}


def _path_options(options: Options) -> Iterator[Path]:
    """Yield the paths in the options that are marked as `FilePath`; their files are declared by the marker."""
    for name, field in type(options).model_fields.items():
        if is_path(field):
            value = getattr(options, name)
            values = (value,) if isinstance(value, str) else value or ()
            yield from (Path(path).expanduser() for path in values)


def _declarations(undeclared: Sequence[str], entry: type[Entry], options: Options) -> list[str]:
    """Return the names that declare files: of an option that has the path, or relative to the file of the entry."""
    folder = os.path.realpath(reads_folder(entry))
    if len(undeclared) > MAX_FILES:
        common = os.path.commonpath([os.path.dirname(file) for file in undeclared])
        return [_relative(common, folder)]
    by_option = {}
    for name, value in options:
        if isinstance(value, str) and value:
            by_option[os.path.realpath(os.path.join(folder, os.path.expanduser(value)))] = (
                f"{{{name}}}"
            )
    return [by_option.get(file) or _relative(file, folder) for file in undeclared]


def _relative(path: str, folder: str) -> str:
    """Return a path relative to a folder that contains it, otherwise the path."""
    return os.path.relpath(path, folder) if _is_below(path, [folder]) else path
