"""What people call the axes of a design, their values, and the changes between two values.

Phrases are made when an experiment is planned, and its record has them, so that reading it needs no plugin.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from string import Formatter
from typing import Any

from pydantic.fields import FieldInfo

from headtohead.config.builder import SECTION_ENTRIES, is_dataset_option
from headtohead.config.clauses import (
    WITH,
    WITHOUT,
    as_noun,
    has_preposition,
    with_brackets,
    with_preposition,
)
from headtohead.config.labels import Scalar, joined, single_entry, text, value_at
from headtohead.plugins.entry import Entry
from headtohead.plugins.families import COMPONENTS, FAMILIES
from headtohead.plugins.registry import find_entry
from headtohead.schema.phrases import OPTIONAL_PART, Phrase, filled, slots, spoken, without_slots
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import QUIRKS, SECTIONS, EntryConfig, RunConfig
from headtohead.schema.sections import is_path

IN_ROLE = "{phrase} in {role}"
ROLE_PLACES = {"encoder": "the encoder", "decoder": "the decoder", "cross": "cross-attention"}
IN_TURN = "{phrases} in turn"

MATCHES = {
    "none": "with sizes as configured",
    "parameters": "with equal parameters",
    "flops": "with equal FLOPs",
    "baseline-parameters": "with the parameters of the baseline",
    "baseline-flops": "with the FLOPs of the baseline",
}
"""Phrases of the values of the axis ``match``."""


def field_phrase(name: str, info: FieldInfo, value: Any) -> str:
    """Return the phrase of a value of a field: by its mark, else ``with NAME``, ``without NAME`` or ``NAME VALUE``."""
    mark = mark_of(info)
    if mark is None:
        if isinstance(value, bool):
            return f"{WITH if value else WITHOUT}{spoken(name)}"
        return f"{spoken(name)} {spoken(value)}"
    written = text(value) if isinstance(value, Scalar) else ""
    return mark.named.get(written) or filled(mark.template, {"value": value})


def mark_of(info: FieldInfo) -> Phrase | None:
    """Return the `Phrase` of a field, or None."""
    for mark in info.metadata:
        if isinstance(mark, Phrase):
            return mark
    return None


def entry_phrase(family: str, chosen: EntryConfig) -> str:
    """Return what people call an entry with its options; entries of successive layers are joined.

    Raises:
        HeadToHeadError: If an entry is not registered.
    """
    phrases = [named_phrase(family, layer.name, dict(layer.options)) for layer in chosen.pattern]
    if len(phrases) == 1:
        return phrases[0]
    return IN_TURN.format(phrases=joined([with_brackets(as_noun(phrase)) for phrase in phrases]))


def named_phrase(family: str, name: str, options: Mapping[str, Any]) -> str:
    """Return the phrase of an entry: its template, then every other option that differs from its default.

    A bracketed part of the template is left out if its options have their defaults. Files and folders have no phrase,
    unless the template has them.

    Args:
        family: The family.
        name: The entry.
        options: Values of options; the others have their defaults. Names that the entry lacks are ignored.

    Raises:
        HeadToHeadError: If the entry is not registered.
    """
    entry = find_entry(family, name).entry
    template = template_of(entry, name)
    changed = []
    for option, default in _defaults(entry).items():
        if options.get(option, default) != default:
            changed.append(option)
    phrase = _filled_template(entry, template, options, changed)
    for option in changed:
        info = entry.Options.model_fields[option]
        if option not in slots(template) and not is_path(info):
            addition = field_phrase(option, info, options[option])
            phrase = with_addition(phrase, with_preposition(addition))
    return phrase


def option_phrase(family: str, name: str, option: str, value: Any) -> str:
    """Return the phrase of a value of an option, also of its default: the first of these.

    - that of the option's field, if the entry's template does not have the option
    - the bracketed part of the template with the option, if that starts with ``with``, ``without`` or a slot
    - the whole phrase of the entry; its other options have their defaults

    Raises:
        HeadToHeadError: If the entry is not registered.
        KeyError: If it has no such option.
    """
    entry = find_entry(family, name).entry
    template = template_of(entry, name)
    if option not in slots(template):
        return field_phrase(option, entry.Options.model_fields[option], value)
    for part in OPTIONAL_PART.findall(template):
        is_whole = part.strip().startswith((WITH, WITHOUT, "{"))
        if option in slots(part) and is_whole:
            return _filled_template(entry, part, {option: value}, ())
    return _filled_template(entry, template, {option: value}, (option,))


def template_of(entry: type[Entry], name: str) -> str:
    """Return the template of an entry's phrase; without one, ``with NAME``."""
    return entry.phrase or f"{WITH}{name.replace('-', ' ')}"


def _defaults(entry: type[Entry]) -> dict[str, Any]:
    """Return the default of each option of an entry."""
    defaults = {}
    for option, info in entry.Options.model_fields.items():
        defaults[option] = info.get_default(call_default_factory=True)
    return defaults


def _filled_template(
    entry: type[Entry], template: str, options: Mapping[str, Any], shown: Collection[str]
) -> str:
    """Return a template with its slots filled, with the bracketed parts that have one of the options ``shown``.

    A slot with a family as its format, such as ``{inner:masking}``, is filled with the phrase of the entry of that
    name. Options without a value have their defaults.
    """
    values = {**_defaults(entry), **options}
    for _, slot, family, _ in Formatter().parse(template):
        if slot is not None and family in COMPONENTS:
            values[slot] = named_phrase(family, values[slot], {})
    phrase = ""
    for position, piece in enumerate(re.split(OPTIONAL_PART, template)):
        is_optional = position % 2 == 1
        if not is_optional:
            phrase += filled(piece, values)
        elif set(slots(piece)) & set(shown):
            phrase = with_addition(phrase, filled(piece, values).strip())
    return phrase.strip()


