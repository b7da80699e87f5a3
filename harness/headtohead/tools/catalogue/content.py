"""Everything that a page says about one entry, asked of the registry."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import cast

from headtohead.config.reference import type_words
from headtohead.config.resolve import resolve
from headtohead.model.geometry import find_geometry
from headtohead.plugins.attention import Attention
from headtohead.plugins.dataset import Dataset
from headtohead.plugins.masking import Masking
from headtohead.plugins.positional import BuildContext, Positional
from headtohead.plugins.registry import Registered, Registry
from headtohead.schema.roles import ROLES
from headtohead.tools.catalogue.attention_pictures import attention_panels
from headtohead.tools.catalogue.combinations import Combinations
from headtohead.tools.catalogue.costs import Costs, attention_costs, positional_costs
from headtohead.tools.catalogue.docstrings import About, about
from headtohead.tools.catalogue.forms import Form
from headtohead.tools.catalogue.masking_pictures import masking_panels
from headtohead.tools.catalogue.panels import Heads, Heat, Panel, Words, card
from headtohead.tools.catalogue.positional_pictures import positional_panels
from headtohead.tools.catalogue.promises import promises
from headtohead.tools.catalogue.small import ROLE_WORDS, THE_ROLE, build_positional, raw
from headtohead.tools.catalogue.svg import wrapped
from headtohead.tools.trace.html import formula_html

FAMILIES = ("positional", "attention", "masking", "dataset")
BROUGHT = ("file", "url")
"""Options of a dataset whose pairs are not made by the program."""
PAIRS = 3
LETTERS = 36
"""About as many stand on the card of a dataset."""


@dataclass(frozen=True)
class Section:
    """One entry as a page shows it; texts are Markdown, ``formula`` is HTML.

    ``pictures`` are a file's name, a sentence for those who cannot see it, and the SVG.
    """

    family: str
    name: str
    summary: str
    said: About
    formula: str
    use: str
    facts: Sequence[tuple[str, str]]
    promises: Sequence[str]
    refused: Sequence[str]
    options: Sequence[tuple[str, str, str, str]]
    pictures: Sequence[tuple[str, str, str]]
    card: str
    pairs: Sequence[tuple[str, str, str, str]] = field(default=())
    untrained: bool = False


def sections(registry: Registry, entries: Sequence[Registered]) -> list[Section]:
    """Return a section for each entry of the families that are shown."""
    asked = Combinations(registry, entries)
    return [_section(one, registry, asked) for one in entries if one.family in FAMILIES]


def _section(one: Registered, registry: Registry, asked: Combinations) -> Section:
    panels = _panels(one, registry)
    costs = _costs(one, asked)
    pairs = list(_pairs(cast("type[Dataset]", one.entry))) if one.family == "dataset" else []
    weights = costs is not None and str(costs.parameters) != "0" and one.family == "positional"
    return Section(
        one.family,
        one.name,
        one.entry.summary().replace("``", "`"),
        about(one.entry),
        formula_html(_formula(one, registry)),
        _use(one),
        list(_facts(one, costs, asked)),
        promises(one.entry),
        list(_refused(one, asked)),
        list(_options(one)),
        [
            (f"{one.family}-{one.name}-{number}.svg", panel.title, panel.draw())
            for number, panel in enumerate(panels, 1)
        ],
        _card(one.name, panels, pairs),
        pairs,
        weights or one.family == "attention",
    )


def _panels(one: Registered, registry: Registry) -> list[Panel]:
    if one.family == "positional":
        return positional_panels(one.name, registry)
    if one.family == "attention":
        return attention_panels(one.name, registry)
    return masking_panels(one.name, registry) if one.family == "masking" else []


def _formula(one: Registered, registry: Registry) -> str:
    """Return the entry's own formula; an attention that has none is the plain one."""
    if issubclass(one.entry, Positional):
        return build_positional(one.entry, "decoder", registry).formula()
    if issubclass(one.entry, Attention):
        config = resolve(raw(), registry)
        context = BuildContext("decoder", 1, 32, find_geometry(config, "decoder"), [None], layer=0)
        return one.entry(one.entry.Options(), context).formula() or "softmax(Q K^T · scale) V"
    return ""


def _costs(one: Registered, asked: Combinations) -> Costs | None:
    role = next(iter(_own_roles(one, asked)), None)
    if role is None:
        return None
    if issubclass(one.entry, Attention):
        return attention_costs(one.entry, role)
    return positional_costs(one.entry, role) if issubclass(one.entry, Positional) else None


def _own_roles(one: Registered, asked: Combinations) -> list[str]:
    if one.family not in ("positional", "attention", "masking"):
        return []
    return asked.where((one.family, one.name))


