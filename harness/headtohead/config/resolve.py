"""From a ``ConfigBuilder`` to a complete ``RunConfig``: options, defaults, consistency."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headtohead.config.builder import FAMILIES, ConfigBuilder
from headtohead.config.source_location import FieldPath, Source, SourceLocation, shown
from headtohead.config.validation_errors import checked
from headtohead.errors import nearest
from headtohead.plugins.registry import Registry
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import (
    INIT_FROM,
    NOTHING_HELD_OUT,
    SECTIONS,
    SHORTHANDS,
    BeamConfig,
    DataConfig,
    EntryConfig,
    InitFrom,
    ModelConfig,
    ModelInput,
    PerRole,
    RunConfig,
)
from headtohead.schema.sections import Options


def resolve(raw: Mapping[str, Any], registry: Registry, label: str = "configuration") -> RunConfig:
    """Return the run configuration of a nested mapping with the fields of an experiment file's ``base``.

    Raises:
        HeadToHeadError: For an unknown name or field, a wrong type, or contradictory fields.
    """
    builder = ConfigBuilder(registry, SourceLocation(Source(label)))
    merge_base(builder, raw, builder.root)
    return build_consistent_config(builder)


def merge_base(builder: ConfigBuilder, base: Mapping[str, Any], location: SourceLocation) -> None:
    """Merge the recipe named in ``base``, then the other values of ``base``."""
    if "recipe" in base:
        merge_recipe(builder, base["recipe"], location.child("recipe"))
    builder.merge({key: value for key, value in base.items() if key != "recipe"}, location)


def merge_recipe(builder: ConfigBuilder, name: Any, location: SourceLocation) -> None:
    """Merge the values of the recipe that is named at ``location``."""
    if not isinstance(name, str):
        raise location.error(f"expected the name of a recipe, got {shown(name)}")
    builder.entry("recipe", name, location)
    builder.merge(builder.registry.recipe(name).config, SourceLocation(Source(f"recipe '{name}'")))


def build_config(builder: ConfigBuilder) -> RunConfig:
    """Return the complete configuration; equal configurations are equal however they were written.

    Contradictory fields are not an error here, because a variant may still be excluded.

    Raises:
        HeadToHeadError: For an unknown name or field, or a wrong type.
    """

    def options(family: str, name: str, *path: str) -> Options:
        model = builder.registry.find(family, name).entry.Options
        values = builder.nested(*path, "options")
        return checked(model, values, lambda inside: builder.location((*path, "options", *inside)))

    def per_role(family: str) -> PerRole:
        names = {role: builder.value(family, role, "name") for role in ROLES}
        return PerRole(
            **{
                role: EntryConfig(name=name, options=options(family, name, family, role))
                for role, name in names.items()
            }
        )

    sections: dict[str, Any] = {}
    for name, model in SECTIONS.items():
        raw = {field: value for field, value in builder.nested(name).items() if (name, field) != ("data", "options")}
        if name == "model":
            raw["d_ff"] = times_width(raw.get("d_ff", ModelInput().d_ff), raw.get("d_model", ModelInput().d_model))
        sections[name] = checked(model, raw, lambda path, name=name: builder.location((name, *path)))  # type: ignore[misc]
    evaluate = sections["evaluate"]
    if evaluate.decode == "beam" and evaluate.beam is None:
        sections["evaluate"] = evaluate.model_copy(update={"beam": BeamConfig()})
    data = complete_data(sections["data"], builder.registry)
    run = builder.value(INIT_FROM)
    return RunConfig(
        **sections
        | {family: per_role(family) for family in FAMILIES}
        | {
            "data": data.model_copy(update={"options": options("dataset", data.dataset, "data")}),
            "model": complete_model(sections["model"]),
            INIT_FROM: None if run is None else InitFrom(run=run, weights=run),
        }
    )


def times_width(d_ff: Any, d_model: Any) -> Any:
    """Return the width that a text such as ``4x`` stands for; other values are unchanged."""
    if isinstance(d_ff, str) and re.fullmatch(r"[0-9]{1,3}(\.[0-9]{1,3})?x", d_ff) and isinstance(d_model, int):
        return round(float(d_ff.removesuffix("x")) * d_model)
    return d_ff


def build_consistent_config(builder: ConfigBuilder) -> RunConfig:
    """Return ``build_config(builder)``; contradictory fields are an error."""
    config = build_config(builder)
    contradiction = find_contradiction(config, builder.registry)
    if contradiction:
        path, reason = contradiction
        raise builder.location(path).error(reason)
    return config


def complete_data(data: DataConfig, registry: Registry) -> DataConfig:
    """Complete the section with the default split and normalisation of the dataset."""
    dataset = registry.dataset(data.dataset)
    defaults = {"split": dataset.splits[0], "normalise": dataset.normalise}
    return data.model_copy(
        update={name: default for name, default in defaults.items() if name not in data.model_fields_set}
    )


def complete_model(model: ModelInput) -> ModelConfig:
    """Complete the section: ``layers``, ``dropout`` and ``norm`` set the defaults of other fields."""
    defaults: dict[str, Any] = {"final_norm": model.norm == "pre"}
    for (_, shorthand), names in SHORTHANDS.items():
        defaults |= dict.fromkeys(names, getattr(model, shorthand))
    given = {name: getattr(model, name) for name in model.model_fields_set & set(ModelConfig.model_fields)}
    return ModelConfig(**defaults | given)


def find_contradiction(config: RunConfig, registry: Registry) -> tuple[FieldPath, str] | None:
    """Return the field and the reason if valid fields contradict each other, else None."""
    train, data = config.train, config.data
    if train.epochs is None and train.steps is None:
        return ("train",), "give epochs or steps; neither is set"
    if config.evaluate.beam is not None and config.evaluate.decode != "beam":
        reason = (
            f"beam search requires evaluate.decode: beam, got decode '{config.evaluate.decode}'; "
            "set that, or leave evaluate.beam out"
        )
        return ("evaluate", "beam"), reason
    if config.model.tie_embeddings == "all" and not data.vocabulary.shared:
        reason = "tie_embeddings 'all' requires one vocabulary; set data.vocabulary.shared: true"
        return ("model", "tie_embeddings"), reason
    splits = (*registry.dataset(data.dataset).splits, NOTHING_HELD_OUT)
    if data.split not in splits:
        hint = nearest(data.split, splits)
        return ("data", "split"), f"dataset '{data.dataset}' has no split '{data.split}'{hint}"
    for name in ("valid", "test"):
        part = getattr(data, name)
        if part >= 1 and part != int(part):
            reason = f"expected a fraction below 1 or a whole number of pairs, got {part}"
            return ("data", name), reason
    return None
