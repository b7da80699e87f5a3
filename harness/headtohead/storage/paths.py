"""Paths that records name, checked against the folder that they must lie in.

A runs folder may come from somebody else. A record that names a file outside it, or a symbolic link
in it, would make a command read, ship, write or delete what its user never named.
"""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path, PurePosixPath

from headtohead.errors import HeadToHeadError


def inside(root: Path, *names: object, tree: bool = False) -> Path:
    """Return the path of ``names`` below ``root``, without symbolic links on the way.

    ``root`` is the user's own and may be a symbolic link. The path need not exist.

    Args:
        root: Folder that the path must lie in.
        names: Relative paths, joined. Without any, the path is ``root``.
        tree: Refuse symbolic links among everything below the path too.

    Raises:
        HeadToHeadError: If a name is no relative path, leaves ``root``, or a symbolic link is met.
    """
    path = root
    for name in names:
        parts = PurePosixPath(name).parts if isinstance(name, str | os.PathLike) else ()
        if not parts or any(part in {"/", "//", ".."} or "\0" in part for part in parts):
            raise HeadToHeadError(
                f"'{name}' is not a path inside '{root}': the record that names it is damaged or "
                "was changed by hand; move its folder away"
            )
        for part in parts:
            path = path / part
            if _is_link(path):
                raise _link(path)
    found = _find_link(path) if tree else None
    if found is not None:
        raise _link(found)
    return path


def run_folder(experiment: Path, directory: object, reused_from: object = None, *, tree: bool = False) -> Path:
    """Return the folder of a run that an experiment's record lists.

    Args:
        experiment: Folder of the experiment.
        directory: Path of the run in the experiment's folder.
        reused_from: Path of the run in the runs folder, for a result of another experiment.
        tree: Refuse symbolic links in the run's folder too.

    Raises:
        HeadToHeadError: If the path leaves its folder, or a symbolic link is met.
    """
    if reused_from:
        return inside(experiment.parent, reused_from, tree=tree)
    return inside(experiment, directory, tree=tree)


def checked_name(name: object, record: Path) -> str:
    """Return the name of an experiment that a record holds, if it can name a folder.

    Raises:
        HeadToHeadError: If it cannot; the message names the record.
    """
    if isinstance(name, str) and re.fullmatch(r"[^./\\][^/\\]*", name) and name.isprintable():
        return name
    raise HeadToHeadError(
        f"{record}: name {name!r} cannot name a folder; the record is damaged or was changed by "
        "hand, move its folder away"
    )


def _link(path: Path | str) -> HeadToHeadError:
    return HeadToHeadError(f"'{path}' is a symbolic link, which may lead anywhere; put there what it points to")


def _is_link(path: Path) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(path).st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise HeadToHeadError(f"'{path}' cannot be read: {error.strerror or error}") from error


def _find_link(folder: Path | str) -> str | None:
    """Return the first symbolic link below a folder, or None."""
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HeadToHeadError(f"'{folder}' cannot be read: {error.strerror or error}") from error
    for entry in entries:
        if entry.is_symlink():
            return entry.path
        found = _find_link(entry.path) if entry.is_dir(follow_symlinks=False) else None
        if found is not None:
            return found
    return None
