"""``ConfigBuilder``: values merged from recipe, base, axes and ``--set``, each with its source location.

It accepts the notations of experiment files: an entry as a name, as a mapping with ``name`` and
options, or as a mapping by role; dotted keys; dataset options beside ``dataset``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headtohead.config.source_location import FieldPath, Source, SourceLocation, located, shown
from headtohead.config.validation_errors import section_of, suggest_field, suggest_lists
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.entry import Entry
from headtohead.plugins.registry import Registry
from headtohead.schema.experiment_file import ExperimentFile
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import INIT_FROM, SECTIONS, SHORTHANDS, DataConfig
from headtohead.schema.sections import FilePath

FAMILIES = ("positional", "attention", "masking")
DEFAULTS = {"positional": "sinusoidal", "attention": "split-heads", "masking": "padding-causal"}

_EXCLUSIVE = {"epochs": "steps", "steps": "epochs", "batch_size": "batch_tokens", "batch_tokens": "batch_size"}
"""Fields of ``train`` that replace each other."""

_FLAGS = {"seeds": "--seeds N", "name": "--name LABEL", "plugins": "--plugin FILE"}
"""Fields of an experiment file for which commands have an option."""


class ConfigBuilder:
    """Values by configuration path, such as ``("positional", "encoder", "options", "theta")``; later ones override."""

    def __init__(self, registry: Registry, root: SourceLocation | None = None) -> None:
        self.registry = registry
        self.root = root or SourceLocation(Source("configuration"))
        self.values: dict[FieldPath, tuple[Any, SourceLocation]] = {}
        for family, name in DEFAULTS.items():
            self._select_in_all_roles(family, name, {}, self.root.child(family))

    def copy(self) -> ConfigBuilder:
        """Return an independent copy."""
        twin = object.__new__(ConfigBuilder)
        twin.registry, twin.root, twin.values = self.registry, self.root, dict(self.values)
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
        if fields and all((head, name) in self.values for name in fields):
            names = ", ".join(fields)
            raise location.error(
                f"'{path[1]}' changes nothing, because its fields are set ({names}); change those instead"
            )
        if head in FAMILIES:
            self._assign_family(head, rest, value, location)
        elif head in SECTIONS:
            self._assign_field((head,), SECTIONS[head], rest, value, location)
        elif head != INIT_FROM:
            raise location.error(f"unknown field '{head}'{_suggestion(path)}")
        elif rest or not (value is None or (isinstance(value, str) and value)):
            raise location.error(f"expected the name or the directory of a run, got {shown(value)}")
        else:
            self._set((INIT_FROM,), value, location)

    def value(self, *path: str, default: Any = None) -> Any:
        """Return the value at a configuration path."""
        return self.values[path][0] if path in self.values else default

    def nested(self, *above: str) -> dict[str, Any]:
        """Return the values below a configuration path as nested mappings."""
        tree: dict[str, Any] = {}
        for path, (value, _) in self.values.items():
            if path[: len(above)] == above and len(path) > len(above):
                branch = tree
                for part in path[len(above) : -1]:
                    branch = branch.setdefault(str(part), {})
                branch[str(path[-1])] = value
        return tree

    def location(self, path: FieldPath) -> SourceLocation:
        """Return the source location of the value at a configuration path."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.values:
                return self.values[path[:length]][1].child(*path[length:])
            if (*path[:length], "name") in self.values:
                return self.values[(*path[:length], "name")][1]
        shorthands = (key for key, names in SHORTHANDS.items() if path[0] == key[0] and path[1:2] and path[1] in names)
        set_by = next((key for key in shorthands if key in self.values), None)
        return self.values[set_by][1] if set_by else self.root.child(*path)

    def _set(self, path: FieldPath, value: Any, location: SourceLocation) -> None:
        """Set a value in place of the values inside it and of a value around it."""
        for other in [other for other in self.values if other[: len(path)] == path or path[: len(other)] == other]:
            del self.values[other]
        self.values[path] = value, location

    def entry(self, family: str, name: str, location: SourceLocation) -> type[Entry]:
        """Return a registered entry; an unknown name is an error at ``location``."""
        try:
            return self.registry.find(family, name).entry
        except HeadToHeadError as error:
            raise location.error(str(error)) from error

    def _assign_family(self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if rest and rest[0] in ROLES:
            self._assign_role(family, rest[0], rest[1:], value, location)
        elif rest:
            self._assign_option_anywhere(family, rest, value, location)
        elif isinstance(value, Mapping) and "name" not in value and set(value) <= set(ROLES):
            for role, selection in value.items():
                self._assign_role(family, role, (), selection, location.child(role))
        elif isinstance(value, list):
            raise location.error(f"expected one entry, got {shown(value)}{suggest_lists(value, family)}")
        else:
            name, options = named_parts(value, location, "name")
            self._select_in_all_roles(family, name, options, location)

    def _select_in_all_roles(
        self, family: str, name: str, options: Mapping[str, Any], location: SourceLocation
    ) -> None:
        entry = self.entry(family, name, location)
        for role in ROLES:
            default = entry.role_defaults.get(role, name)
            self._select(family, role, default, options if default == name else {}, location)

    def _select(self, family: str, role: str, name: str, options: Mapping[str, Any], location: SourceLocation) -> None:
        self._set((family, role), name, location)
        self._set((family, role, "name"), name, location)
        for option, value in options.items():
            self._set((family, role, "options", option), value, location.child(option))

    def _assign_role(self, family: str, role: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        if len(rest) > 1:
            raise location.error(f"unknown field '{'.'.join(rest)}'")
        if rest and rest != ("name",):
            self._set((family, role, "options", rest[0]), value, location)
        elif isinstance(value, Mapping) and "name" not in value and not rest:
            for option, setting in value.items():
                self._set((family, role, "options", option), setting, location.child(option))
        else:
            name, options = named_parts(value, location, "name")
            self.entry(family, name, location)
            self._select(family, role, name, options, location)

    def _assign_option_anywhere(self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set an option in each role where the entry has it."""
        name, known = ".".join(rest), set(ROLES)
        options = {role: self.entry(family, self.value(family, role, "name"), location).Options for role in ROLES}
        for role, model in options.items():
            known |= set(model.model_fields)
            if name in model.model_fields:
                self._set((family, role, "options", name), value, location)
        if name not in known:
            raise location.error(f"unknown role or option '{name}'{nearest(name, known)}")

    def _assign_field(
        self, above: FieldPath, model: type[BaseModel], path: Sequence[str], value: Any, location: SourceLocation
    ) -> None:
        """Set the field ``path`` of a section, or without a path merge a mapping into the section."""
        if not path:
            self._merge_section(above, model, value, location)
            return
        name, rest = path[0], path[1:]
        if above == ("data",) and (name == "options" or name not in model.model_fields):
            self._assign_dataset_options(path[1:] if name == "options" else path, value, location)
            return
        if name not in model.model_fields:
            hint = suggest_field(name, model.model_fields, str(above[0]))
            raise location.error(f"unknown field '{name}'{hint}")
        info = model.model_fields[name]
        inner = section_of(info.annotation)
        if inner is None and rest:
            raise location.error(f"'{name}' is a value without fields, got '{'.'.join(rest)}'")
        if inner is not None and (rest or isinstance(value, Mapping)):
            self._assign_field((*above, name), inner, rest, value, location)
            return
        if (*above, name) == ("data", "dataset"):
            self._check_dataset(value, location)
        if above == ("train",) and name in _EXCLUSIVE and value is not None:
            self.values.pop(("train", _EXCLUSIVE[name]), None)
        self._set((*above, name), _with_absolute_paths(value, info, location), location)

    def _merge_section(self, above: FieldPath, model: type[BaseModel], value: Any, location: SourceLocation) -> None:
        if not isinstance(value, Mapping):
            hint = f"; type data: {{dataset: {value}}}" if above == ("data",) and isinstance(value, str) else ""
            raise location.error(f"expected a mapping, got {shown(value)}{hint}")
        if above == ("train",):
            refuse_both(value, "", location)
        if len(above) > 1 and not self.nested(*map(str, above)):
            self._set(above, {}, location)
        for key in sorted(value, key=lambda key: key != "dataset"):
            self._assign_field(above, model, key.split("."), value[key], location.child(key))

    def _check_dataset(self, value: Any, location: SourceLocation) -> None:
        if not isinstance(value, str):
            raise location.error(f"expected the name of a dataset, got {shown(value)}")
        if Path(value).suffix in (".csv", ".tsv", ".txt", ".json", ".jsonl"):
            raise location.error(f"'{value}' is a file, not a dataset; type dataset: pairs with file: {value}")
        self.entry("dataset", value, location)
        if value != self.dataset:
            self.values = {path: kept for path, kept in self.values.items() if path[:2] != ("data", "options")}

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return str(self.value("data", "dataset", default=DataConfig().dataset))

    def _assign_dataset_options(self, path: Sequence[str], value: Any, location: SourceLocation) -> None:
        if not path and isinstance(value, Mapping):
            for option, setting in value.items():
                self._assign_dataset_options((option,), setting, location.child(option))
            return
        known = self.entry("dataset", self.dataset, location).Options.model_fields
        name = ".".join(path) or "options"
        if name not in known:
            fields = [*known, *(field for field in DataConfig.model_fields if field != "options")]
            hint = suggest_field(name, fields, "data")
            raise location.error(f"unknown field '{name}' of dataset '{self.dataset}'{hint}")
        self._set(("data", "options", name), _with_absolute_paths(value, known[name], location), location)


def assignment_order(key: str) -> tuple[int, bool]:
    """Sort key of assignments: sections before their fields, a dataset before its options."""
    return key.count("."), key != "data.dataset"


def refuse_both(values: Mapping[str, Any], prefix: str, location: SourceLocation) -> None:
    """Raise an error if a mapping gives two fields of ``train`` that replace each other."""
    for name, other in _EXCLUSIVE.items():
        if values.get(prefix + name) is not None and values.get(prefix + other) is not None:
            raise location.error(f"{prefix}{name} and {prefix}{other} are both given; keep one of them")


def _with_absolute_paths(value: Any, info: FieldInfo, location: SourceLocation) -> Any:
    is_path = any(isinstance(marker, FilePath) for marker in info.metadata)
    folder = location.source.folder
    return located(value, folder) if is_path and folder is not None else value


def named_parts(value: Any, location: SourceLocation, key: str) -> tuple[str, dict[str, Any]]:
    """Return the name that a value has under ``key`` and its other fields; a text is a name without fields."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get(key), str):
        return value[key], {field: setting for field, setting in value.items() if field != key}
    raise location.error(f"expected a name, or a mapping with '{key}' and fields, got {shown(value)}")


def _suggestion(path: tuple[str, ...]) -> str:
    """Return what an unknown first field may stand for."""
    head, rest = path[0], path[1:]
    if head in ("base", "baseline") and rest:
        return f"; did you mean '{'.'.join(rest)}'?"
    if head in ExperimentFile.model_fields:
        option = f"; type {_FLAGS[head]} instead of --set" if head in _FLAGS else ""
        return f"; it is a field of the experiment file, outside base{option}"
    return suggest_field(head, [*FAMILIES, *SECTIONS, INIT_FROM], "base")
