"""From a ``ConfigBuilder`` to a complete ``RunConfig``: options, defaults, consistency."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.config.builder import FAMILIES, ConfigBuilder
from headtohead.config.loading import checked
from headtohead.config.source_location import FieldPath, Source, SourceLocation, shown
from headtohead.errors import nearest
from headtohead.plugins.registry import Registry
from headtohead.schema.config_input import SECTIONS, SHORTHANDS, DataInput, ModelInput
from headtohead.schema.roles import ROLES
from headtohead.schema.run_config import (
    NOTHING_HELD_OUT,
    BeamConfig,
    DataConfig,
    EvaluateConfig,
    InitFrom,
    ModelConfig,
    QuirksConfig,
    RunConfig,
    TrainConfig,
)


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

    def section(name: str) -> Any:
        raw = dict(builder.sections[name])
        if name == "data":
            raw["options"] = _dataset_options(builder)
        return checked(SECTIONS[name], raw, lambda path: builder.location((name, *path)))

    evaluate: EvaluateConfig = section("evaluate")
    if evaluate.decode == "beam" and evaluate.beam is None:
        evaluate = evaluate.model_copy(update={"beam": BeamConfig()})
    train: TrainConfig = section("train")
    quirks: QuirksConfig = section("quirks")
    families: dict[str, Any] = {family: {role: _entry(builder, family, role) for role in ROLES} for family in FAMILIES}
    return RunConfig(
        data=complete_data(section("data"), builder.registry),
        model=complete_model(section("model")),
        train=train,
        evaluate=evaluate,
        quirks=quirks,
        init_from=None if builder.init_from is None else InitFrom(run=builder.init_from, weights=builder.init_from),
        **families,
    )


def build_consistent_config(builder: ConfigBuilder) -> RunConfig:
    """Return ``build_config(builder)``; contradictory fields are an error."""
    config = build_config(builder)
    contradiction = find_contradiction(config, builder.registry)
    if contradiction:
        path, reason = contradiction
        raise builder.location(path).error(reason)
    return config


def complete_data(data: DataInput, registry: Registry) -> DataConfig:
    """Complete the section with the default split and normalisation of the dataset."""
    dataset = registry.dataset(data.dataset)
    defaults = {"split": dataset.splits[0], "normalise": dataset.normalise}
    return DataConfig(**defaults | _given(data))


def complete_model(model: ModelInput) -> ModelConfig:
    """Complete the section: ``layers``, ``dropout`` and ``norm`` set the defaults of other fields."""
    defaults: dict[str, Any] = {"final_norm": model.norm == "pre"}
    for (_, shorthand), names in SHORTHANDS.items():
        defaults |= dict.fromkeys(names, getattr(model, shorthand))
    given = _given(model)
    return ModelConfig(**defaults | {name: given[name] for name in given if name in ModelConfig.model_fields})


def _given(section: DataInput | ModelInput) -> dict[str, Any]:
    fields = {name: getattr(section, name) for name in type(section).model_fields}
    return {name: value for name, value in fields.items() if value is not None}


def _entry(builder: ConfigBuilder, family: str, role: str) -> dict[str, Any]:
    selection = builder.entries[family, role]
    entry = builder.registry.find(family, selection.name).entry
    options = checked(entry.Options, selection.options, lambda path: builder.location((family, role, "options", *path)))
    return {"name": selection.name, "options": options.model_dump(mode="json")}


def _dataset_options(builder: ConfigBuilder) -> dict[str, Any]:
    name = builder.sections["data"].get("dataset", DataInput().dataset)
    entry = builder.entry("dataset", name, builder.location(("data", "dataset")))
    options = checked(entry.Options, builder.dataset_options, lambda path: builder.location(("data", "options", *path)))
    return options.model_dump(mode="json")


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
