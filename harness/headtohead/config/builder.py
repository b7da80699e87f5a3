"""A configuration in the making: values laid over one another, each with the place it came from.

The sugar of experiment files is understood here: a bare name for a family, a mapping with ``name``
and options, a mapping by role, dotted keys, and dataset options beside ``dataset``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headtohead.config.source_location import FieldPath, SourceLocation, Source, located, shown
from headtohead.config.validation_errors import section_of
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.entry import Entry
from headtohead.plugins.registry import Registry
from headtohead.schema.config import DataConfig, EvaluateConfig, FilePath, ModelConfig, TrainConfig
from headtohead.schema.roles import ROLES

FAMILIES = ("positional", "attention", "masking")
SECTIONS: dict[str, type[BaseModel]] = {
    "data": DataConfig,
    "model": ModelConfig,
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
}
DEFAULTS = {"positional": "sinusoidal", "attention": "split-heads", "masking": "padding-causal"}

_INSTEAD = {"epochs": "steps", "steps": "epochs"}

_NO_FIELDS: dict[FieldPath, str] = {
    ("train", "device"): "the device is not a field of an experiment; remove 'device' and type h2h run --device cpu"
}
"""Errors for names that are options of a command."""


@dataclass
class Choice:
    """An entry chosen for one role, with the options given so far."""

    name: str
    options: dict[str, Any] = field(default_factory=dict)


class ConfigBuilder:
    """Sections and families as assigned so far; later assignments win."""

    def __init__(self, registry: Registry, root: SourceLocation | None = None) -> None:
        self.registry = registry
        self.root = root or SourceLocation(Source("configuration"))
        self.sections: dict[str, dict[str, Any]] = {name: {} for name in SECTIONS}
        self.dataset_options: dict[str, Any] = {}
        self.choices: dict[tuple[str, str], Choice] = {}
        self.origins: dict[FieldPath, SourceLocation] = {}
        for family, name in DEFAULTS.items():
            self._choose_everywhere(family, name, {}, self.root)
        self.origins.clear()

    def copy(self) -> ConfigBuilder:
        """Return an independent draft with the same content."""
        twin = object.__new__(ConfigBuilder)
        twin.registry, twin.root = self.registry, self.root
        twin.sections = {name: _deep(section) for name, section in self.sections.items()}
        twin.dataset_options = dict(self.dataset_options)
        twin.choices = {key: Choice(one.name, dict(one.options)) for key, one in self.choices.items()}
        twin.origins = dict(self.origins)
        return twin

    def merge(self, values: Mapping[str, Any], location: SourceLocation) -> None:
        """Lay a mapping such as ``base`` over what is there."""
        for key in sorted(values, key=assignment_order):
            self.assign(tuple(key.split(".")), values[key], location.child(key))

    def assign(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set one field, family, role or option, or merge a mapping into a section."""
        head, rest = path[0], path[1:]
        if head in FAMILIES:
            self._assign_family(head, rest, value, location)
        elif head in SECTIONS:
            self._assign_section(head, rest, value, location)
        else:
            raise location.error(f"unknown field '{head}'{nearest(head, [*FAMILIES, *SECTIONS])}")

    def location(self, path: FieldPath) -> SourceLocation:
        """Return where the value at a path of the configuration was written."""
        for length in range(len(path), 0, -1):
            origin = self.origins.get(path[:length])
            if origin is not None:
                return origin.child(*_as_written(path[length:]))
        return self.root.child(*_as_written(path))

    def _mark(self, path: FieldPath, location: SourceLocation) -> None:
        for known in [one for one in self.origins if one[: len(path)] == path]:
            del self.origins[known]
        self.origins[path] = location

    def _assign_family(self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if not rest:
            self._assign_all_roles(family, value, location)
        elif rest[0] in ROLES:
            self._assign_role(family, rest[0], rest[1:], value, location)
        else:
            self._assign_option_anywhere(family, rest, value, location)

    def _assign_all_roles(self, family: str, value: Any, location: SourceLocation) -> None:
        if isinstance(value, Mapping) and "name" not in value and set(value) <= set(ROLES):
            for role, one in value.items():
                self._assign_role(family, role, (), one, location.child(role))
            return
        name, options = _named(value, location, f"a name, a mapping with 'name', or {_roles()}")
        self._choose_everywhere(family, name, options, location)

    def _choose_everywhere(self, family: str, name: str, options: Mapping[str, Any], location: SourceLocation) -> None:
        entry = self.entry(family, name, location)
        self._mark((family,), location)
        for role in ROLES:
            meant = entry.role_defaults.get(role, name)
            self._choose(family, role, meant, options if meant == name else {}, location)

    def _choose(self, family: str, role: str, name: str, options: Mapping[str, Any], location: SourceLocation) -> None:
        self.choices[family, role] = Choice(name, dict(options))
        for option in options:
            self._mark((family, role, "options", option), location.child(option))

    def _assign_role(self, family: str, role: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if rest and rest != ("name",):
            if len(rest) > 1:
                raise location.error(f"unknown field '{'.'.join(rest)}'")
            self.choices[family, role].options[rest[0]] = value
            self._mark((family, role, "options", rest[0]), location)
            return
        if isinstance(value, Mapping) and "name" not in value and not rest:
            self.choices[family, role].options.update(value)
            for option in value:
                self._mark((family, role, "options", option), location.child(option))
            return
        name, options = _named(value, location, "a name, or a mapping with 'name' and options")
        self.entry(family, name, location)
        self._mark((family, role), location)
        self._choose(family, role, name, options, location)

    def _assign_option_anywhere(self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set an option in every role whose entry has it."""
        known: set[str] = set()
        for role in ROLES:
            choice = self.choices[family, role]
            options = self.entry(family, choice.name, location).Options.model_fields
            known |= set(options)
            if len(rest) == 1 and rest[0] in options:
                choice.options[rest[0]] = value
                self._mark((family, role, "options", rest[0]), location)
        if len(rest) > 1 or rest[0] not in known:
            name = ".".join(rest)
            raise location.error(f"unknown role or option '{name}'{nearest(name, {*known, *ROLES})}")

    def entry(self, family: str, name: str, location: SourceLocation) -> type[Entry]:
        """Look an entry up; an unknown name is an error at that place."""
        try:
            return self.registry.find(family, name).entry
        except HeadToHeadError as error:
            raise location.error(str(error)) from error

    def _assign_section(self, section: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if rest:
            self._assign_field(section, rest, value, location)
            return
        if not isinstance(value, Mapping):
            raise location.error(f"expected a mapping, got {shown(value)}")
        for key in sorted(value, key=lambda key: key != "dataset"):
            self._assign_field(section, tuple(key.split(".")), value[key], location.child(key))
            instead = _INSTEAD.get(key)
            if section == "train" and instead in value and value[instead] is not None:
                raise location.error("epochs and steps are both given; keep one of them")

    def _assign_field(self, section: str, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if section == "data":
            if path[0] == "dataset":
                self._choose_dataset(value, location)
            elif path[0] == "options" and len(path) == 1 and isinstance(value, Mapping):
                for option, one in value.items():
                    self._assign_dataset_option((option,), one, location.child(option))
                return
            elif path[0] == "options" or path[0] not in DataConfig.model_fields:
                named = path[1:] if path[0] == "options" else path
                self._assign_dataset_option(named or path, value, location)
                return
        if section == "train" and path[0] in _INSTEAD and value is not None:
            self.sections["train"].pop(_INSTEAD[path[0]], None)
        self._set(self.sections[section], SECTIONS[section], path, value, location, (section,))

    def _choose_dataset(self, value: Any, location: SourceLocation) -> None:
        if not isinstance(value, str):
            raise location.error(f"expected the name of a dataset, got {shown(value)}")
        self.entry("dataset", value, location)
        if value != self.sections["data"].get("dataset"):
            self.dataset_options.clear()

    def _assign_dataset_option(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        dataset = self.sections["data"].get("dataset", DataConfig().dataset)
        known = self.entry("dataset", dataset, location).Options.model_fields
        name = ".".join(path)
        if name not in known:
            fields = [*known, *(one for one in DataConfig.model_fields if one != "options")]
            raise location.error(f"unknown field '{name}' of dataset '{dataset}'{nearest(name, fields)}")
        if location.source.folder is not None and _holds_paths(known[name]):
            value = located(value, location.source.folder)
        self.dataset_options[name] = value
        self._mark(("data", "options", name), location)

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
            known = [one for one in model.model_fields if (*above, one) != ("data", "options")]
            unknown = f"unknown field '{name}'{nearest(name, known)}"
            raise location.error(_NO_FIELDS.get((*above, name), unknown))
        here = (*above, name)
        inner = section_of(model.model_fields[name].annotation)
        if inner is None and rest:
            raise location.error(f"'{name}' has no fields of its own, got '{'.'.join(rest)}'")
        if inner is None or not (rest or isinstance(value, Mapping)):
            tree[name] = value
            self._mark(here, location)
            return
        branch = tree[name] = dict(tree.get(name) or {})
        if rest:
            self._set(branch, inner, rest, value, location, here)
            return
        for key, one in value.items():
            self._set(branch, inner, tuple(key.split(".")), one, location.child(key), here)


def assignment_order(key: str) -> tuple[int, bool]:
    """Sort dotted keys: a whole before its parts, a dataset before its options."""
    return key.count("."), key != "data.dataset"


def _holds_paths(option: FieldInfo) -> bool:
    return any(isinstance(mark, FilePath) for mark in option.metadata)


def _named(value: Any, location: SourceLocation, expected: str) -> tuple[str, dict[str, Any]]:
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return value["name"], {key: one for key, one in value.items() if key != "name"}
    raise location.error(f"expected {expected}, got {shown(value)}")


def _as_written(path: FieldPath) -> FieldPath:
    """Drop the levels that sugar hides from a path inside a family."""
    hidden = {*ROLES, "options", "name"} if path[:1] and path[0] not in SECTIONS else set()
    return tuple(part for part in path if part not in hidden)


def _roles() -> str:
    return f"a mapping of {', '.join(ROLES[:-1])} and {ROLES[-1]}"


def _deep(tree: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _deep(one) if isinstance(one, dict) else one for key, one in tree.items()}
