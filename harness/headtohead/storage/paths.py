"""Validation of paths in records.

A runs folder may come from an untrusted source. A path outside it, or a symbolic link in it, could make a command
read, upload, overwrite or delete other files of the user.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path, PurePosixPath

from headtohead.errors import HeadToHeadError
from headtohead.files import unreadable


def checked_path(root: Path, *names: object, tree: bool = False) -> Path:
    """Join ``names`` to ``root`` and check that the path stays inside and contains no symbolic link.

    ``root`` is trusted and may be a symbolic link. The path need not exist.

    Args:
        root: The folder that contains the path.
        names: Relative paths. Without names, the path is ``root``.
        tree: Also refuse symbolic links, FIFOs, sockets and devices below the path.

    Raises:
        HeadToHeadError: If a name is not a relative path or leaves ``root``, a symbolic link is found, or a folder on
            the path cannot be read.
    """
    path = root
    for name in names:
        parts: tuple[str, ...] = ()
        if isinstance(name, str | os.PathLike):
            parts = PurePosixPath(name).parts
        if not parts or any(part in {"/", "//", ".."} or "\0" in part for part in parts):
            raise HeadToHeadError(
                f"'{name}' is not a path inside '{root}': its record is damaged or was edited; "
                "move the record's folder away"
            )
        for part in parts:
            path = path / part
            _mode(path)
    if tree:
        _check_tree(path)
    return path


def _check_tree(folder: Path) -> None:
    """Raise if a symbolic link, a FIFO, a socket or a device is below a folder."""
    for parent, folders, files in os.walk(folder, onerror=_refuse_unreadable):
        for name in (*folders, *files):
            path = os.path.join(parent, name)
            mode = _mode(path)
            if mode and not (stat.S_ISDIR(mode) or stat.S_ISREG(mode)):
                raise HeadToHeadError(unreadable(path, "not a regular file"))


def _mode(path: Path | str) -> int:
    """Return the mode of a path, which must not be a symbolic link; 0 if it does not exist."""
    try:
        mode = os.lstat(path).st_mode
    except OSError as error:
        _refuse_unreadable(error)
        return 0
    if stat.S_ISLNK(mode):
        raise HeadToHeadError(
            f"'{path}' is a symbolic link, which is not allowed; replace it by its target"
        )
    return mode


def _refuse_unreadable(error: OSError) -> None:
    """Raise the error for a path that exists."""
    if not isinstance(error, FileNotFoundError | NotADirectoryError):
        raise HeadToHeadError(
            f"cannot read '{error.filename}': {error.strerror or error}"
        ) from error
