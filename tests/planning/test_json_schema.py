"""The JSON Schema of experiment files is current, accepts valid files, and rejects mistakes."""

import json
from pathlib import Path

import jsonschema
import pytest

from headtohead.config.yaml_text import parse

ROOT = Path(__file__).parents[2]
SCHEMA = ROOT / "docs" / "reference" / "experiment.schema.json"
EXPERIMENTS = sorted((ROOT / "experiments").rglob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> jsonschema.Draft202012Validator:
    schema = json.loads(SCHEMA.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


@pytest.mark.parametrize("path", EXPERIMENTS, ids=lambda path: path.stem)
def test_every_committed_experiment_is_valid(
    path: Path, validator: jsonschema.Draft202012Validator
) -> None:
    content, _ = parse(path.read_text(encoding="utf-8"), path.name)
    assert [error.message for error in validator.iter_errors(content)] == []


@pytest.mark.parametrize(
    "text",
    [
        "base: {train.lr: 0.001}",
        "base: {positional: {encoder: none, decoder: {name: rotary, theta: 500}}}",
        "base: {positional: my-encoding}",
        "base: {data: {pair: eng-fra}}",
        "base: {model: {mask_value: -1e9}}",
        "baseline: {recipe: {name: tatoeba-en-es, positional: sinusoidal}}",
        "design: [{product: {match: [none, parameters], data.size: [100, 200]}}]",
        "design: [{between: {from: {recipe: slides-en-fr}, to: {train.lr: 0.1}}}]",
    ],
)
def test_every_notation_of_an_experiment_file_is_valid(
    text: str, validator: jsonschema.Draft202012Validator
) -> None:
    assert validator.is_valid(parse(f"question: q\n{text}", "x")[0])


@pytest.mark.parametrize(
    "text",
    [
        "sedes: 6",
        "base: {model: {d_modl: 64}}",
        "base: {model: {d_model: wide}}",
        "base: {positional: {encodr: none}}",
        "design: [{produkt: {}}]",
        "seeds: six",
    ],
)
def test_mistakes_are_invalid(text: str, validator: jsonschema.Draft202012Validator) -> None:
    assert not validator.is_valid(parse(f"question: q\n{text}", "x")[0])
