"""``ConfigBuilder``: from the notations of experiment files to a complete ``RunConfig``.

Values of recipe, base, axes and ``--set`` are merged, each with its source location. An entry is given as a name, as a
mapping with ``name`` and options, or as a mapping by role. Keys may be dotted. Options of a dataset are written as
fields of ``data``, or in ``data.options``.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import combinations
from pathlib import Path
from typing import Any, TypeVar, cast

from pydantic import BaseModel

from headtohead.config.source_location import FieldPath, Source, SourceLocation, located, shown
from headtohead.config.validation_errors import checked, section_of, suggest_field, suggest_lists
from headtohead.errors import HeadToHeadError, nearest
from headtohead.plugins.entry import Entry
from headtohead.plugins.registry import current
from headtohead.schema.run_config import (
    NOTHING_HELD_OUT,
    SECTIONS,
    SHORTHANDS,
    DataConfig,
    EntryConfig,
    ModelConfig,
    PerRole,
    PerSide,
    RunConfig,
    SpecialTokens,
)
from headtohead.schema.sections import is_path

Model = TypeVar("Model", bound=BaseModel)

DEFAULTS = {
    "positional": "sinusoidal",
    "attention": "split-heads",
    "masking": "padding-causal",
    "feed_forward": "relu",
    "norm": "layernorm",
}
FAMILIES = tuple(DEFAULTS)
ROLES_OF = {
    family: tuple(cast("type[BaseModel]", RunConfig.model_fields[family].annotation).model_fields)
    for family in FAMILIES
}
"""The roles in which a family has entries."""

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
        for family, name in DEFAULTS.items():
            self.assign((family,), name, self.root.child(family))

    def copy(self) -> ConfigBuilder:
        """Return an independent copy."""
        twin = copy.copy(self)
        twin.values = dict(self.values)
        return twin

    def merge(self, values: Mapping[str, Any], location: SourceLocation) -> None:
        """Merge a mapping such as ``base``: its recipe first, and dotted keys after whole sections."""
        if "recipe" in values:
            self.merge_recipe(values["recipe"], location.child("recipe"))
        refuse_both(values, location)
        for path, names in SHORTHANDS.items():
            section, shorthand = values.get(path[0]), ".".join(path)
            beside = [name for name in names if isinstance(section, Mapping) and name in section]
            if beside and shorthand in values:
                raise location.error(
                    f"{shorthand} would override {path[0]}.{beside[0]}; write both below {path[0]}"
                )
        for key in sorted(values, key=assignment_order):
            if key != "recipe":
                self.assign(tuple(key.split(".")), values[key], location.child(key))

    def merge_recipe(self, name: Any, location: SourceLocation) -> None:
        """Merge the values of the recipe that is named at ``location``."""
        if not isinstance(name, str):
            raise location.error(f"expected the name of a recipe, got {shown(name)}")
        self._entry("recipe", name, location)
        self.merge(current().recipe(name).config, SourceLocation(Source(f"recipe '{name}'")))

    def assign(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set a field, a family, a role or an option, or merge a mapping into a section."""
        head, rest = path[0], path[1:]
        if head in FAMILIES:
            self._assign_entry(head, rest, value, location)
        elif head in SECTIONS:
            if path == ("data",) and isinstance(value, str):
                path = ("data", "dataset")
            elif not rest and not isinstance(value, Mapping):
                raise location.error(f"expected a mapping, got {shown(value)}")
            self._assign_field(path, value, location)
        else:
            hint = suggest_field(head, [*FAMILIES, *SECTIONS], "base")
            raise location.error(f"unknown field '{head}'{hint}")

    def value(self, *path: str) -> Any:
        """Return the value at a configuration path, or None."""
        return self.values[path][0] if path in self.values else None

    def nested(self, *above: str) -> dict[str, Any]:
        """Return the values below a configuration path as nested mappings."""
        tree: dict[str, Any] = {}
        for path, (value, _) in self.values.items():
            if path[: len(above)] == above and len(path) > len(above):
                branch = tree
                for part in path[len(above) : -1]:
                    branch = branch.setdefault(str(part), {})
                if value == {}:
                    branch.setdefault(str(path[-1]), {})
                else:
                    branch[str(path[-1])] = value
        return tree

    def location(self, path: FieldPath) -> SourceLocation:
        """Return the source location of the value at a path, of a value around it or of the first value inside it."""
        for length in range(len(path), 0, -1):
            if path[:length] in self.values:
                return self.values[path[:length]][1].child(*path[length:])
        inside = (
            at
            for other, (_, at) in self.values.items()
            if len(path) > 1 and other[: len(path)] == path
        )
        return next(inside, None) or self.root.child(*path)

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
            return current().find(family, name).entry
        except HeadToHeadError as error:
            raise location.error(str(error)) from error

    def _assign_entry(
        self, family: str, rest: tuple[str, ...], value: Any, location: SourceLocation
    ) -> None:
        """Set the name of an entry, options or both, in one role or in all."""
        every = ROLES_OF[family]
        roles, rest = ((rest[0],), rest[1:]) if rest[:1] and rest[0] in every else (every, rest)
        if len(rest) > 1:
            raise location.error(f"unknown field '{'.'.join(rest)}'")
        is_options = isinstance(value, Mapping) and "name" not in value and not rest
        if rest and rest != ("name",):
            self._assign_option(family, roles, rest[0], value, location)
        elif is_options and (roles != every or set(value) <= {*every}):
            for key, setting in value.items():
                self._assign_entry(
                    family,
                    (key,) if roles == every else (*roles, key),
                    setting,
                    location.child(key),
                )
        elif isinstance(value, list) and (len(roles) > 1 or rest or not value):
            layers = f"; for a pattern of layers, type {family}: {{decoder: [...]}}" * bool(value)
            raise location.error(
                f"expected one entry, got {shown(value)}{suggest_lists(value, family)}{layers}"
            )
        elif isinstance(value, list):
            self._set((family, roles[0]), {}, location)
            for layer, item in enumerate(value):
                path = (family, roles[0], *(("next_layers", str(layer)) if layer else ()))
                name, options = named_parts(item, location.child(layer), "name")
                self._entry(family, name, location.child(layer))
                self._set((*path, "name"), name, location.child(layer))
                for option, setting in options.items():
                    self._set((*path, "options", option), setting, location.child(layer, option))
        else:
            name, options = named_parts(value, location, "name")
            entry = self._entry(family, name, location)
            defaults = entry.role_defaults if roles == every else {}
            for role in roles:
                self._set((family, role), {}, location)
                self._set((family, role, "name"), defaults.get(role, name), location)
                for option, setting in options.items() if defaults.get(role, name) == name else ():
                    self._set((family, role, "options", option), setting, location.child(option))

    def _assign_option(
        self, family: str, roles: tuple[str, ...], name: str, value: Any, location: SourceLocation
    ) -> None:
        """Set an option of one role, or in each role where the entry has it."""
        known = {
            role: self._entry(
                family, self.value(family, role, "name"), location
            ).Options.model_fields
            for role in roles
        }
        chosen = roles if len(roles) == 1 else [role for role in roles if name in known[role]]
        if not chosen:
            names = {
                *ROLES_OF[family],
                *(option for options in known.values() for option in options),
            }
            hint = self._owners(family, name) or nearest(name, names)
            raise location.error(
                f"{family} '{self.value(family, roles[0], 'name')}' has no role or option '{name}'{hint}"
            )
        for role in chosen:
            self._set((family, role, "options", name), value, location)

    def _owners(self, family: str, option: str) -> str:
        """Return which entries have an option, as a suffix of a message, or an empty text if none has it."""
        entries = current().entries[family]
        owners = [
            name for name in sorted(entries) if option in entries[name].entry.Options.model_fields
        ]
        return f"; {', '.join(owners)} {'has' if len(owners) == 1 else 'have'} it" if owners else ""

    def _assign_field(self, path: tuple[str, ...], value: Any, location: SourceLocation) -> None:
        """Set a field of a section, or merge a mapping into a section; `build` validates the values."""
        if path in SHORTHANDS:
            if isinstance(value, list):
                raise location.error(
                    f"expected a number, got {shown(value)}{suggest_lists(value, '.'.join(path))}"
                )
            for name in SHORTHANDS[path]:
                self._set((path[0], name), value, location)
            return
        if path[1:] and is_dataset_option(path) and path[1] != "options":
            path = ("data", "options", *path[1:])
        if path == ("data", "options") and not isinstance(value, Mapping):
            raise location.error(f"expected a mapping, got {shown(value)}")
        is_option = path[:2] == ("data", "options") and len(path) > 2
        if (
            isinstance(value, Mapping)
            and not is_option
            and (value or len(path) == 1 or self.nested(*path))
        ):
            refuse_both(value, location, path)
            for key in sorted(value, key=assignment_order):
                self._assign_field((*path, *key.split(".")), value[key], location.child(key))
            return
        if path == ("data", "dataset"):
            if not isinstance(value, str):
                raise location.error(f"expected the name of a dataset, got {shown(value)}")
            if Path(value).suffix in (".csv", ".tsv", ".txt", ".json", ".jsonl"):
                raise location.error(
                    f"'{value}' is a file, not a dataset; type dataset: pairs with file: {value}"
                )
            self._entry("dataset", value, location)
            if value != self.dataset:
                self._check_option_names()
                self.values = {
                    path: kept for path, kept in self.values.items() if not is_dataset_option(path)
                }
        for pair in _EXCLUSIVE if value is not None else ():
            for other in pair if path in pair else ():
                self.values.pop(other, None)
        folder = location.source.folder
        if folder and path[0] == "data" and self._is_file(path):
            value = located(value, folder)
        self._set(path, value, location)

    @property
    def dataset(self) -> str:
        """The name of the dataset."""
        return self.value("data", "dataset") or DataConfig().dataset

    def build(self) -> RunConfig:
        """Return the complete configuration; equal configurations are equal however they were written.

        Contradictory fields are not an error here, because a variant may still be excluded.

        Raises:
            HeadToHeadError: For an unknown name or field, or a wrong type.
        """
        raw = {name: self.nested(name) for name in SECTIONS}
        dataset, written = current().dataset(self.dataset), raw["data"]
        self._check_option_names()
        options = written.pop("options", {})
        raw["data"] = {"split": dataset.splits[0], "normalise": dataset.normalise} | written
        raw = {name: {**dataset.defaults.get(name, {}), **section} for name, section in raw.items()}
        words = written.get("vocabulary", {})
        decoder_only = raw["model"].get("architecture") == "decoder-only"
        if decoder_only and isinstance(words, Mapping):
            raw["data"]["vocabulary"] = {"shared": True, **words}
        if "d_ff" in raw["model"]:
            raw["model"]["d_ff"] = times_width(
                raw["model"]["d_ff"], raw["model"].get("d_model", ModelConfig().d_model)
            )
        sections: dict[str, Any] = {
            name: self._checked(model, raw[name], name) for name, model in SECTIONS.items()
        }
        given = sections["model"].model_dump(exclude_unset=True)
        sections["model"] = ModelConfig(**{"final_norm": sections["model"].norm != "post"} | given)
        if decoder_only:  # there is no source embedding to share
            tied = {"all": "output", "embeddings": "none"}.get(
                tied := sections["model"].tie_embeddings, tied
            )
            sections["model"] = sections["model"].model_copy(update={"tie_embeddings": tied})
        parsed = self._checked(dataset.Options, options, "data", "options")
        sections["data"] = sections["data"].model_copy(update={"options": parsed})
        for family in FAMILIES:
            roles = {}
            for role, chosen in self.nested(family).items():
                roles[role] = self._built(chosen, family, role)
            if decoder_only and "cross" not in roles:
                roles["encoder"] = roles["decoder"]  # a default that is not in the hash
            sections[family] = (PerRole if "cross" in roles else PerSide)(**roles)
        return RunConfig(**sections)

    def _built(self, chosen: Mapping[str, Any], *above: str) -> EntryConfig:
        model = current().find(above[0], chosen["name"]).entry.Options
        options = self._checked(model, chosen.get("options", {}), *above, "options")
        layers = chosen.get("next_layers", {}).items()
        later = tuple(self._built(entry, *above, "next_layers", layer) for layer, entry in layers)
        first = EntryConfig(name=chosen["name"], options=options)
        return (
            first
            if all(entry == first for entry in later)
            else first.model_copy(update={"next_layers": later})
        )

    def build_consistent(self) -> RunConfig:
        """Return the complete configuration; contradictory fields are an error."""
        config = self.build()
        contradiction = find_contradiction(config)
        if contradiction:
            path, reason = contradiction
            raise self.location(path).error(reason)
        return config

    def _check_option_names(self) -> None:
        known = current().dataset(self.dataset).Options.model_fields
        for name in self.nested("data", "options"):
            if name not in known:
                hint = self._owners("dataset", name) or suggest_field(
                    name, [*known, *DataConfig.model_fields], "data"
                )
                message = f"unknown field '{name}' of dataset '{self.dataset}'{hint}"
                raise self.location(("data", "options", name)).error(message)

    def _checked(self, model: type[Model], values: Mapping[str, Any], *above: str) -> Model:
        return checked(model, values, lambda inside: self.location((*above, *inside)))

    def _is_file(self, path: tuple[str, ...]) -> bool:
        """Return whether a field of the data section holds paths of files."""
        model: type[BaseModel] | None = DataConfig
        if is_dataset_option(path):
            model = current().dataset(self.dataset).Options
        info = None
        for part in path[2:] if is_dataset_option(path) else path[1:]:
            info = model.model_fields.get(part) if model else None
            model = section_of(info.annotation) if info else None
        return info is not None and is_path(info)


