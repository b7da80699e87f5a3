"""Files and environment variables that an entry declares to read, and their hashes."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from headtohead import files
from headtohead.errors import ReadsError, shown_path, similar_file
from headtohead.plugins.entry import Entry, Options

LARGE_BYTES = 1 << 20
"""Size from which the hash of a file is cached in the process, by its inode, size and time of change."""


@dataclass(frozen=True)
class Read:
    """A file, a folder or an environment variable that an entry declares to read.

    Args:
        name: The declared name, such as ``scale.json`` or ``$SCALE``.
        path: The file or folder; None for a variable.
        sha256: Hash of the content.
    """

    name: str
    path: Path | None
    sha256: str


def declared_reads(entry: type[Entry], options: Options) -> tuple[Read, ...]:
    """Return what an entry declares to read with these options, with the present hashes.

    Raises:
        ReadsError: If a declared file is missing or cannot be read.
    """
    require_existing(entry, options)
    return tuple(_read(entry, name, path) for name, path in declared_paths(entry, options).items())


def require_existing(entry: type[Entry], options: Options) -> None:
    """Raise a ReadsError if a file or folder that an entry declares to read is missing."""
    for name, path in declared_paths(entry, options).items():
        if path is not None and not path.exists():
            raise ReadsError(
                f"{code_name(entry)} declares that it reads '{name}', but '{shown_path(path)}' does not "
                f"exist{similar_file(path)}; create it, or correct reads"
            )


def declared_paths(entry: type[Entry], options: Options) -> dict[str, Path | None]:
    """Return the path of every file and folder that an entry declares to read, by its name; None for a variable."""
    folder = reads_folder(entry)
    paths: dict[str, Path | None] = {}
    for name in _names(entry, options):
        paths[name] = None
        if not is_variable(name):
            paths[name] = folder / Path(name).expanduser()
    return paths


def reads_folder(entry: type[Entry]) -> Path:
    """Return the folder of the file that declares ``reads``; the working directory for a notebook cell."""
    owner = next(base for base in entry.__mro__ if base is Entry or "reads" in vars(base))
    if owner is Entry:
        owner = entry
    file = getattr(sys.modules.get(owner.__module__), "__file__", None)
    if not file:
        return Path.cwd()
    return Path(file).absolute().parent


def is_variable(name: str) -> bool:
    """Return whether a declared name is that of an environment variable, ``$NAME``."""
    return name.startswith("$")


def option_of(name: str) -> str | None:
    """Return the option in which ``{option}`` has its paths, or None for another name."""
    if name.startswith("{") and name.endswith("}"):
        return name[1:-1]
    return None


def _names(entry: type[Entry], options: Options) -> Iterator[str]:
    """Yield the declared names, with the values of options in place of ``{option}``."""
    for name in entry.reads:
        option = option_of(name)
        if option is None:
            yield name
            continue
        value = getattr(options, option)
        values = (value,) if isinstance(value, str | Path) else value
        yield from (str(path) for path in values or () if path)


def _read(entry: type[Entry], name: str, path: Path | None) -> Read:
    if path is None:
        return Read(name, None, variable_sha256(name))
    try:
        return Read(name, path, content_sha256(path))
    except OSError as error:
        raise ReadsError(
            f"{code_name(entry)} declares that it reads '{name}', but '{shown_path(path)}' cannot be read: "
            f"{error.strerror or error}"
        ) from error


def code_name(entry: type[Entry]) -> str:
    """Return file and class of an entry for messages, such as ``near.py: Near``."""
    file = getattr(sys.modules.get(entry.__module__), "__file__", None)
    where = shown_path(file) if file else entry.__module__
    return f"{where}: {entry.__name__}"


def variable_sha256(name: str) -> str:
    """Return the sha256 of an environment variable ``$NAME``; a variable that is not set differs from an empty one."""
    value = os.environ.get(name.removeprefix("$"))
    content = b"" if value is None else b"=" + os.fsencode(value)
    return hashlib.sha256(content).hexdigest()


def content_sha256(path: Path) -> str:
    """Return the sha256 of a file, or of the names and contents of all files in a folder."""
    if not path.is_dir():
        return _file_sha256(path)
    digest = hashlib.sha256()
    for file in sorted(path.rglob("*")):
        if file.is_file():
            digest.update(f"{file.relative_to(path).as_posix()}\n{_file_sha256(file)}\n".encode())
    return digest.hexdigest()


def _file_sha256(path: Path) -> str:
    status = path.stat()
    if status.st_size < LARGE_BYTES:
        return files.sha256(path)
    return _large_file_sha256(
        path, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
    )


@lru_cache(maxsize=256)
def _large_file_sha256(path: Path, *state: int) -> str:
    return files.sha256(path)


def labelled_hashes(
    family: str, name: str, source_sha256: str, reads: Iterable[tuple[str, str]]
) -> dict[str, str]:
    """Return the hashes of an entry by what they describe: its source, and each name that it declares to read."""
    entry = f"{family} '{name}'"
    hashes = {entry: source_sha256}
    for read, sha256 in reads:
        shown = read if is_variable(read) else f"'{read}'"
        hashes[f"{shown} read by {entry}"] = sha256
    return hashes
