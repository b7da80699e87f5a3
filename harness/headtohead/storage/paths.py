"""Validation of paths in records.

A runs folder may come from an untrusted source. A path outside it, or a symbolic link in it, could make a command
read, upload, overwrite or delete other files of the user.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath

from headtohead.errors import HeadToHeadError
from headtohead.files import unreadable


def inside(root: Path, *names: object, tree: bool = False) -> Path:
    """Join ``names`` to ``root`` and check that the path stays inside and contains no symbolic link.

    ``root`` is trusted and may be a symbolic link. The path need not exist.

    Args:
        root: The folder that contains the path.
        names: Relative paths. Without names, the path is ``root``.
        tree: Also refuse symbolic links below the path.

    Raises:
        HeadToHeadError: If a name is not a relative path or leaves ``root``, or a symbolic link is found.
    """
    path = root
    for name in names:
        parts = PurePosixPath(name).parts if isinstance(name, str | os.PathLike) else ()
        if not parts or any(part in {"/", "//", ".."} or "\0" in part for part in parts):
            raise HeadToHeadError(
                f"'{name}' is not a path inside '{root}': its record is damaged or was edited; "
                "move the record's folder away"
            )
        for part in parts:
            path = path / part
            if _is_link(path):
                raise _link(path)
    link = _find_link(path) if tree else None
    if link is not None:
        raise _link(link)
    return path


def run_folder(experiment: Path, directory: object, reused_from: object = None, *, tree: bool = False) -> Path:
    """Return the folder of a run in an experiment's record.

    Args:
        experiment: Folder of the experiment.
        directory: Path of the run in the experiment's folder.
        reused_from: Path of the run in the runs folder, for a reused result of another experiment.
        tree: Also refuse symbolic links inside the run's folder.

    Raises:
        HeadToHeadError: If the path is outside its folder, or a symbolic link is found.
    """
    if reused_from:
        return inside(experiment.parent, reused_from, tree=tree)
    return inside(experiment, directory, tree=tree)


def checked_name(name: object, record: Path) -> str:
    """Return the experiment's name of a record if it is a valid folder name.

    Raises:
        HeadToHeadError: If it is not; names the record.
    """
    if isinstance(name, str) and re.fullmatch(r"[^./\\][^/\\]*", name) and name.isprintable():
        return name
    raise HeadToHeadError(
        f"{record}: {name!r} is not a valid folder name; the record is damaged or was edited, move its folder away"
    )


def _link(path: Path | str) -> HeadToHeadError:
    return HeadToHeadError(f"'{path}' is a symbolic link, which is not allowed; replace it by its target")


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise HeadToHeadError(f"cannot read '{path}': {error.strerror or error}") from error


def _find_link(folder: Path | str) -> str | None:
    """Return the first symbolic link below a folder, or None.

    Raises:
        HeadToHeadError: If the folder contains a FIFO, a socket or a device, or cannot be read.
    """
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HeadToHeadError(f"cannot read '{folder}': {error.strerror or error}") from error
    for entry in entries:
        if entry.is_symlink():
            return entry.path
        if entry.is_dir(follow_symlinks=False):
            link = _find_link(entry.path)
            if link is not None:
                return link
        elif not entry.is_file(follow_symlinks=False):
            raise HeadToHeadError(unreadable(entry.path, "not a regular file"))
    return None
