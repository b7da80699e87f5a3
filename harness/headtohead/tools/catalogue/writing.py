"""Write the catalogue, or list the files of a written catalogue that are not current."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headtohead.tools.catalogue.content import Section
from headtohead.tools.catalogue.markdown import pages
from headtohead.tools.catalogue.pictures import Picture, numbers_of, png, same_numbers, stored_numbers

Files = Mapping[str, str | Picture]
"""Pages and pictures of a catalogue by path."""


def files_of(sections: Sequence[Section]) -> Files:
    """Return every file of the catalogue by its path in the folder."""
    pictures = {f"pictures/{file}": picture for one in sections for file, picture in one.pictures.items()}
    return {**pages(sections), **pictures}


def write(folder: Path, files: Files) -> None:
    """Write the catalogue and remove earlier pictures."""
    shutil.rmtree(folder / "pictures", ignore_errors=True)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else png(content))


def stale(folder: Path, files: Files) -> Iterator[str]:
    """Yield the files that are missing, superfluous or not current.

    Pages are compared as text, pictures by the numbers stored in them.
    """
    for name, content in files.items():
        path = folder / name
        if not path.is_file() or not _current(path, content):
            yield name
    yield from sorted(
        str(path.relative_to(folder)) for path in folder.glob("pictures/*") if f"pictures/{path.name}" not in files
    )


def _current(path: Path, content: str | Picture) -> bool:
    if isinstance(content, str):
        return path.read_text(encoding="utf-8") == content
    return same_numbers(stored_numbers(path), numbers_of(content))
