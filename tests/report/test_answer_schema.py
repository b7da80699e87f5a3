"""The JSON Schemas of answer files are current and describe every field that is written."""

from __future__ import annotations

import copy
import json
import math
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest

from headtohead.report.answer_file import answer_file
from headtohead.report.answer_schema import ANSWER_TABLES, JUDGE_TABLES, AnswerFile, JudgeFile, answer_schema
from headtohead.report.writing import read_content
from made import case_table

ROOT = Path(__file__).parents[2]
COMMITTED = sorted((ROOT / "reports").rglob("answer.json"))


def strict(schema: Any) -> Any:
    """Return a schema that refuses fields without a description."""
    if isinstance(schema, list):
        return [strict(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {"additionalProperties": False} if "properties" in schema else {}
    return {key: strict(item) for key, item in schema.items()} | closed


def problems(answer: Any, name: str) -> list[str]:
    schema = json.loads((ROOT / "docs" / "reference" / f"{name}.schema.json").read_text(encoding="utf-8"))
    validator = jsonschema.Draft202012Validator
    validator.check_schema(schema)
    assert [error.message for error in validator(schema).iter_errors(answer)] == [
        error.message for error in validator(strict(schema)).iter_errors(answer)
    ]
    return [error.message for error in validator(strict(schema)).iter_errors(answer)]


@pytest.fixture(scope="module")
def fresh(quickstart: Path) -> dict[str, Any]:
    return json.loads(answer_file(read_content(quickstart)))  # type: ignore[no-any-return]


@case_table("path", COMMITTED, ids=lambda path: path.parent.name, default=2)
def test_the_answer_of_every_committed_report_is_valid(path: Path) -> None:
    assert problems(json.loads(path.read_text(encoding="utf-8")), "answer") == []


def test_a_fresh_answer_is_valid(fresh: dict[str, Any]) -> None:
    assert problems(fresh, "answer") == []


def test_the_answer_of_an_incomplete_study_is_valid(messy: Path) -> None:
    answer = json.loads(answer_file(read_content(messy, allow_partial=True)))
    assert answer["incomplete"]
    assert problems(answer, "answer") == []


def test_a_significant_interaction_has_its_own_verdict(made: ModuleType, tmp_path: Path) -> None:
    def score(axes: Any, seed: int) -> float:
        both = axes["positional"] == "rotary" and axes["attention"] == "independent-heads"
        own = math.sin(seed * (3 + len(axes["positional"]) + 2 * len(axes["attention"])))
        return 0.4 + 0.2 * both + 0.01 * own

    study = made.Study(
        axes={"positional": ["sinusoidal", "rotary"], "attention": ["split-heads", "independent-heads"]},
        score=score,
        interactions=True,
        maps=False,
    )
    answer = json.loads(answer_file(read_content(made.write_study(tmp_path, study))))
    (interaction,) = (contrast for contrast in answer["contrasts"] if contrast["family"] == "interactions")
    assert interaction["holm_p"] < 0.05
    assert interaction["verdict"] == "significant"
    assert problems(answer, "answer") == []


def test_a_constant_difference_in_too_few_seeds_has_no_holm_interval(made: ModuleType, tmp_path: Path) -> None:
    study = made.Study(
        axes={"positional": ["sinusoidal", "rotary"]},
        score=lambda axes, seed: 0.5 + 0.125 * (axes["positional"] == "rotary"),
        seeds=(1, 2, 3, 4),
        one_at_a_time=True,
        maps=False,
    )
    answer = json.loads(answer_file(read_content(made.write_study(tmp_path, study))))
    (contrast,) = answer["contrasts"]
    assert (contrast["difference"], contrast["verdict"]) == (0.125, "no verdict")
    assert contrast["holm_interval"] is None
    assert problems(answer, "answer") == []


@pytest.mark.parametrize(
    "fault",
    [
        lambda answer: answer.pop("metric"),
        lambda answer: answer.update(format="headtohead-answer/2"),
        lambda answer: answer["contrasts"][0].update(verdict="good"),
        lambda answer: answer["contrasts"][0].update(holm_p=1.5),
        lambda answer: answer["scores"].update(rotary="0.9"),
        lambda answer: next(iter(answer["training"]["variants"].values())).pop("fall"),
    ],
)
def test_a_wrong_answer_is_invalid(fresh: dict[str, Any], fault: Callable[[dict[str, Any]], object]) -> None:
    answer = copy.deepcopy(fresh)
    fault(answer)
    assert not jsonschema.Draft202012Validator(answer_schema(AnswerFile)).is_valid(answer)


def test_a_version_may_get_further_fields(fresh: dict[str, Any]) -> None:
    assert jsonschema.Draft202012Validator(answer_schema(AnswerFile)).is_valid(fresh | {"new": 1})


@pytest.mark.parametrize("options", [(), ("--margin", "0.05"), ("--unpaired",), ("--looks", "3")])
def test_the_answer_of_judge_is_valid(
    options: tuple[str, ...], tmp_path: Path, h2h_here: Callable[..., subprocess.CompletedProcess[str]]
) -> None:
    rows = [f"{name},{seed},{score + seed / 100}" for name, score in (("a", 0.5), ("b", 0.6)) for seed in range(5)]
    (tmp_path / "scores.csv").write_text("\n".join(["variant,seed,accuracy", *rows]) + "\n")
    done = h2h_here(tmp_path, "judge", "scores.csv", "--baseline", "a", "--answer", "answer.json", *options)
    assert done.returncode in (0, 3), done.stderr
    answer = json.loads((tmp_path / "answer.json").read_text())
    assert problems(answer, "judge") == []
    assert answer["exit_code"] == done.returncode
    assert (answer["contrasts"][0]["equivalence"] is None) == ("--margin" not in options)


def test_every_table_of_the_page_has_its_fields() -> None:
    page = (ROOT / "docs" / "reference" / "answer-file.md").read_text(encoding="utf-8")
    for tables, model in ((ANSWER_TABLES, AnswerFile), (JUDGE_TABLES, JudgeFile)):
        described = {entry.__name__ for entry in tables.values()}
        assert described == {model.__name__, *answer_schema(model)["$defs"]}
        for entry in tables.values():
            assert all(f"| `{name}` |" in page for name in entry.model_fields)