def with_addition(phrase: str, addition: str) -> str:
    """Return a phrase with that of an option: ``rotary with base 500``, ``with a gate and 2 heads``."""
    if addition.startswith(WITH) and (has_preposition(phrase) or f" {WITH}" in phrase):
        return f"{phrase} and {as_noun(addition)}"
    return f"{phrase} {addition}"


def phrase_at(config: RunConfig, path: tuple[str, ...]) -> str:
    """Return the phrase of the value of a field, an entry or an option in a configuration with parsed options.

    The path of an entry, also one that ends with ``name``, has the phrase of the entry with its options, which names
    the role if the path does and the model has several. The dataset has no options in its phrase.

    Raises:
        HeadToHeadError: If an entry is not registered.
    """
    head, *inside = path
    if head in COMPONENTS:
        return _component_phrase(config, head, inside)
    value = value_at(config, path)
    if path[:2] in SECTION_ENTRIES:
        chosen = getattr(getattr(config, head), inside[0])
        family = SECTION_ENTRIES[path[:2]].name
        if inside[1:] in ([], ["name"]):
            return entry_phrase(family, chosen)
        return option_phrase(family, chosen.name, inside[-1], value)
    if head == QUIRKS:
        name, option = inside
        return option_phrase("quirk", name, option, value)
    if path in (("data",), ("data", "dataset")):
        return named_phrase("dataset", config.data.dataset, {})
    if is_dataset_option(path):
        return option_phrase("dataset", config.data.dataset, inside[-1], value)
    section = SECTIONS[head]
    for name in inside[:-1]:
        section = section.model_fields[name].annotation  # type: ignore[assignment]
    return field_phrase(inside[-1], section.model_fields[inside[-1]], value)


def _component_phrase(config: RunConfig, family: str, inside: Sequence[str]) -> str:
    """Return the phrase of a component at a path inside its family: of all roles, of one, or of an option.

    An option without a role is that of the first role whose entry has it.
    """
    if not inside:
        return _phrase_of_roles(config, family)
    if inside[0] not in ROLES:
        option = inside[-1]
        chosen = _entry_with_option(config, family, option)
        return _own_option_phrase(family, chosen, option)
    role, *rest = inside
    chosen = getattr(getattr(config, family), role)
    if rest in ([], ["name"]):
        return _in_role(config, role, entry_phrase(family, chosen))
    return _in_role(config, role, _own_option_phrase(family, chosen, rest[-1]))


def _entry_with_option(config: RunConfig, family: str, option: str) -> EntryConfig:
    """Return the first entry of a family, in the order of its roles, that has an option; without any, the first."""
    entries = list(config.entries(family).values())
    for chosen in entries:
        if option in type(chosen.options).model_fields:
            return chosen
    return entries[0]


def _own_option_phrase(family: str, chosen: EntryConfig, option: str) -> str:
    """Return the phrase of an option of an entry; ``without`` the option if the entry has none."""
    if option not in type(chosen.options).model_fields:
        return f"{WITHOUT}{spoken(option)}"
    return option_phrase(family, chosen.name, option, getattr(chosen.options, option))


def _phrase_of_roles(config: RunConfig, family: str) -> str:
    """Return the phrase of a family's entries: of the single name that stands for them, else of each role.

    Roles with the same phrase have it once; the roles are not named if all have the same.
    """
    if len(config.roles) == 1:
        return entry_phrase(family, config.entry(family, config.roles[0]))
    single = single_entry(family, getattr(config, family))
    if single is not None:
        return entry_phrase(family, single)
    roles_of: dict[str, list[str]] = {}
    for role, chosen in config.entries(family).items():
        roles_of.setdefault(entry_phrase(family, chosen), []).append(ROLE_PLACES[role])
    if len(roles_of) == 1:
        return next(iter(roles_of))
    parts = []
    for phrase, roles in roles_of.items():
        noun = with_brackets(as_noun(phrase))
        parts.append(IN_ROLE.format(phrase=noun, role=joined(roles)))
    return joined(parts)


def _in_role(config: RunConfig, role: str, phrase: str) -> str:
    """Return a phrase with its role, unless the model has a single one."""
    if len(config.roles) == 1:
        return phrase
    return IN_ROLE.format(phrase=with_brackets(phrase), role=ROLE_PLACES[role])


def axis_name(path: Sequence[str]) -> str:
    """Return what people call an axis or a field: ``positional encoding``, ``learning rate``, ``heads``.

    A family of components, also one role of it, is the singular of its name. An option of a component precedes it:
    ``base positional encoding``. A path outside of the configuration, such as ``match``, is its last part.
    """
    head, *inside = path
    if head in COMPONENTS:
        family = FAMILIES[head].plural.removesuffix("s")
        if not inside:
            return family
        return f"{spoken(inside[-1])} {family}" if inside[-1] not in ROLES else family
    if head not in SECTIONS or not inside:
        return spoken(path[-1])
    section: Any = SECTIONS[head]
    for name in inside[:-1]:
        section = section.model_fields[name].annotation
    info = section.model_fields.get(inside[-1])
    mark = None if info is None else mark_of(info)
    words = "" if mark is None else without_slots(mark.template)
    return words or spoken(inside[-1])