def assignment_order(key: str) -> tuple[int, bool]:
    """Sort key of assignments: sections before their fields, a dataset and shorthands before the fields they set."""
    return key.count("."), key not in _FIRST


def is_dataset_option(path: FieldPath) -> bool:
    """Return whether a path is in ``data.options``, or in ``data`` but not a field of `DataConfig`."""
    return path[0] == "data" and (path[1] == "options" or path[1] not in DataConfig.model_fields)


def refuse_both(values: Mapping[str, Any], location: SourceLocation, above: FieldPath = ()) -> None:
    """Raise an error if a mapping at the path ``above`` gives fields that replace each other."""
    twice = Counter(_leaves(values, "".join(f"{name}." for name in above))).most_common(1)
    if twice and twice[0][1] > 1:
        raise location.error(f"{twice[0][0]} is given twice; keep one of them")
    given = {(*above, *key.split(".")): key for key, value in values.items() if value is not None}
    replaced = [
        (path, tuple((path[0], name) for name in names)) for path, names in SHORTHANDS.items()
    ]
    for path, others in (
        *replaced,
        *((one, (other,)) for group in _EXCLUSIVE for one, other in combinations(group, 2)),
    ):
        if path in given and all(other in given for other in others):
            names = " + ".join(given[other] for other in others)
            raise location.error(f"{given[path]} and {names} are both given; keep one of them")


