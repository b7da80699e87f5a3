"""The content of the catalogue: texts, pictures and costs of every registered entry."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from catalogue.attention_pictures import attention_pictures
from catalogue.compatibility import CompatibilityTable
from catalogue.costs import describe_costs
from catalogue.docstrings import EntryDocstring, parse_docstring
from catalogue.masking_pictures import masking_pictures
from catalogue.pictures import Picture, PictureNote
from catalogue.positional_pictures import positional_pictures
from catalogue.properties import describe_properties
from catalogue.small_model import IN_ROLE, ROLE_NAMES, build_positional, small_config
from headtohead.config.builder import resolve
from headtohead.config.reference import option_rows
from headtohead.model.geometry import find_geometry
from headtohead.plugins.attention import Attention
from headtohead.plugins.component import BuildContext, Component
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.families import FAMILIES
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import Positional
from headtohead.plugins.registry import Registered
from headtohead_notebooks.trace.html import formula_html

PICTURES: dict[str, Callable[[str], Sequence[Picture | PictureNote]]] = {
    "positional": positional_pictures,
    "attention": attention_pictures,
    "masking": masking_pictures,
}
"""Functions that draw the entries of a family, by their names."""
FILE_OPTIONS = ("file", "url")
"""Options of a dataset that reads its pairs from outside the package."""
EXAMPLE_PAIRS = 3


@dataclass(frozen=True)
class CatalogueEntry:
    """One registered entry as a page shows it.

    Attributes:
        family: Family of the entry.
        name: Name of the entry.
        summary: First line of its docstring, Markdown.
        docstring: Parts of its module docstring, Markdown.
        formula: Formula as HTML, or empty.
        usage: YAML that selects the entry with its default options.
        facts: Pairs of a label and a value.
        properties: Declared properties, a sentence each.
        incompatible: A sentence for each setting that a plan excludes.
        options: Name, type, default and meaning of each option.
        pictures: Pictures by file name.
        notes: Sentences in place of pictures.
        pairs: Split, part, source and target of a dataset's first pairs.
        shows_initial_parameters: Whether pictures show parameters at initialisation.
    """

    family: str
    name: str
    summary: str
    docstring: EntryDocstring
    formula: str
    usage: str
    facts: Sequence[tuple[str, str]]
    properties: Sequence[str]
    incompatible: Sequence[str]
    options: Sequence[tuple[str, str, str, str]]
    pictures: dict[str, Picture]
    notes: Sequence[str]
    pairs: Sequence[tuple[str, str, str, str]]
    shows_initial_parameters: bool

    @property
    def thumbnail(self) -> str | None:
        """File name of the picture on the index page: the first one, or the decoder's mask."""
        if self.family == "masking":
            for file, picture in self.pictures.items():
                if picture.title.startswith("decoder"):
                    return file
        return next(iter(self.pictures), None)


def catalogue_entries(entries: Sequence[Registered]) -> list[CatalogueEntry]:
    """Return the content of each entry of the families in the catalogue."""
    table = CompatibilityTable(entries)
    return [_entry(entry, table) for entry in entries if FAMILIES[entry.family].in_catalogue]


def _entry(registered: Registered, table: CompatibilityTable) -> CatalogueEntry:
    family, name, entry = registered.family, registered.name, registered.entry
    pictures, notes = _pictures(registered)
    roles = [] if family == "dataset" else table.roles((family, name))
    costs = describe_costs(entry, roles[0]) if issubclass(entry, Component) and roles else {}
    return CatalogueEntry(
        family,
        name,
        entry.summary().replace("``", "`"),
        parse_docstring(entry),
        formula_html(_formula(registered)),
        _usage(registered),
        list(_facts(registered, roles, costs)),
        list(describe_properties(entry)),
        [] if family == "dataset" else list(table.describe((family, name))),
        list(option_rows(registered.entry.Options)),
        {f"{family}-{name}-{number}.png": picture for number, picture in enumerate(pictures, 1)},
        [f"{note.title}: {note.text}" for note in notes],
        list(_example_pairs(entry)) if issubclass(entry, Dataset) else [],
        family == "attention" or (family == "positional" and costs.get("parameters", "0") != "0"),
    )


def _pictures(registered: Registered) -> tuple[list[Picture], list[PictureNote]]:
    """Return the pictures of an entry, and notes for roles without pictures."""
    draw = PICTURES.get(registered.family)
    items = draw(registered.name) if draw else ()
    pictures = [item for item in items if not isinstance(item, PictureNote)]
    return pictures, [item for item in items if isinstance(item, PictureNote)]


def _formula(registered: Registered) -> str:
    """Return the formula of an entry; an attention style without one has the standard formula."""
    entry = registered.entry
    if issubclass(entry, Positional):
        return build_positional(entry, "decoder").formula()
    if issubclass(entry, Attention):
        geometry = find_geometry(resolve(small_config()), "decoder")
        context = BuildContext("decoder", 1, 32, geometry, [None], layer=0)
        return entry(entry.Options(), context).formula() or "softmax(Q K^T · scale) V"
    return ""


def _facts(
    registered: Registered, roles: Sequence[str], costs: dict[str, str]
) -> Iterator[tuple[str, str]]:
    entry = registered.entry
    if issubclass(entry, Dataset):
        yield "splits", ", ".join(f"`{split}`" for split in entry.splits)
        yield "normalised", f"`{entry.normalise}`"
        return
    yield "roles", ", ".join(ROLE_NAMES[role] for role in roles)
    defaults = [f"`{name}` {IN_ROLE[role]}" for role, name in entry.role_defaults.items()]
    if defaults:
        yield "the bare name selects", " and ".join(defaults)
    if issubclass(entry, Masking):
        yield "parameters", "0"
    elif costs:
        is_attention = issubclass(entry, Attention)
        yield (
            f"parameters, {'one attention' if is_attention else 'one role, all its layers'}",
            costs["parameters"],
        )
        if costs["biases"] != "0":
            yield "biases", f"+ {costs['biases']}"
        yield (
            f"FLOPs over n tokens{'' if is_attention else ' added to one attention'}",
            costs["flops"],
        )


def _usage(registered: Registered) -> str:
    """Return the YAML that selects an entry with its default options."""
    if registered.family == "dataset":
        return f"data: {{dataset: {registered.name}}}"
    defaults = [
        f"{name}: {json.dumps(info.get_default(call_default_factory=True), default=str)}"
        for name, info in registered.entry.Options.model_fields.items()
        if not info.is_required() and info.default is not None
    ]
    name = f"{{name: {registered.name}, {', '.join(defaults)}}}" if defaults else registered.name
    return f"{registered.family}: {name}"


def _example_pairs(dataset: type[Dataset]) -> Iterator[tuple[str, str, str, str]]:
    """Yield split, part, source and target of the first pairs; nothing for pairs from a file."""
    if set(FILE_OPTIONS) & set(dataset.Options.model_fields):
        return
    for split in dataset.splits:
        with TemporaryDirectory() as cache:
            corpus = dataset.load(dataset.Options(), split, Path(cache))
        parts = {pair.split for pair in corpus.pairs}
        for part in sorted(parts, key=lambda name: ("train", "valid", "test", None).index(name)):
            for pair in [pair for pair in corpus.pairs if pair.split == part][:EXAMPLE_PAIRS]:
                yield split, part or "random", pair.source, pair.target
