"""Ownership of files: headtohead overwrites and deletes only what it wrote.

A folder of a user, such as a report's, has a manifest: the names of the files that headtohead wrote into it, and the
sha256 of every content that it wrote. A file of another content is the user's, whoever created it. In folders that are
headtohead's alone, such as the cache, the manifest has names without a sha256, and a file of any content is owned.
Symbolic links are neither followed nor deleted.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from headtohead import files
from headtohead.errors import HeadToHeadError

MANIFEST = ".headtohead.jsonl"
"""The manifest: a line ``{"file": PATH, "sha256": HASH}`` per content, with the path relative to its folder.

A content is listed before it is written. A process that is killed, or that writes the same file as another one, thus
leaves a file with a listed content.
"""

ANY_CONTENT = "any"
"""In place of a sha256: the file is owned whatever its content."""


def claim(folder: Path, names: Iterable[str]) -> None:
    """List files whose content does not matter in the manifest of a folder; call it before they are written."""
    _list(folder, dict.fromkeys(names, ANY_CONTENT))


def adopt(folder: Path, names: Iterable[str]) -> None:
    """List the present content of existing files in the manifest of a folder."""
    contents: dict[str, str] = {}
    for name in names:
        path = folder / name
        if path.is_file():
            contents[name] = files.sha256(path)
    _list(folder, contents)


def write(folder: Path, contents: Mapping[str, bytes], advice: str) -> None:
    """Write files, in this order, into a folder of a user and list them in its manifest.

    Raises:
        HeadToHeadError: If one of them exists with a content that headtohead did not write; then nothing is written.
            The message ends with ``advice``.
    """
    refuse_foreign(folder, contents, advice)
    hashes = {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}
    _list(folder, hashes)
    for name, content in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        files.replace(path, lambda temporary, content=content: temporary.write_bytes(content))


def names_in_manifest(folder: Path) -> set[str]:
    """Return the names of the files in a folder's manifest; damaged lines are ignored."""
    return set(_listed(folder))


def foreign(folder: Path, names: Iterable[str]) -> list[str]:
    """Return those of the names that exist in a folder with a content that its manifest does not list."""
    listed = _listed(folder)
    not_owned = []
    for name in sorted(set(names)):
        if not _is_owned(folder / name, listed.get(name, set())):
            not_owned.append(name)
    return not_owned


def refuse_foreign(folder: Path, names: Iterable[str], advice: str) -> None:
    """Raise a `HeadToHeadError` that ends with ``advice`` if one of the names is `foreign`."""
    files_of_others = foreign(folder, names)
    if not files_of_others:
        return
    name = files_of_others[0]
    reason = "was not written by headtohead"
    if name in names_in_manifest(folder):
        reason = "was changed after headtohead wrote it"
    raise HeadToHeadError(f"'{folder / name}' {reason}; {advice}")


def remove(folder: Path, names: Collection[str]) -> None:
    """Delete files that the manifest of a folder lists, and remove them from it; files with other contents stay."""
    listed = _listed(folder)
    removed = listed.keys() & set(names)
    if not removed:
        return
    kept = set(foreign(folder, removed))
    delete(folder, [folder / name for name in removed - kept])
    lines = []
    for name in sorted(listed.keys() - removed):
        for content in sorted(listed[name]):
            lines.append(json.dumps(_line(name, content)) + "\n")
    if lines:
        files.write_text(folder / MANIFEST, "".join(lines))
    else:
        delete(folder, [folder / MANIFEST])


def delete(folder: Path, paths: Iterable[Path]) -> None:
    """Delete regular files below a folder in this order, and the folders that this leaves empty.

    Paths outside of the folder, or with a symbolic link below it, are ignored.
    """
    for path in paths:
        relative = os.path.relpath(path, folder)
        if relative.startswith(os.pardir) or not path.is_file():
            continue
        parents = [folder / part for part in Path(relative).parents]
        if any(part.is_symlink() for part in (path, *parents)):
            continue
        path.unlink()
        with suppress(OSError):  # not empty
            for parent in parents:
                parent.rmdir()


def _list(folder: Path, contents: Mapping[str, str]) -> None:
    """Add contents by name to the manifest of a folder, except those that it lists."""
    folder.mkdir(parents=True, exist_ok=True)
    listed = _listed(folder)
    new = []
    for name, content in contents.items():
        if content not in listed.get(name, set()):
            new.append(_line(name, content))
    if new:
        files.append_lines(folder / MANIFEST, new)


def _listed(folder: Path) -> dict[str, set[str]]:
    """Return the listed contents of each file: their sha256, or `ANY_CONTENT`."""
    try:
        lines = files.read_text(folder / MANIFEST).splitlines()
    except FileNotFoundError:
        return {}
    contents: dict[str, set[str]] = {}
    for line in lines:
        with suppress(ValueError, KeyError, TypeError, AttributeError):
            record: dict[str, Any] = json.loads(line)
            name = str(record["file"])
            content = str(record.get("sha256", ANY_CONTENT))
            contents.setdefault(name, set()).add(content)
    return contents


def _line(name: str, content: str) -> Mapping[str, Any]:
    if content == ANY_CONTENT:
        return {"file": name}
    return {"file": name, "sha256": content}


def _is_owned(path: Path, contents: set[str]) -> bool:
    """Return whether a path is free, or a file with one of these contents."""
    if not os.path.lexists(path) or ANY_CONTENT in contents:
        return True
    return bool(contents) and path.is_file() and files.sha256(path) in contents
