"""The tables of ``docs/reference/experiment-file.md``, made from the schema."""

from __future__ import annotations

import json
import re
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from headtohead.config.source_location import shown_limit
from headtohead.schema import config_input, experiment_file, run_config
from headtohead.schema.sections import NotHashed

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
    "data": config_input.DataInput,
    "data.vocabulary": run_config.VocabularyConfig,
    "data.vocabulary.special_tokens": run_config.SpecialTokens,
    "model": config_input.ModelInput,
    "train": run_config.TrainConfig,
    "train.early_stopping": run_config.EarlyStopping,
    "evaluate": run_config.EvaluateConfig,
    "evaluate.beam": run_config.BeamConfig,
    "quirks": run_config.QuirksConfig,
}

_BEGIN, _END = "<!-- table: {} -->", "<!-- end of table -->"


def table(model: type[BaseModel]) -> str:
    """Return the Markdown table of a section."""
    lines = ["| field | type | default | meaning |", "|---|---|---|---|"]
    for name, info in model.model_fields.items():
        runtime = any(isinstance(marker, NotHashed) for marker in info.metadata)
        meaning = (info.description or "").replace("|", "\\|")
        cells = [
            f"`{info.alias or name}`",
            type_words(info).replace("|", "\\|"),
            _default(info),
            f"{meaning} (not part of the run hash)" if runtime else meaning,
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


def type_words(info: FieldInfo) -> str:
    """Return the type and limits of a field: ``whole number ≥ 1, or nothing``."""
    return _limited(_words(info.annotation), info.metadata)


def _limited(words: str, metadata: Sequence[Any]) -> str:
    """Insert limits after the word number."""
    limits = [
        f"{sign} {shown_limit(getattr(limit, name))}"
        for name, sign in (("ge", "≥"), ("gt", ">"), ("le", "≤"), ("lt", "<"))
        for limit in metadata
        if getattr(limit, name, None) is not None
    ]
    return words.replace("number", f"number {' and '.join(limits)}", 1) if limits else words


def _words(annotation: Any) -> str:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        info = FieldInfo.from_annotation(annotation)
        return _limited(_words(info.annotation), info.metadata)
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in arguments)
    if origin in (typing.Union, types.UnionType):
        kinds = [_words(kind) for kind in arguments if kind is not type(None)]
        return ", or ".join([*kinds, "nothing"] if type(None) in arguments else kinds)
    if origin in (list, tuple):
        inner = " or ".join(_words(arguments[0]).split(", or "))
        return f"list ({inner})"
    if origin is dict or annotation is dict:
        return "mapping"
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return "mapping"
    plain = {int: "whole number", float: "number", str: "text", bool: "true or false"}
    return plain.get(annotation, "anything")


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    value = info.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "its defaults"
    return "–" if value is None else f"`{json.dumps(value)}`"


def option_rows(options: type[BaseModel]) -> Iterator[tuple[str, str, str, str]]:
    """Yield name, type, default as JSON, and meaning of the options of a plugin entry."""
    for name, info in options.model_fields.items():
        default = "required" if info.is_required() else json_default(info)
        yield name, type_words(info), default, info.description or ""


def json_default(info: FieldInfo) -> str:
    """Return the default of an option as JSON."""
    return json.dumps(info.get_default(call_default_factory=True), default=str)


def recipe_rows(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the fields that a recipe sets, with their values as JSON."""
    for name, value in values.items():
        yield name, json.dumps(value, ensure_ascii=False)
