"""The files of the catalogue: Markdown pages and pictures"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from catalogue.content import CatalogueEntry
from catalogue.kernels import kernels_page
from catalogue.pictures import Picture, numbers_of, png, same_numbers, stored_numbers
from headtohead.ownership import claim, names_in_manifest, remove
from headtohead.plugins.families import FAMILIES
from headtohead.report.render import environment, tidy_markdown

Files = Mapping[str, str | Picture]
"""Pages and pictures of a catalogue by path."""

TITLES = {
    name: family.plural.capitalize() for name, family in FAMILIES.items() if family.in_catalogue
}
ARXIV = re.compile(r"arXiv:(\d{4}\.\d{4,5})")


def catalogue_files(entries: Sequence[CatalogueEntry]) -> Files:
    """Return every file of the catalogue by its path in the folder."""
    templates = environment("catalogue")
    templates.filters |= {"prose": _prose, "cell": _cell, "linked": _linked}
    families = {family: [entry for entry in entries if entry.family == family] for family in TITLES}
    families = {family: members for family, members in families.items() if members}
    files: dict[str, str | Picture] = {
        "index.md": templates.get_template("index.md.j2").render(families=families, titles=TITLES)
    }
    for family, members in families.items():
        page = templates.get_template("family.md.j2").render(
            family=family, title=TITLES[family], entries=members
        )
        files[f"{family}.md"] = tidy_markdown(page)
    names = {
        family: sorted(entry.name for entry in members) for family, members in families.items()
    }
    files["kernels.md"] = kernels_page(names.get("attention", ()), names.get("positional", ()))
    for entry in entries:
        files |= {f"pictures/{file}": picture for file, picture in entry.pictures.items()}
    return files


def write_files(folder: Path, files: Files) -> None:
    """Write what is missing or not current, and remove the files of an earlier catalogue.

    Pictures are compared by the numbers stored in them, since another machine draws other bytes.
    """
    remove(folder, names_in_manifest(folder).difference(files))
    claim(folder, files)
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            path.write_text(content, encoding="utf-8")
        elif not (path.is_file() and same_numbers(stored_numbers(path), numbers_of(content))):
            path.write_bytes(png(content))


def _prose(text: str) -> str:
    """Escape ``<`` outside of code."""
    return re.sub(r"`[^`]*`|<", lambda match: "&lt;" if match[0] == "<" else match[0], text)


def _cell(text: str) -> str:
    return _prose(text).replace("|", "\\|")


def _linked(text: str) -> str:
    """Return a text with each arXiv number as a link."""
    return ARXIV.sub(r"[arXiv:\1](https://arxiv.org/abs/\1)", text)
