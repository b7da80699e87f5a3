"""Deletion by ownership: only files that headtohead wrote are deleted.

Folders of a user, such as a report's, have a manifest of the files that headtohead wrote into them. Symbolic links are
neither followed nor deleted.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from headtohead import files

MANIFEST = ".headtohead.jsonl"
"""The manifest: a line ``{"file": PATH}`` per file, relative to its folder."""


def claim(folder: Path, names: Iterable[str]) -> None:
    """Add names to the manifest of a folder; call it before the files are written."""
    folder.mkdir(parents=True, exist_ok=True)
    new = sorted(set(names) - owned(folder))
    if new:
        files.append_lines(folder / MANIFEST, [{"file": name} for name in new])


def owned(folder: Path) -> set[str]:
    """Return the names of the files in a folder's manifest; damaged lines are ignored."""
    try:
        lines = files.read_text(folder / MANIFEST).splitlines()
    except FileNotFoundError:
        return set()
    names = set()
    for line in lines:
        with suppress(ValueError, KeyError, TypeError):
            names.add(str(json.loads(line)["file"]))
    return names


def foreign(folder: Path, names: Iterable[str]) -> list[str]:
    """Return those of the names that exist in a folder, but not in its manifest."""
    return sorted(name for name in set(names) - owned(folder) if os.path.lexists(folder / name))


def remove(folder: Path, names: Collection[str]) -> None:
    """Delete files that the manifest of a folder lists, and remove them from the manifest."""
    listed = owned(folder)
    delete(folder, [folder / name for name in listed.intersection(names)])
    left = sorted(listed.difference(names))
    if left:
        files.write_text(folder / MANIFEST, "".join(json.dumps({"file": name}) + "\n" for name in left))
    else:
        delete(folder, [folder / MANIFEST])


def delete(folder: Path, paths: Iterable[Path]) -> None:
    """Delete regular files below a folder in this order, and the folders that this leaves empty.

    Paths outside of the folder, or with a symbolic link below it, are ignored.
    """
    for path in paths:
        relative = os.path.relpath(path, folder)
        parents = [folder / part for part in Path(relative).parents]
        if relative.startswith(os.pardir) or not path.is_file() or any(map(Path.is_symlink, (path, *parents))):
            continue
        path.unlink()
        with suppress(OSError):  # not empty
            for parent in parents:
                parent.rmdir()
