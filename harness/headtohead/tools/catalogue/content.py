"""The content of the catalogue: one section per registered entry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from headtohead.config.reference import type_words
from headtohead.config.resolve import resolve
from headtohead.model.geometry import find_geometry
from headtohead.plugins.attention import Attention
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import BuildContext, Component, Positional
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.attention_pictures import attention_pictures
from headtohead.tools.catalogue.combinations import Combinations
from headtohead.tools.catalogue.costs import describe_costs
from headtohead.tools.catalogue.docstrings import About, about
from headtohead.tools.catalogue.masking_pictures import masking_pictures
from headtohead.tools.catalogue.pictures import Note, Picture
from headtohead.tools.catalogue.positional_pictures import positional_pictures
from headtohead.tools.catalogue.properties import properties
from headtohead.tools.catalogue.small import ROLE_NAMES, THE_ROLE, build_positional, raw
from headtohead.tools.trace.html import formula_html

FAMILIES = ("positional", "attention", "masking", "dataset")
FILE_OPTIONS = ("file", "url")
"""Options of a dataset that reads its pairs from outside the package."""
PAIRS = 3


@dataclass(frozen=True)
class Section:
    """One entry as a page shows it; texts are Markdown, ``formula`` is HTML.

    ``pictures`` maps file names to pictures. ``incompatible`` has one sentence per setting that a
    plan excludes. ``pairs`` are split, part, source and target of a dataset's first pairs.
    ``untrained`` marks pictures that show initial parameters.
    """

    family: str
    name: str
    summary: str
    about: About
    formula: str
    usage: str
    facts: Sequence[tuple[str, str]]
    properties: Sequence[str]
    incompatible: Sequence[str]
    options: Sequence[tuple[str, str, str, str]]
    pictures: dict[str, Picture]
    notes: Sequence[str]
    pairs: Sequence[tuple[str, str, str, str]]
    untrained: bool

    @property
    def thumbnail(self) -> str | None:
        """File name of the picture that stands for the entry: of masks, the decoder's."""
        names = list(self.pictures)
        decoder = [name for name in names if self.pictures[name].title.startswith("decoder")]
        return next(iter((decoder if self.family == "masking" else []) + names), None)


def sections(registry: Registry, entries: Sequence[Registered]) -> list[Section]:
    """Return a section for each entry of the families in `FAMILIES`.

    Raises:
        HeadToHeadError: If a stated cost formula differs from the counts.
    """
    combinations = Combinations(registry, entries)
    return [_section(one, registry, combinations) for one in entries if one.family in FAMILIES]


def _section(one: Registered, registry: Registry, combinations: Combinations) -> Section:
    pictures, notes = _pictures(one, registry)
    roles = combinations.where((one.family, one.name)) if one.family != "dataset" else []
    costs = describe_costs(one.entry, roles[0]) if issubclass(one.entry, Component) and roles else {}
    return Section(
        one.family,
        one.name,
        one.entry.summary().replace("``", "`"),
        about(one.entry),
        formula_html(_formula(one, registry)),
        _usage(one),
        list(_facts(one, roles, costs)),
        properties(one.entry),
        list(_incompatible(one, combinations)),
        list(_options(one)),
        {f"{one.family}-{one.name}-{at}.png": picture for at, picture in enumerate(pictures, 1)},
        notes,
        list(_pairs(cast("type[Dataset]", one.entry))) if one.family == "dataset" else [],
        one.family == "attention" or (one.family == "positional" and costs.get("parameters", "0") != "0"),
    )


def _pictures(one: Registered, registry: Registry) -> tuple[list[Picture], list[str]]:
    """Return the pictures of an entry, and what its roles without pictures do instead."""
    made: Sequence[Picture | Note] = []
    if one.family == "positional":
        made = positional_pictures(one.name, registry)
    elif one.family == "attention":
        made = attention_pictures(one.name, registry)
    elif one.family == "masking":
        made = masking_pictures(one.name, registry)
    # Exclusions are listed in a section of their own.
    notes = [note for note in made if isinstance(note, Note) and not note.words.startswith("Not defined")]
    return [picture for picture in made if not isinstance(picture, Note)], [f"{n.title}: {n.words}" for n in notes]


def _formula(one: Registered, registry: Registry) -> str:
    """Return the formula of an entry; an attention without its own has the standard formula."""
    if issubclass(one.entry, Positional):
        return build_positional(one.entry, "decoder", registry).formula()
    if issubclass(one.entry, Attention):
        config = resolve(raw(), registry)
        context = BuildContext("decoder", 1, 32, find_geometry(config, "decoder"), [None], layer=0)
        return one.entry(one.entry.Options(), context).formula() or "softmax(Q K^T · scale) V"
    return ""


def _facts(one: Registered, roles: Sequence[str], costs: dict[str, str]) -> Iterator[tuple[str, str]]:
    if issubclass(one.entry, Dataset):
        yield "splits", ", ".join(f"`{split}`" for split in one.entry.splits)
        yield "normalised", f"`{one.entry.normalise}`"
        return
    yield "roles", ", ".join(ROLE_NAMES[role] for role in roles)
    defaults = [f"`{name}` in {THE_ROLE[role]}" for role, name in one.entry.role_defaults.items()]
    if defaults:
        yield "the name alone selects", " and ".join(defaults)
    if issubclass(one.entry, Masking):
        yield "parameters", "0"
    elif costs:
        attention = one.family == "attention"
        yield f"parameters, {'one attention' if attention else 'one role, all its layers'}", costs["parameters"]
        if costs["biases"] != "0":
            yield "biases", f"+ {costs['biases']}"
        yield f"FLOPs over n tokens{'' if attention else ' added to one attention'}", costs["flops"]


def _incompatible(one: Registered, combinations: Combinations) -> Iterator[str]:
    if one.family == "dataset":
        return
    entry = (one.family, one.name)
    for role in ROLES:
        reason = combinations.alone(entry, role)
        if reason is not None:
            yield f"{ROLE_NAMES[role]}: {reason}"
    yield from combinations.not_with(entry)
    yield from combinations.sizes_refused(entry)


def _options(one: Registered) -> Iterator[tuple[str, str, str, str]]:
    for name, info in one.entry.Options.model_fields.items():
        value = info.get_default(call_default_factory=True)
        default = "required" if info.is_required() else json.dumps(value, default=str)
        yield name, type_words(info), default, info.description or ""


def _usage(one: Registered) -> str:
    """Return the YAML that selects an entry with its default options."""
    if one.family == "dataset":
        return f"data: {{dataset: {one.name}}}"
    defaults = [
        f"{name}: {json.dumps(info.get_default(call_default_factory=True), default=str)}"
        for name, info in one.entry.Options.model_fields.items()
        if not info.is_required() and info.default is not None
    ]
    return f"{one.family}: " + (f"{{name: {one.name}, {', '.join(defaults)}}}" if defaults else one.name)


def _pairs(dataset: type[Dataset]) -> Iterator[tuple[str, str, str, str]]:
    """Yield split, part, source and target of the first pairs; nothing for pairs from a file."""
    if set(FILE_OPTIONS) & set(dataset.Options.model_fields):
        return
    for split in dataset.splits:
        with TemporaryDirectory() as cache:
            corpus = dataset.load(dataset.Options(), split, Path(cache))
        parts = {pair.split for pair in corpus.pairs}
        for part in sorted(parts, key=lambda name: ("train", "valid", "test", None).index(name)):
            for pair in [pair for pair in corpus.pairs if pair.split == part][:PAIRS]:
                yield split, part or "random", pair.source, pair.target
