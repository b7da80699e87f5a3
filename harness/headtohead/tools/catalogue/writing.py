"""Writing the catalogue, and telling whether what is written is current."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from headtohead.tools.catalogue.content import Section
from headtohead.tools.catalogue.html import as_html
from headtohead.tools.catalogue.markdown import pages

NUMBER = re.compile(r"#[0-9a-f]{6}\b|−?-?\d+(?:\.\d+)?(?:e[−-]?\d+)?")
SHADE = 12
"""Steps of 255 by which a colour may differ: one step of a scale."""


def files_of(sections: Sequence[Section]) -> Mapping[str, str]:
    """Return every file of the catalogue by its path in the folder."""
    found = dict(pages(sections))
    found["all.html"] = as_html(sections)
    for one in sections:
        found[f"pictures/{one.family}-{one.name}.svg"] = one.card
        found |= {f"pictures/{file}": svg for file, _, svg in one.pictures}
    return found


def write(folder: Path, files: Mapping[str, str]) -> None:
    """Write the catalogue; pictures of before are gone."""
    shutil.rmtree(folder / "pictures", ignore_errors=True)
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def stale(folder: Path, files: Mapping[str, str]) -> Iterator[str]:
    """Yield the files that are missing, too many or not current.

    Pages are compared letter by letter, pictures by what they show: numbers and colours may differ
    by what another machine's arithmetic changes.
    """
    for name, text in files.items():
        path = folder / name
        if not path.is_file() or not _same(path.read_text(encoding="utf-8"), text, name):
            yield name
    known = {str(folder / name) for name in files}
    yield from sorted(str(path.relative_to(folder)) for path in folder.glob("pictures/*") if str(path) not in known)


def _same(written: str, made: str, name: str) -> bool:
    if written == made:
        return True
    return name.endswith((".svg", ".html")) and same_picture(written, made)


def same_picture(written: str, made: str) -> bool:
    """Tell whether two pictures show the same, cell by cell."""
    if NUMBER.sub("0", _regrouped(written)) != NUMBER.sub("0", _regrouped(made)):
        return False
    pairs = zip(NUMBER.findall(_regrouped(written)), NUMBER.findall(_regrouped(made)), strict=True)
    return all(_close(one, other) for one, other in pairs)


def _regrouped(text: str) -> str:
    """Return a picture with each cell by itself, in order of its place, its colour behind it."""

    def each(match: re.Match[str]) -> str:
        found: list[tuple[int, int, str]] = []
        for colour, squares in re.findall(r'<path fill="(#\w+)" d="([^"]*)"/>', match[1]):
            for x, y, wide in re.findall(r"M(\d+) (\d+)h(\d+)", squares):
                found += [(int(y), int(x) + more, colour) for more in range(int(wide))]
        return "".join(f"[{y} {x} {_wide(colour)}]" for y, x, colour in sorted(found))

    return re.sub(r'<g shape-rendering="crispEdges">(.*?)</g>', each, text, flags=re.DOTALL)


def _wide(colour: str) -> str:
    return colour if len(colour) == 7 else "#" + "".join(2 * digit for digit in colour[1:])


def _close(one: str, other: str) -> bool:
    if one == other:
        return True
    if one.startswith("#") or other.startswith("#"):
        if len(one) != 7 or len(other) != 7:
            return False
        parts = ((int(one[at : at + 2], 16), int(other[at : at + 2], 16)) for at in (1, 3, 5))
        return all(abs(a - b) <= SHADE for a, b in parts)
    a, b = (float(number.replace("−", "-")) for number in (one, other))
    return abs(a - b) <= 0.02 * max(1.0, abs(a), abs(b))