def _leaves(values: Mapping[str, Any], above: str = "") -> Iterator[str]:
    """Yield the dotted path of each value in nested mappings."""
    for key, value in values.items():
        path = (above + key).replace("data.options.", "data.")
        yield from _leaves(value, f"{path}.") if value and isinstance(value, Mapping) else (path,)


def named_parts(value: Any, location: SourceLocation, key: str) -> tuple[str, dict[str, Any]]:
    """Return the name that a value has under ``key`` and its other fields; a text is a name without fields."""
    if isinstance(value, str):
        return value, {}
    if isinstance(value, Mapping) and isinstance(value.get(key), str):
        return value[key], {field: setting for field, setting in value.items() if field != key}
    raise location.error(
        f"expected a name, or a mapping with '{key}' and fields, got {shown(value)}"
    )


def times_width(d_ff: Any, d_model: Any) -> Any:
    """Return the width that a text such as ``4x`` stands for; other values are unchanged."""
    if (
        isinstance(d_ff, str)
        and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?x", d_ff)
        and isinstance(d_model, int)
    ):
        return round(float(d_ff.removesuffix("x")) * d_model)
    return d_ff


def find_contradiction(config: RunConfig) -> tuple[FieldPath, str] | None:
    """Return the field and the reason if valid fields contradict each other, else None."""
    train, data = config.train, config.data
    if train.epochs is train.steps is train.tokens is None:
        return ("train",), "give epochs, steps or tokens; none is set"
    decoder_only = config.model.architecture == "decoder-only"
    if decoder_only and not data.vocabulary.shared:
        reason = "a decoder-only model has one vocabulary; leave data.vocabulary.shared out"
        return ("data", "vocabulary", "shared"), reason
    if not (decoder_only or config.model.encoder_layers):
        reason = "an encoder-decoder has at least one encoder layer; for none, set model.architecture: decoder-only"
        return ("model", "encoder_layers"), reason
    if config.model.tie_embeddings == "all" and not data.vocabulary.shared:
        reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
        return ("model", "tie_embeddings"), reason
    dataset = current().dataset(data.dataset)
    own_defaults = {"normalise": dataset.normalise, **dataset.defaults.get("data", {})}
    for name, advice in dataset.unused.items():
        section, last = (data.vocabulary if "." in name else data), name.rpartition(".")[2]
        default = own_defaults.get(name, type(section).model_fields[last].default)
        if getattr(section, last) != default:
            return ("data", *name.split(".")), f"dataset '{data.dataset}' does not use it; {advice}"
    if data.vocabulary.file is None and data.vocabulary.special_tokens != SpecialTokens():
        return (
            "data",
            "vocabulary",
            "special_tokens",
        ), "requires data.vocabulary.file; set it, or leave this out"
    for name, field in type(data.options).model_fields.items():
        if (
            getattr(data.options, name) != field.default
            and dataset.of_split.get(name, data.split) != data.split
        ):
            reason = f"{name} has no effect with split: {data.split}; set data.split: {dataset.of_split[name]}"
            return ("data", "options", name), reason
    splits = (*dataset.splits, NOTHING_HELD_OUT)
    if data.split not in splits:
        hint = nearest(data.split, splits)
        return ("data", "split"), f"dataset '{data.dataset}' has no split '{data.split}'{hint}"
    return None