def _facts(one: Registered, costs: Costs | None, asked: Combinations) -> Iterator[tuple[str, str]]:
    if one.family == "dataset":
        dataset = cast("type[Dataset]", one.entry)
        yield "splits", ", ".join(f"`{split}`" for split in dataset.splits)
        yield "normalised", f"`{dataset.normalise}`"
        return
    roles = _own_roles(one, asked)
    yield "roles", ", ".join(ROLE_WORDS[role] for role in roles)
    bare = [f"`{name}` in {THE_ROLE[role]}" for role, name in one.entry.bare.items()]
    if bare:
        yield "a bare name means", " and ".join(bare)
    if issubclass(one.entry, Masking):
        yield "parameters", "0"
    elif costs is not None:
        each = "one attention" if one.family == "attention" else "one role, all its layers"
        yield f"parameters, {each}", _shown(costs.parameters)
        if costs.biases is not None and costs.biases.terms:
            yield "with biases", f"+ {costs.biases}"
        more = "" if one.family == "attention" else " added to one attention"
        yield f"operations over n tokens{more}", _shown(costs.operations)


def _shown(form: Form | None) -> str:
    return "no polynomial" if form is None else str(form)


def _refused(one: Registered, asked: Combinations) -> Iterator[str]:
    if one.family == "dataset":
        return
    pick = (one.family, one.name)
    for role in ROLES:
        reason = asked.alone(pick, role)
        if reason is not None:
            yield f"{ROLE_WORDS[role]}: {reason}"
    yield from asked.not_with(pick)
    yield from asked.sizes_refused(pick)


def _options(one: Registered) -> Iterator[tuple[str, str, str, str]]:
    for name, info in one.entry.Options.model_fields.items():
        value = info.get_default(call_default_factory=True)
        default = "required" if info.is_required() else json.dumps(value, default=str)
        yield name, type_words(info), default, info.description or ""


def _use(one: Registered) -> str:
    if one.family == "dataset":
        return f"data: {{dataset: {one.name}}}"
    options = one.entry.Options.model_fields
    given = [
        f"{name}: {json.dumps(info.get_default(call_default_factory=True), default=str)}"
        for name, info in options.items()
        if not info.is_required() and info.default is not None
    ]
    if not given:
        return f"{one.family}: {one.name}"
    return f"{one.family}: {{name: {one.name}, {', '.join(given)}}}"


def _pairs(dataset: type[Dataset]) -> Iterator[tuple[str, str, str, str]]:
    """Yield split, part, source and target of a few pairs; none where a file has to be brought."""
    if set(BROUGHT) & set(dataset.Options.model_fields):
        return
    for split in dataset.splits:
        with TemporaryDirectory() as cache:
            corpus = dataset.load(dataset.Options(), split, Path(cache))
        named = {pair.split for pair in corpus.pairs}
        for part in sorted(named, key=lambda name: ("train", "valid", "test", None).index(name)):
            chosen = [pair for pair in corpus.pairs if pair.split == part][:PAIRS]
            for pair in chosen:
                yield split, part or "drawn", pair.source, pair.target


def _card(name: str, panels: Sequence[Panel], pairs: Sequence[tuple[str, str, str, str]]) -> str:
    heats = [panel for panel in panels if isinstance(panel, Heat)]
    heads = next((panel for panel in panels if isinstance(panel, Heads)), None)
    if heads is not None:
        return _heads_card(name, heads, heats)
    if heats:
        square = [one for one in heats if len(one.rows) == len(one.columns)] or heats
        # Of masks the decoder's says most; what encodings add is whole only in the encoder.
        masks = [one for one in square if one.signs and one.title.startswith("decoder")]
        best = (masks or square)[0]
        return card(name, best.thumbnail(), _caption(best))
    if pairs:
        fitting = min(pairs, key=lambda pair: abs(len(pair[2] + pair[3]) - LETTERS))
        first, y = wrapped(12, 58, fitting[2][:90], 21, size=11)
        second, _ = wrapped(12, y + 16, fitting[3][:90], 21, size=11, colour="#0072b2")
        return card(name, first + second, "source, target")
    words = next((panel.words for panel in panels if isinstance(panel, Words)), "your own file")
    shown, _ = wrapped(14, 70, words.split(":")[0], 20, size=10, colour="#667080")
    return card(name, shown, "")


def _heads_card(name: str, heads: Heads, heats: Sequence[Heat]) -> str:
    chosen = next((one for one in heats if one.title.startswith("decoder")), None)
    chosen = chosen or next(iter(heats), None)
    inside = heads.thumbnail()
    if chosen is not None:
        inside += chosen.four(75, 90)
    return card(name, inside, "heads, decoder weights")


def _caption(heat: Heat) -> str:
    role, _, what = heat.title.partition(": ")
    first = role.split(",")[0]
    return f"{first}: {what}" if what else first
