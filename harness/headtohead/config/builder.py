"""``ConfigBuilder``: values merged from recipe, base, axes and ``--set``, each with its source location.

It accepts the notations of experiment files: an entry as a name, as a mapping with ``name`` and
options, or as a mapping by role; dotted keys; dataset options beside ``dataset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headtohead.config.source_location import FieldPath, Source, SourceLocation, located, shown
from headtohead.config.validation_errors import section_of, suggest_field, suggest_lists
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.entry import Entry
from headtohead.plugins.registry import Registry
from headtohead.schema.config_input import INIT_FROM, SECTIONS, SHORTHANDS, DataInput
from headtohead.schema.experiment_file import ExperimentFile
from headtohead.schema.roles import ROLES
from headtohead.schema.sections import FilePath

FAMILIES = ("positional", "attention", "masking")
DEFAULTS = {"positional": "sinusoidal", "attention": "split-heads", "masking": "padding-causal"}

_EXCLUSIVE = {"epochs": "steps", "steps": "epochs", "batch_size": "batch_tokens", "batch_tokens": "batch_size"}
"""Fields of ``train`` that replace each other."""


_FLAGS = {"seeds": "--seeds N", "name": "--name LABEL", "plugins": "--plugin FILE"}
"""Fields of an experiment file for which commands have an option."""


@dataclass
class EntrySelection:
    """The entry selected for a role, and the options set so far."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


