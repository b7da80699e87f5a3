"""The JSON Schema of experiment files, which editors use for completion, and the tables of its reference page.

The schema describes names and types of fields. It allows dotted keys, plugins and
plugin options that are not built in, because the planner checks those.
"""

from __future__ import annotations

import json
import re
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic.json_schema import models_json_schema

from headtohead.config.builder import SECTION_ENTRIES
from headtohead.config.reference import meaning, type_words
from headtohead.plugins.families import COMPONENTS, FAMILIES
from headtohead.plugins.registry import current
from headtohead.schema import experiment_file, run_config
from headtohead.schema.run_config import QUIRKS, SECTIONS
from headtohead.schema.sections import NotHashed
from headtohead_notebooks.quirks import NotebookOptions

NAMED = (*(name for name, family in FAMILIES.items() if family.place), "recipe")

Schema = dict[str, Any]


def experiment_schema_text() -> str:
    """Return the JSON Schema of an experiment file as text."""
    return json.dumps(_experiment_schema(), indent=2, ensure_ascii=False) + "\n"


def _experiment_schema() -> Schema:
    models: list[type[BaseModel]] = [experiment_file.ExperimentFile, *SECTIONS.values()]
    _, made = models_json_schema([(model, "validation") for model in models], by_alias=True)
    definitions: dict[str, Schema] = without_titles(made["$defs"])
    definitions |= {f"{family}-name": _name(family) for family in NAMED}
    for family in COMPONENTS:
        definitions |= _family(family)
    _accept_forms_of_files(definitions)
    axes = _axes(definitions)
    definitions["Configuration"] = _configuration(axes)
    definitions["Axes"] = {
        "type": "object",
        "properties": {
            name: {"type": "array", "items": axis} for name, axis in (axes | {"data": DATA}).items()
        }
        | {"zip": _reference("Axes")},
        "additionalProperties": {"type": "array"},
    }
    for name in ("product", "one_at_a_time", "zip"):
        definitions["DesignBlock"]["properties"][name]["anyOf"][0] = _reference("Axes")
    file = definitions.pop("ExperimentFile")
    for name in ("base", "baseline"):
        description = file["properties"][name]["description"]
        file["properties"][name] = _reference("Configuration") | {"description": description}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "headtohead experiment",
        **file,
        "$defs": dict(sorted(definitions.items())),
    }


def without_titles(value: Any) -> Any:
    """Return a schema without the titles that pydantic derives from field names, and descriptions on one line."""
    if isinstance(value, list):
        return [without_titles(item) for item in value]
    if not isinstance(value, dict):
        return value
    schema = {}
    for key, item in value.items():
        if key == "title" and isinstance(item, str):
            continue
        if key == "description" and isinstance(item, str):
            item = " ".join(item.split())
        schema[key] = without_titles(item)
    return schema


def _accept_forms_of_files(definitions: dict[str, Schema]) -> None:
    """Accept notations of files beyond the types: dataset options, and unquoted -1e9."""
    data = definitions["DataConfig"]
    definitions["Options"]["additionalProperties"] = True
    data["additionalProperties"] = True
    data["properties"]["dataset"] |= _reference("dataset-name")
    for (section, field), family in SECTION_ENTRIES.items():
        properties = definitions[SECTIONS[section].__name__]["properties"]
        entry = {"anyOf": [_reference(f"{family.name}-name"), _named(family.name)]}
        properties[field] = {"description": properties[field]["description"], **entry}
    definitions["ModelInput"]["properties"]["d_ff"]["type"] = ["integer", "string"]
    mask_value = definitions["ModelInput"]["properties"]["mask_value"]
    mask_value["type"] = ["string", "number"]
    mask_value["enum"].append(-1e9)


def _axes(definitions: dict[str, Schema]) -> dict[str, Schema]:
    """Return the schema of each axis by its name, dotted for fields: ``model.d_model``."""
    properties: dict[str, Schema] = {family: _reference(family) for family in COMPONENTS}
    properties["recipe"] = {"anyOf": [_reference("recipe-name"), _named("recipe")]}
    properties["match"] = {"enum": ["none", "parameters", "flops"]}
    for section, model in SECTIONS.items():
        for name in definitions[model.__name__]["properties"]:
            properties[f"{section}.{name}"] = _reference(f"{model.__name__}/properties/{name}")
    return properties


