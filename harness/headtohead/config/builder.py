"""``ConfigBuilder``: from the notations of experiment files to a complete ``RunConfig``.

Values of recipe, base, axes and ``--set`` are merged, each with its source location. An entry is given as a name, as a
mapping with ``name`` and options, or, for a component of the model, as a mapping by role. Keys may be dotted. Options
of a dataset are written as fields of ``data``, or in ``data.options``.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from headtohead.config.contradictions import find_contradiction
from headtohead.config.source_location import FieldPath, Source, SourceLocation, located, shown
from headtohead.config.validation_errors import checked, section_of, suggest_field, suggest_lists
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.entry import Entry
from headtohead.plugins.families import COMPONENTS, FAMILIES, Family
from headtohead.plugins.registry import current, find_dataset, find_entry, find_recipe
from headtohead.schema.run_config import (
    QUIRKS,
    SECTIONS,
    SHORTHANDS,
    DataConfig,
    EntryConfig,
    ModelConfig,
    ModelInput,
    PerRole,
    PerSide,
    RunConfig,
)
from headtohead.schema.sections import Options, is_path

Model = TypeVar("Model", bound=BaseModel)

DATASET = FAMILIES["dataset"].place
"""Path of the dataset, whose options are written beside it."""

SECTION_ENTRIES: dict[tuple[str, ...], Family] = {
    family.place: family
    for family in FAMILIES.values()
    if len(family.place) == 2 and family.place != DATASET
}
"""The families with one entry in a section, by the path of the entry, such as ``train.schedule``."""

DATA_FILES = (".csv", ".tsv", ".txt", ".json", ".jsonl")
"""Suffixes by which a file is recognised that is given as a dataset."""

_EXCLUSIVE = (
    (("train", "epochs"), ("train", "steps"), ("train", "tokens")),
    (("train", "batch_size"), ("train", "batch_tokens")),
)
"""Fields that replace each other."""

_FIRST = {
    "dataset",
    "data.dataset",
    *(name for path in SHORTHANDS for name in (path[-1], ".".join(path))),
}


def resolve(raw: Mapping[str, Any]) -> RunConfig:
    """Return the run configuration of a nested mapping with the fields of an experiment file's ``base``.

    Raises:
        HeadToHeadError: For an unknown name or field, a wrong type, or contradictory fields.
    """
    builder = ConfigBuilder()
    builder.merge(raw, builder.root)
    return builder.build_consistent()


class ConfigBuilder:
    """Values by path, such as ``("positional", "encoder", "options", "theta")``; the last value of a path counts."""

    def __init__(self, root: SourceLocation | None = None) -> None:
        self.root = root or SourceLocation(Source("configuration"))
        self.values: dict[FieldPath, tuple[Any, SourceLocation]] = {}
        for name, family in COMPONENTS.items():
            self.assign((name,), family.default, self.root.child(name))

    def copy(self) -> ConfigBuilder:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.values = dict(self.values)
        return twin

    # -- from notations to values by path

    def merge(self, values: Mapping[str, Any], location: SourceLocation) -> None:
        """Merge a mapping such as ``base``: its recipe first, and dotted keys after whole sections."""
        if "recipe" in values:
            self.merge_recipe(values["recipe"], location.child("recipe"))
        refuse_both(values, location)
        _refuse_shorthand_over_section(values, location)
        for key in sorted(values, key=assignment_order):
            if key != "recipe":
                self.assign(tuple(key.split(".")), values[key], location.child(key))

    def merge_recipe(self, name: Any, location: SourceLocation) -> None:
        """Merge the values of the recipe that is named at ``location``."""
        if not isinstance(name, str):
            raise location.error(f"expected the name of a recipe, got {shown(name)}")
        self._entry("recipe", name, location)
        self.merge(find_recipe(name).config, SourceLocation(Source(f"recipe '{name}'")))

    def assign(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set a field, a component, a role or an option, or merge a mapping into a section."""
        head = path[0]
        if head in COMPONENTS:
            self._assign_component(COMPONENTS[head], path[1:], value, location)
        elif head in SECTIONS or head == QUIRKS:
            self._assign_section(path, value, location)
        else:
            hint = suggest_field(head, [*COMPONENTS, *SECTIONS, QUIRKS], "base")
            raise location.error(f"unknown field '{head}'{hint}")

    def _assign_component(
        self, family: Family, inside: tuple[str, ...], value: Any, location: SourceLocation
    ) -> None:
        """Set the name of an entry, options or both, in one role or in all.

        Args:
            family: The family of the component.
            inside: The path after the family: nothing, a role, an option, or a role and an option.
            value: What is assigned.
            location: Where it is written.
        """
        role = inside[0] if inside and inside[0] in family.roles else None
        rest = inside if role is None else inside[1:]
        if len(rest) > 1:
            raise location.error(f"unknown field '{'.'.join(rest)}'")
        if rest and rest != ("name",):
            self._assign_option(family, role, rest[0], value, location)
            return
        lacks_name = isinstance(value, Mapping) and "name" not in value and not rest
        if lacks_name and (role is not None or set(value) <= set(family.roles)):
            for key, setting in value.items():
                self._assign_component(family, (*inside, key), setting, location.child(key))
        elif isinstance(value, list):
            if role is None or rest or not value:
                raise location.error(_misplaced_list(family, value))
            self._assign_pattern(family, role, value, location)
        else:
            self._assign_entry(family, role, value, location)

    def _assign_entry(
        self, family: Family, role: str | None, value: Any, location: SourceLocation
    ) -> None:
        """Set an entry with its options in one role, or, for None, in all roles in which it has no default."""
        name, options = named_parts(value, location, "name")
        entry = self._entry(family.name, name, location)
        role_defaults = entry.role_defaults if role is None else {}
        for assigned_role in _roles(family, role):
            path = (family.name, assigned_role)
            chosen = role_defaults.get(assigned_role, name)
            self._set(path, {}, location)
            self._set((*path, "name"), chosen, location)
            if chosen == name:
                self._set_options(path, options, location)

    def _assign_pattern(
        self, family: Family, role: str, entries: Sequence[Any], location: SourceLocation
    ) -> None:
        """Set the entries of successive layers of a role."""
        path: tuple[str, ...] = (family.name, role)
        self._set(path, {}, location)
        for layer, value in enumerate(entries):
            at = location.child(layer)
            name, options = named_parts(value, at, "name")
            self._entry(family.name, name, at)
            below = path
            if layer > 0:
                below = (*path, "next_layers", str(layer))
            self._set((*below, "name"), name, at)
            self._set_options(below, options, at)

    def _set_options(
        self, path: tuple[str, ...], options: Mapping[str, Any], location: SourceLocation
    ) -> None:
        """Set the options of the entry at a path."""
        for option, value in options.items():
            self._set((*path, "options", option), value, location.child(option))

    def _assign_option(
        self, family: Family, role: str | None, option: str, value: Any, location: SourceLocation
    ) -> None:
        """Set an option of one role, or, for None, in each role whose entry has it."""
        options_of = {}
        for assigned_role in _roles(family, role):
            name = self.value(family.name, assigned_role, "name")
            entry = self._entry(family.name, name, location)
            options_of[assigned_role] = entry.Options.model_fields
        roles = [role for role, options in options_of.items() if option in options]
        if role is not None:
            roles = [role]  # an option that its entry does not have is an error of `build`
        if not roles:
            names = {*family.roles}
            for options in options_of.values():
                names |= options.keys()
            hint = self._owners(family.name, option) or nearest(option, names)
            first = self.value(family.name, family.roles[0], "name")
            raise location.error(f"{family.name} '{first}' has no role or option '{option}'{hint}")
        for assigned_role in roles:
            self._set((family.name, assigned_role, "options", option), value, location)

    def _assign_section(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set a section or a field of it; the name of a dataset stands for the section ``data``."""
        if path == ("data",) and isinstance(value, str):
            path = DATASET
        elif len(path) == 1 and not isinstance(value, Mapping):
            raise location.error(f"expected a mapping, got {shown(value)}")
        self._assign_field(path, value, location)

    def _assign_field(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set a field of a section, or merge a mapping into a section; `build` validates the values."""
        if path in SHORTHANDS:
            self._assign_shorthand(path, value, location)
            return
        if path[:2] in SECTION_ENTRIES:
            family = SECTION_ENTRIES[path[:2]]
            self._assign_section_entry(family, path[2:], value, location)
            return
        if len(path) > 1 and is_dataset_option(path) and path[1] != "options":
            path = ("data", "options", *path[1:])
        if path == ("data", "options") and not isinstance(value, Mapping):
            raise location.error(f"expected a mapping, got {shown(value)}")
        if self._is_merged(path, value):
            refuse_both(value, location, path)
            for key in sorted(value, key=assignment_order):
                self._assign_field((*path, *key.split(".")), value[key], location.child(key))
            return
        if path == DATASET:
            self._change_dataset(value, location)
        if value is not None:
            self._remove_replaced(path)
        folder = location.source.folder
        if folder and path[0] == "data" and self._is_file(path):
            value = located(value, folder)
        self._set(path, value, location)

    def _assign_shorthand(
        self, path: tuple[str, ...], value: Any, location: SourceLocation
    ) -> None:
        """Set the fields that a shorthand such as ``model.layers`` sets."""
        if isinstance(value, list):
            hint = suggest_lists(value, ".".join(path))
            raise location.error(f"expected a number, got {shown(value)}{hint}")
        for name in SHORTHANDS[path]:
            self._set((path[0], name), value, location)

    def _assign_section_entry(
        self, family: Family, inside: tuple[str, ...], value: Any, location: SourceLocation
    ) -> None:
        """Set the name of an entry of a section, such as the schedule, an option of it, or both."""
        if len(inside) > 1:
            raise location.error(f"unknown field '{'.'.join(inside)}'")
        if inside and inside != ("name",):
            self._assign_option_in_section(family, inside[0], value, location)
        elif not inside and isinstance(value, Mapping) and "name" not in value:
            for option, setting in value.items():
                self._assign_option_in_section(family, option, setting, location.child(option))
        else:
            if isinstance(value, list):
                hint = suggest_lists(value, ".".join(family.place))
                raise location.error(f"expected one entry, got {shown(value)}{hint}")
            name, options = named_parts(value, location, "name")
            self._entry(family.name, name, location)
            self._set(family.place, {}, location)
            self._set((*family.place, "name"), name, location)
            self._set_options(family.place, options, location)

    def _assign_option_in_section(
        self, family: Family, option: str, value: Any, location: SourceLocation
    ) -> None:
        """Set an option of the entry of a section; an option that the entry does not have is an error."""
        name = self.value(*family.place, "name") or family.default
        options = self._entry(family.name, name, location).Options.model_fields
        if option not in options:
            hint = self._owners(family.name, option) or nearest(option, options)
            raise location.error(f"{family.name} '{name}' has no option '{option}'{hint}")
        self._set((*family.place, "options", option), value, location)

    def _is_merged(self, path: tuple[str, ...], value: Any) -> bool:
        """Return whether a value is a mapping whose fields are assigned one by one; options of a dataset are not."""
        is_option = path[:2] == ("data", "options") and len(path) > 2
        if not isinstance(value, Mapping) or is_option:
            return False
        return bool(value) or len(path) == 1 or bool(self.nested(*path))

    def _change_dataset(self, name: Any, location: SourceLocation) -> None:
        """Require that a dataset exists, and remove the options of another dataset."""
        if not isinstance(name, str):
            raise location.error(f"expected the name of a dataset, got {shown(name)}")
        if Path(name).suffix in DATA_FILES:
            raise location.error(
                f"'{name}' is a file, not a dataset; type dataset: pairs with file: {name}"
            )
        self._entry("dataset", name, location)
        if name != self.dataset:
            self._check_option_names()
            for path in list(self.values):
                if is_dataset_option(path):
                    del self.values[path]

    def _remove_replaced(self, path: tuple[str, ...]) -> None:
        """Remove the values of the fields that a field replaces, such as ``train.epochs`` by ``train.steps``."""
        for group in _EXCLUSIVE:
            if path in group:
                for replaced in group:
                    self.values.pop(replaced, None)

    def _set(self, path: FieldPath, value: Any, location: SourceLocation) -> None:
        """Set a value in place of the values inside it and of a value around it."""
        section = [other for other in self.values if other[0] == path[0]]
        for other in section:
            if other[: len(path)] == path or path[: len(other)] == other:
                del self.values[other]
        self.values[path] = value, location

    def _entry(self, family: str, name: str, location: SourceLocation) -> type[Entry]:
        """Return a registered entry; an unknown name is an error at ``location``."""
        try:
            return find_entry(family, name).entry
        except HeadToHeadError as error:
            raise location.error(str(error)) from error

    def _owners(self, family: str, option: str) -> str:
        """Return which entries have an option, as a suffix of a message, or an empty text if none has it."""
        owners = []
        for name, registered in sorted(current().entries[family].items()):
            if option in registered.entry.Options.model_fields:
                owners.append(name)
        if not owners:
            return ""
        verb = "has" if len(owners) == 1 else "have"
        return f"; {', '.join(owners)} {verb} it"

    # -- values by path

    def value(self, *path: str) -> Any:
        """Return the value at a configuration path, or None."""
        if path not in self.values:
            return None
        value, _ = self.values[path]
        return value

    def nested(self, *above: str) -> dict[str, Any]:
        """Return the values below a configuration path as nested mappings."""
        tree: dict[str, Any] = {}
        for path, (value, _) in self.values.items():
            if path[: len(above)] != above or len(path) == len(above):
                continue
            *branches, last = (str(part) for part in path[len(above) :])
            branch = tree
            for part in branches:
                branch = branch.setdefault(part, {})
            if value == {}:
                branch.setdefault(last, {})
            else:
                branch[last] = value
        return tree

    def location(self, path: FieldPath) -> SourceLocation:
        """Return the source location of the value at a path, of a value around it or of the first value inside it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.values:
                return self.values[path[:length]][1].child(*path[length:])
        if len(path) > 1:
            for other, (_, location) in self.values.items():
                if other[: len(path)] == path:
                    return location
        return self.root.child(*path)

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.value(*DATASET) or DataConfig().dataset

    # -- the configuration

    def build(self) -> RunConfig:
        """Return the complete configuration; equal configurations are equal however they were written.

        Contradictory fields are not an error here, because a variant may still be excluded.

        Raises:
            HeadToHeadError: For an unknown name or field, or a wrong type.
        """
        self._check_option_names()
        raw = self._raw_sections()
        data_options = raw["data"].pop("options", {})
        sections: dict[str, Any] = {}
        for name, section in SECTIONS.items():
            sections[name] = self._checked(section, raw[name], name)
        sections["model"] = _complete_model(sections["model"])
        options_class = find_dataset(self.dataset).Options
        parsed = self._checked(options_class, data_options, "data", "options")
        sections["data"] = sections["data"].model_copy(update={"options": parsed})
        for place, family in SECTION_ENTRIES.items():
            head, field = place
            chosen = getattr(sections[head], field).model_dump()
            entry = self._built(family, chosen, *place)
            sections[head] = sections[head].model_copy(update={field: entry})
        for name, family in COMPONENTS.items():
            sections[name] = self._built_roles(family, sections["model"])
        return RunConfig(**sections, quirks=self._quirks())

    def _quirks(self) -> dict[str, Options]:
        """Return the options of the quirks that change something, by name."""
        quirks = {}
        for name, written in self.nested(QUIRKS).items():
            location = self.location((QUIRKS, name))
            quirk = self._entry("quirk", name, location)
            if not isinstance(written, Mapping):
                raise location.error(f"expected a mapping of options, got {shown(written)}")
            options = self._checked(quirk.Options, written, QUIRKS, name)
            if options != quirk.Options():
                quirks[name] = options
        return quirks

    def build_consistent(self) -> RunConfig:
        """Return the complete configuration; contradictory fields are an error."""
        config = self.build()
        contradiction = find_contradiction(config)
        if contradiction is not None:
            path, reason = contradiction
            raise self.location(path).error(reason)
        return config

    def _raw_sections(self) -> dict[str, dict[str, Any]]:
        """Return the fields of each section as written, with the defaults of the dataset."""
        dataset = find_dataset(self.dataset)
        raw = {}
        for name in SECTIONS:
            raw[name] = {**dataset.defaults.get(name, {}), **self.nested(name)}
        for (head, field), family in SECTION_ENTRIES.items():
            if isinstance(raw[head].get(field), Mapping):
                raw[head][field].setdefault("name", family.default)  # options alone
        written = self.nested("data")
        raw["data"] |= {"split": dataset.splits[0], "normalise": dataset.normalise} | written
        model, vocabulary = raw["model"], written.get("vocabulary", {})
        if model.get("architecture") == "decoder-only" and isinstance(vocabulary, Mapping):
            raw["data"]["vocabulary"] = {"shared": True, **vocabulary}
        if "d_ff" in model:
            d_model = model.get("d_model", ModelConfig().d_model)
            model["d_ff"] = times_width(model["d_ff"], d_model)
        return raw

    def _built_roles(self, family: Family, model: ModelConfig) -> PerSide:
        """Return the entries of a component by role."""
        roles = {}
        for role, chosen in self.nested(family.name).items():
            roles[role] = self._built(family, chosen, family.name, role)
        if "cross" in family.roles:
            return PerRole(**roles)
        if model.architecture == "decoder-only":
            roles["encoder"] = roles["decoder"]  # a default that is not in the hash
        return PerSide(**roles)

    def _built(self, family: Family, chosen: Mapping[str, Any], *path: str) -> EntryConfig:
        """Return the entry at a path with parsed options, and the entries of the next layers."""
        options_class = find_entry(family.name, chosen["name"]).entry.Options
        options = self._checked(options_class, chosen.get("options", {}), *path, "options")
        entry = EntryConfig(name=chosen["name"], options=options)
        later = []
        for layer, next_entry in chosen.get("next_layers", {}).items():
            later.append(self._built(family, next_entry, *path, "next_layers", layer))
        if all(next_entry == entry for next_entry in later):
            return entry
        return entry.model_copy(update={"next_layers": tuple(later)})

    def _check_option_names(self) -> None:
        """Raise an error if an option is not one of the dataset's."""
        options = find_dataset(self.dataset).Options.model_fields
        for name in self.nested("data", "options"):
            if name not in options:
                hint = self._owners("dataset", name)
                if not hint:
                    hint = suggest_field(name, [*options, *DataConfig.model_fields], "data")
                message = f"unknown field '{name}' of dataset '{self.dataset}'{hint}"
                raise self.location(("data", "options", name)).error(message)

    def _checked(self, model: type[Model], values: Mapping[str, Any], *above: str) -> Model:
        return checked(model, values, lambda inside: self.location((*above, *inside)))

    def _is_file(self, path: tuple[str, ...]) -> bool:
        """Return whether a field of the data section holds paths of files."""
        section: type[BaseModel] | None = DataConfig
        fields = path[1:]
        if is_dataset_option(path):
            section = find_dataset(self.dataset).Options
            fields = path[2:]
        info = None
        for name in fields:
            if section is None or name not in section.model_fields:
                return False
            info = section.model_fields[name]
            section = section_of(info.annotation)
        return info is not None and is_path(info)


def assignment_order(key: str) -> tuple[int, bool]:
    """Sort key of assignments: sections before their fields, a dataset and shorthands before the fields they set."""
    return key.count("."), key not in _FIRST


def is_dataset_option(path: FieldPath) -> bool:
    """Return whether a path is in ``data.options``, or in ``data`` but not a field of `DataConfig`."""
    return path[0] == "data" and (path[1] == "options" or path[1] not in DataConfig.model_fields)


def refuse_both(values: Mapping[str, Any], location: SourceLocation, above: FieldPath = ()) -> None:
    """Raise an error if a mapping at the path ``above`` gives a field twice, or fields that replace each other."""
    prefix = "".join(f"{name}." for name in above)
    for path, number in Counter(_leaves(values, prefix)).most_common(1):
        if number > 1:
            raise location.error(f"{path} is given twice; keep one of them")
    written = {}
    for key, value in values.items():
        if value is not None:
            written[(*above, *key.split("."))] = key
    for field, replaced in _replacements():
        if field in written and all(path in written for path in replaced):
            names = " + ".join(written[path] for path in replaced)
            raise location.error(f"{written[field]} and {names} are both given; keep one of them")


def _replacements() -> Iterator[tuple[FieldPath, tuple[FieldPath, ...]]]:
    """Yield the path of each field that replaces others, with the paths of these."""
    for shorthand, names in SHORTHANDS.items():
        yield shorthand, tuple((shorthand[0], name) for name in names)
    for group in _EXCLUSIVE:
        for first, second in combinations(group, 2):
            yield first, (second,)


def _refuse_shorthand_over_section(values: Mapping[str, Any], location: SourceLocation) -> None:
    """Raise an error if a dotted shorthand stands beside a section with a field that it would override."""
    for path, names in SHORTHANDS.items():
        shorthand, section = ".".join(path), values.get(path[0])
        if shorthand not in values or not isinstance(section, Mapping):
            continue
        for name in names:
            if name in section:
                raise location.error(
                    f"{shorthand} would override {path[0]}.{name}; write both below {path[0]}"
                )


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted path of each value in nested mappings."""
    for key, value in values.items():
        path = (above + key).replace("data.options.", "data.")
        if value and isinstance(value, Mapping):
            yield from _leaves(value, f"{path}.")
        else:
            yield path


def _misplaced_list(family: Family, value: list[Any]) -> str:
    """Return the message for a list of entries where one entry is expected."""
    message = f"expected one entry, got {shown(value)}{suggest_lists(value, family.name)}"
    if value:
        message += f"; for a pattern of layers, type {family.name}: {{decoder: [...]}}"
    return message


def _roles(family: Family, role: str | None) -> tuple[str, ...]:
    """Return a single role, or, for None, all roles of a family."""
    if role is None:
        return family.roles
    return (role,)


def named_parts(value: Any, location: SourceLocation, key: str) -> tuple[str, dict[str, Any]]:
    """Return the name that a value has under ``key`` and its other fields; a text is a name without fields."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get(key), str):
        fields = dict(value)
        name = fields.pop(key)
        return name, fields
    raise location.error(
        f"expected a name, or a mapping with '{key}' and fields, got {shown(value)}"
    )


def times_width(d_ff: Any, d_model: Any) -> Any:
    """Return the width that a text such as ``4x`` stands for; other values are unchanged."""
    if not isinstance(d_ff, str) or not isinstance(d_model, int):
        return d_ff
    if not re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?x", d_ff):
        return d_ff
    return round(float(d_ff.removesuffix("x")) * d_model)


def _complete_model(model: ModelInput) -> ModelConfig:
    """Return the section ``model`` without shorthands, with the defaults that depend on its other fields."""
    fields = {"final_norm": model.norm != "post"} | model.model_dump(exclude_unset=True)
    complete = ModelConfig(**fields)
    if complete.architecture == "decoder-only":  # there is no source embedding to share
        equivalent = {"all": "output", "embeddings": "none"}
        tied = equivalent.get(complete.tie_embeddings, complete.tie_embeddings)
        complete = complete.model_copy(update={"tie_embeddings": tied})
    return complete