class ConfigBuilder:
    """Values of sections and plugin families; later assignments override earlier ones."""

    def __init__(self, registry: Registry, root: SourceLocation | None = None) -> None:
        self.registry = registry
        self.root = root or SourceLocation(Source("configuration"))
        self.sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        self.dataset_options: dict[str, Any] = {}
        self.entries: dict[tuple[str, str], EntrySelection] = {}
        self.init_from: str | None = None
        self.origins: dict[FieldPath, SourceLocation] = {}
        for family, name in DEFAULTS.items():
            self._select_in_all_roles(family, name, {}, self.root)
        self.origins.clear()

    def copy(self) -> ConfigBuilder:
        """Return an independent copy."""
        twin = object.__new__(ConfigBuilder)
        twin.registry, twin.root = self.registry, self.root
        twin.sections = {name: _deep(section) for name, section in self.sections.items()}
        twin.dataset_options = dict(self.dataset_options)
        twin.entries = {
            key: EntrySelection(selection.name, dict(selection.options)) for key, selection in self.entries.items()
        }
        twin.init_from = self.init_from
        twin.origins = dict(self.origins)
        return twin

    def merge(self, values: Mapping[str, Any], location: SourceLocation) -> None:
        """Merge a mapping such as ``base``; dotted keys are assigned after whole sections."""
        refuse_both(values, "train.", location)
        for key in sorted(values, key=assignment_order):
            self.assign(tuple(key.split(".")), values[key], location.child(key))

    def assign(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set a field, a family, a role or an option, or merge a mapping into a section."""
        head, rest = path[0], path[1:]
        fields = SHORTHANDS.get(path, ())
        if fields and all(self.sections[head].get(name) is not None for name in fields):
            names = ", ".join(fields)
            raise location.error(
                f"'{path[1]}' changes nothing, because its fields are set ({names}); change those instead"
            )
        if head in FAMILIES:
            self._assign_family(head, rest, value, location)
        elif head in SECTIONS:
            self._assign_section(head, rest, value, location)
        elif head == INIT_FROM:
            self._assign_init_from(rest, value, location)
        else:
            raise location.error(f"unknown field '{head}'{_suggestion(path)}")

    def location(self, path: FieldPath) -> SourceLocation:
        """Return the source location of the value at a configuration path."""
        for length in range(len(path), 0, -1):
            origin = self.origins.get(path[:length])
            if origin is not None:
                return origin.child(*_written(path[length:]))
        return self.root.child(*_written(path))

    def _record_origin(self, path: FieldPath, location: SourceLocation) -> None:
        for inner in [origin for origin in self.origins if origin[: len(path)] == path]:
            del self.origins[inner]
        self.origins[path] = location

    def _assign_init_from(self, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if rest:
            raise location.error(f"'{INIT_FROM}' has no fields of its own, got '{'.'.join(rest)}'")
        if value is not None and (not isinstance(value, str) or not value):
            raise location.error(f"expected the name or the directory of a run, got {shown(value)}")
        self.init_from = value
        self._record_origin((INIT_FROM,), location)

    def _assign_family(self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if not rest:
            self._assign_all_roles(family, value, location)
        elif rest[0] in ROLES:
            self._assign_role(family, rest[0], rest[1:], value, location)
        else:
            self._assign_option_anywhere(family, rest, value, location)

    def _assign_all_roles(self, family: str, value: Any, location: SourceLocation) -> None:
        if isinstance(value, Mapping) and "name" not in value and set(value) <= set(ROLES):
            for role, selection in value.items():
                self._assign_role(family, role, (), selection, location.child(role))
            return
        expected = f"a name, a mapping with 'name', or {_roles()}"
        if isinstance(value, list):
            raise location.error(f"expected {expected}, got {shown(value)}{suggest_lists(value, family)}")
        name, options = _named(value, location, expected)
        self._select_in_all_roles(family, name, options, location)

    def _select_in_all_roles(
        self, family: str, name: str, options: Mapping[str, Any], location: SourceLocation
    ) -> None:
        entry = self.entry(family, name, location)
        self._record_origin((family,), location)
        for role in ROLES:
            default = entry.role_defaults.get(role, name)
            self._select(family, role, default, options if default == name else {}, location)

    def _select(self, family: str, role: str, name: str, options: Mapping[str, Any], location: SourceLocation) -> None:
        self.entries[family, role] = EntrySelection(name, dict(options))
        for option in options:
            self._record_origin((family, role, "options", option), location.child(option))

    def _assign_role(self, family: str, role: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if rest and rest != ("name",):
            if len(rest) > 1:
                raise location.error(f"unknown field '{'.'.join(rest)}'")
            self.entries[family, role].options[rest[0]] = value
            self._record_origin((family, role, "options", rest[0]), location)
            return
        if isinstance(value, Mapping) and "name" not in value and not rest:
            self.entries[family, role].options.update(value)
            for option in value:
                self._record_origin((family, role, "options", option), location.child(option))
            return
        name, options = _named(value, location, "a name, or a mapping with 'name' and options")
        self.entry(family, name, location)
        self._record_origin((family, role), location)
        self._select(family, role, name, options, location)

    def _assign_option_anywhere(self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set an option in each role where the entry has it."""
        known: set[str] = set()
        for role in ROLES:
            selection = self.entries[family, role]
            options = self.entry(family, selection.name, location).Options.model_fields
            known |= set(options)
            if len(rest) == 1 and rest[0] in options:
                selection.options[rest[0]] = value
                self._record_origin((family, role, "options", rest[0]), location)
        if len(rest) > 1 or rest[0] not in known:
            name = ".".join(rest)
            raise location.error(f"unknown role or option '{name}'{nearest(name, {*known, *ROLES})}")

    def entry(self, family: str, name: str, location: SourceLocation) -> type[Entry]:
        """Return a registered entry; an unknown name is an error at ``location``."""
        try:
            return self.registry.find(family, name).entry
        except HeadToHeadError as error:
            raise location.error(str(error)) from error

    def _assign_section(self, section: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if rest:
            self._assign_field(section, rest, value, location)
            return
        if not isinstance(value, Mapping):
            hint = f"; type data: {{dataset: {value}}}" if section == "data" and isinstance(value, str) else ""
            raise location.error(f"expected a mapping, got {shown(value)}{hint}")
        if section == "train":
            refuse_both(value, "", location)
        for key in sorted(value, key=lambda key: key != "dataset"):
            self._assign_field(section, tuple(key.split(".")), value[key], location.child(key))

    def _assign_field(self, section: str, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if section == "data":
            if path[0] == "dataset":
                self._select_dataset(value, location)
            elif path[0] == "options" and len(path) == 1 and isinstance(value, Mapping):
                for option, setting in value.items():
                    self._assign_dataset_option((option,), setting, location.child(option))
                return
            elif path[0] == "options" or path[0] not in DataInput.model_fields:
                named = path[1:] if path[0] == "options" else path
                self._assign_dataset_option(named or path, value, location)
                return
        if section == "train" and path[0] in _EXCLUSIVE and value is not None:
            self.sections["train"].pop(_EXCLUSIVE[path[0]], None)
        self._set(self.sections[section], SECTIONS[section], path, value, location, (section,))

    def _select_dataset(self, value: Any, location: SourceLocation) -> None:
        if not isinstance(value, str):
            raise location.error(f"expected the name of a dataset, got {shown(value)}")
        if Path(value).suffix in (".csv", ".tsv", ".txt", ".json", ".jsonl"):
            raise location.error(f"'{value}' is a file, not a dataset; type dataset: pairs with file: {value}")
        self.entry("dataset", value, location)
        if value != self.sections["data"].get("dataset", DataInput().dataset):
            self.dataset_options.clear()

    def _assign_dataset_option(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        dataset = self.sections["data"].get("dataset", DataInput().dataset)
        known = self.entry("dataset", dataset, location).Options.model_fields
        name = ".".join(path)
        if name not in known:
            fields = [*known, *(field for field in DataInput.model_fields if field != "options")]
            raise location.error(f"unknown field '{name}' of dataset '{dataset}'{suggest_field(name, fields, 'data')}")
        if location.source.folder is not None and _holds_paths(known[name]):
            value = located(value, location.source.folder)
        self.dataset_options[name] = value
        self._record_origin(("data", "options", name), location)

    def _set(
        self,
        tree: dict[str, Any],
        model: type[BaseModel],
        path: tuple[str, ...],
        value: Any,
        location: SourceLocation,
        above: FieldPath,
    ) -> None:
        name, rest = path[0], path[1:]
        if name not in model.model_fields:
            hint = suggest_field(name, model.model_fields, str(above[0]))
            raise location.error(f"unknown field '{name}'{hint}")
        here = (*above, name)
        inner = section_of(model.model_fields[name].annotation)
        if inner is None and rest:
            raise location.error(f"'{name}' has no fields of its own, got '{'.'.join(rest)}'")
        if inner is None or not (rest or isinstance(value, Mapping)):
            if location.source.folder is not None and _holds_paths(model.model_fields[name]):
                value = located(value, location.source.folder)
            tree[name] = value
            self._record_origin(here, location)
            return
        branch = tree[name] = dict(tree.get(name) or {})
        if rest:
            self._set(branch, inner, rest, value, location, here)
            return
        for key, item in value.items():
            self._set(branch, inner, tuple(key.split(".")), item, location.child(key), here)


def assignment_order(key: str) -> tuple[int, bool]:
    """Sort key of assignments: sections before their fields, a dataset before its options."""
    return key.count("."), key != "data.dataset"


def _holds_paths(option: FieldInfo) -> bool:
    return any(isinstance(marker, FilePath) for marker in option.metadata)


def _named(value: Any, location: SourceLocation, expected: str) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return value["name"], {key: option for key, option in value.items() if key != "name"}
    raise location.error(f"expected {expected}, got {shown(value)}")


def _written(path: FieldPath) -> FieldPath:
    """Remove the levels of a family's path that the file does not have to write."""
    hidden = {*ROLES, "options", "name"} if path[:1] and path[0] not in SECTIONS else set()
    return tuple(part for part in path if part not in hidden)


def _roles() -> str:
    return f"a mapping of {', '.join(ROLES[:-1])} and {ROLES[-1]}"


def _deep(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _deep(item) if isinstance(item, dict) else item for key, item in tree.items()}


def _suggestion(path: tuple[str, ...]) -> str:
    """Return what an unknown first field may stand for."""
    head, rest = path[0], path[1:]
    if head in ("base", "baseline") and rest:
        return f"; did you mean '{'.'.join(rest)}'?"
    if head in ExperimentFile.model_fields:
        option = f"; type {_FLAGS[head]} instead of --set" if head in _FLAGS else ""
        return f"; it is a field of the experiment file, outside base{option}"
    return suggest_field(head, [*FAMILIES, *SECTIONS, INIT_FROM], "base")


def refuse_both(values: Mapping[str, Any], prefix: str, location: SourceLocation) -> None:
    """Raise an error if a mapping gives two fields of ``train`` that replace each other."""
    for name, other in _EXCLUSIVE.items():
        if values.get(prefix + name) is not None and values.get(prefix + other) is not None:
            raise location.error(f"{prefix}{name} and {prefix}{other} are both given; keep one of them")