def _configuration(axes: dict[str, Schema]) -> Schema:
    """Return the schema of ``base`` and ``baseline``: sections, families and dotted fields."""
    sections = {name: _reference(model.__name__) for name, model in SECTIONS.items()} | {
        QUIRKS: {"type": "object", "additionalProperties": {"type": "object"}},
        "data": DATA,
    }
    fields = {name: axis for name, axis in axes.items() if name != "match"}
    return {
        "type": "object",
        "properties": sections | fields,
        "patternProperties": {rf"^({'|'.join([*SECTIONS, *COMPONENTS, QUIRKS])})\.": {}},
        "additionalProperties": False,
    }


def _family(family: str) -> dict[str, Schema]:
    """Return the notations of an entry: its name, a mapping with options, or a mapping by role."""
    entry = {"anyOf": [_reference(f"{family}-name"), _named(family)]}
    layer = _reference(f"{family}-entry")
    layers = {"anyOf": [layer, {"type": "array", "items": layer, "minItems": 1}]}
    by_role = {
        "type": "object",
        "properties": dict.fromkeys(COMPONENTS[family].roles, layers),
        "additionalProperties": False,
        "minProperties": 1,
    }
    return {f"{family}-entry": entry, family: {"anyOf": [*entry["anyOf"], by_role]}}


def _named(family: str) -> Schema:
    return {
        "type": "object",
        "properties": {"name": _reference(f"{family}-name")},
        "required": ["name"],
    }


def _name(family: str) -> Schema:
    """Return a schema that suggests the built-in entries and accepts every other name."""
    entries = current().entries[family].values()
    built_in = sorted(entry.name for entry in entries if entry.distribution == "headtohead")
    return {"type": "string", "anyOf": [{"enum": built_in}, {}]}


def _reference(name: str) -> Schema:
    return {"$ref": f"#/$defs/{name}"}


DATA = {"anyOf": [_reference("dataset-name"), _reference("DataConfig")]}

TABLES: dict[str, type[BaseModel]] = {
    "file": experiment_file.ExperimentFile,
    "design": experiment_file.DesignBlock,
    "design.between": experiment_file.BetweenDesign,
    "exclude": experiment_file.ExclusionRule,
    "contrasts": experiment_file.ContrastDeclaration,
    "contrasts.expect": experiment_file.Expectation,
    "seeds": experiment_file.SequentialSeeds,
    "metrics": experiment_file.Metrics,
    "probes": experiment_file.Probe,
    "data": run_config.DataConfig,
    "data.vocabulary": run_config.VocabularyConfig,
    "data.vocabulary.special_tokens": run_config.SpecialTokens,
    "model": run_config.ModelInput,
    "train": run_config.TrainConfig,
    "train.early_stopping": run_config.EarlyStopping,
    "evaluate": run_config.EvaluateConfig,
    "quirks": NotebookOptions,
}

_BEGIN, _END = "<!-- table: {} -->", "<!-- end of table -->"


def table(model: type[BaseModel]) -> str:
    """Return the Markdown table of a section."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        runtime = any(isinstance(marker, NotHashed) for marker in info.metadata)
        text = meaning(info).replace("|", "\\|")
        cells = [
            f"`{info.alias or name}`",
            type_words(info).replace("|", "\\|"),
            _default(info),
            f"{text} (not part of the run hash)" if runtime else text,
        ]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def filled(text: str) -> str:
    """Return a page with regenerated tables between its markers."""
    for name, model in TABLES.items():
        begin = _BEGIN.format(name)
        pattern = re.compile(rf"{re.escape(begin)}\n.*?{re.escape(_END)}", re.DOTALL)
        if not pattern.search(text):
            raise ValueError(f"the page has no marker '{begin}'")
        made = f"{begin}\n{table(model)}\n{_END}"
        text = pattern.sub(lambda _, made=made: made, text)  # type: ignore[misc]
    return text


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its defaults"
    return "–" if value is None else f"`{json.dumps(value)}`"
