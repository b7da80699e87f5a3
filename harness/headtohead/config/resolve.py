"""A draft, resolved: options validated, every default filled in, contradictions refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headtohead.config.builder import FAMILIES, ConfigBuilder
from headtohead.config.loading import checked
from headtohead.config.source_location import FieldPath, SourceLocation, Source, shown
from headtohead.errors import nearest
from headtohead.plugins.registry import Registry
from headtohead.schema.config import NOTHING_HELD_OUT, BeamConfig, DataConfig, ModelConfig, RunConfig
from headtohead.schema.roles import ROLES


def resolve(raw: Mapping[str, Any], registry: Registry, label: str = "configuration") -> RunConfig:
    """Resolve a nested mapping in the words of an experiment file's ``base``.

    Raises:
        HeadToHeadError: For an unknown name or field, a wrong type, or a contradiction.
    """
    builder = ConfigBuilder(registry, SourceLocation(Source(label)))
    merge_base(builder, raw, builder.root)
    return resolve_sound(builder)


def merge_base(builder: ConfigBuilder, base: Mapping[str, Any], location: SourceLocation) -> None:
    """Lay ``base`` over the draft, the recipe that it names beneath it."""
    if "recipe" in base:
        merge_recipe(builder, base["recipe"], location.child("recipe"))
    builder.merge({key: value for key, value in base.items() if key != "recipe"}, location)


def merge_recipe(builder: ConfigBuilder, name: Any, location: SourceLocation) -> None:
    """Lay the values of a recipe over the draft; its name was written at ``place``."""
    if not isinstance(name, str):
        raise location.error(f"expected the name of a recipe, got {shown(name)}")
    builder.entry("recipe", name, location)
    builder.merge(builder.registry.recipe(name).config, SourceLocation(Source(f"recipe '{name}'")))


def build_config(builder: ConfigBuilder) -> RunConfig:
    """Turn a draft into a full configuration: one form for all spellings of it.

    Raises:
        HeadToHeadError: For a wrong name, field or type; contradictions are left to be asked for.
    """
    raw: dict[str, Any] = dict(builder.sections)
    raw["data"] = raw["data"] | {"options": _dataset_options(builder)}
    for family in FAMILIES:
        raw[family] = {role: _entry(builder, family, role) for role in ROLES}
    return _with_defaults(checked(RunConfig, raw, builder.location), builder)


def resolve_sound(builder: ConfigBuilder) -> RunConfig:
    """As ``resolve_draft``, and refuse contradictions too."""
    config = build_config(builder)
    found = contradiction(config, builder.registry)
    if found:
        raise builder.location(found[0]).error(found[1])
    return config


def _entry(builder: ConfigBuilder, family: str, role: str) -> dict[str, Any]:
    choice = builder.choices[family, role]
    entry = builder.registry.find(family, choice.name).entry
    options = checked(entry.Options, choice.options, lambda path: builder.location((family, role, "options", *path)))
    return {"name": choice.name, "options": options.model_dump(mode="json")}


def _dataset_options(builder: ConfigBuilder) -> dict[str, Any]:
    name = builder.sections["data"].get("dataset", DataConfig().dataset)
    entry = builder.entry("dataset", name, builder.location(("data", "dataset")))
    options = checked(entry.Options, builder.dataset_options, lambda path: builder.location(("data", "options", *path)))
    return options.model_dump(mode="json")


def _with_defaults(config: RunConfig, builder: ConfigBuilder) -> RunConfig:
    dataset = builder.registry.dataset(config.data.dataset)
    data = config.data.model_copy(
        update={
            "split": config.data.split or dataset.splits[0],
            "normalise": config.data.normalise or dataset.normalise,
        }
    )
    evaluate = config.evaluate
    if evaluate.decode == "beam" and evaluate.beam is None:
        evaluate = evaluate.model_copy(update={"beam": BeamConfig()})
    return config.model_copy(update={"data": data, "model": _model(config.model), "evaluate": evaluate})


def _model(model: ModelConfig) -> ModelConfig:
    """Fill in what ``layers``, ``dropout`` and ``norm`` decide unless a field says otherwise."""
    decided: dict[str, Any] = {
        "encoder_layers": model.layers,
        "decoder_layers": model.layers,
        "dropout_embedding": model.dropout,
        "dropout_attention": model.dropout,
        "dropout_ffn": model.dropout,
        "dropout_residual": model.dropout,
        "final_norm": model.norm == "pre",
    }
    missing = {name: value for name, value in decided.items() if getattr(model, name) is None}
    return model.model_copy(update=missing)


def contradiction(config: RunConfig, registry: Registry) -> tuple[FieldPath, str] | None:
    """Return where fields that are right by themselves do not fit together, and how to mend it."""
    train, data = config.train, config.data
    if train.epochs is None and train.steps is None:
        return ("train",), "give epochs or steps; neither is set"
    if config.evaluate.beam is not None and config.evaluate.decode != "beam":
        reason = (
            f"a beam is searched with evaluate.decode: beam, got decode "
            f"'{config.evaluate.decode}'; set that, or leave evaluate.beam out"
        )
        return ("evaluate", "beam"), reason
    if config.model.tie_embeddings == "all" and not data.vocabulary.shared:
        reason = "tied 'all' needs one vocabulary; set data.vocabulary.shared: true"
        return ("model", "tied"), reason
    splits = (*registry.dataset(data.dataset).splits, NOTHING_HELD_OUT)
    if data.split not in splits:
        hint = nearest(str(data.split), splits)
        return ("data", "split"), f"dataset '{data.dataset}' has no split '{data.split}'{hint}"
    for name in ("valid", "test"):
        part = getattr(data, name)
        if part >= 1 and part != int(part):
            reason = f"expected a fraction below 1 or a whole number of pairs, got {part}"
            return ("data", name), reason
    return None
