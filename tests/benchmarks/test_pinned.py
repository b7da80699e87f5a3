"""The comparison of answers and scores of two versions finds every kind of difference."""

import json
from pathlib import Path

import pinned
import pytest

pytestmark = pytest.mark.slow

ANSWERS = {"a": {"contrasts": [{"name": "r", "difference": 0.25, "verdict": "better"}]}}
SCORES = {"a": {"test/loss": 0.25}}


def compared(tmp_path: Path, old: dict, new: dict) -> int:
    files = [tmp_path / "old.json", tmp_path / "new.json"]
    for file, content in zip(files, (old, new), strict=True):
        file.write_text(json.dumps(content))
    return pinned.main(["compare", *map(str, files)])


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("difference", 0.25, 0),
        ("difference", 0.25 + 1e-11, 0),
        ("difference", 0.25 + 1e-8, 1),
        ("difference", None, 1),
        ("verdict", "worse", 1),
    ],
)
def test_numbers_of_answers_are_close_and_words_equal(
    tmp_path: Path, field: str, value: object, code: int
) -> None:
    new = {"a": {"contrasts": [ANSWERS["a"]["contrasts"][0] | {field: value}]}}
    assert compared(tmp_path, ANSWERS, new) == code


def test_scores_are_equal_bit_for_bit(tmp_path: Path) -> None:
    assert compared(tmp_path, SCORES, SCORES) == 0
    assert compared(tmp_path, SCORES, {"a": {"test/loss": 0.25 + 1e-15}}) == 1
    assert compared(tmp_path, SCORES, {}) == 1


def test_the_made_studies_have_every_kind_of_contrast() -> None:
    studies = dict(pinned.studies())
    assert len(studies) == len(list(pinned.studies())) >= 28
    kinds = ("interactions", "between", "declared", "margin", "late", "states", "equal_to")
    for kind in (*kinds, "excluded", "primary", "one_at_a_time"):
        assert any(kind in options for options in studies.values()), kind


@pytest.mark.timeout(600)
def test_answers_of_the_made_studies_can_be_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    studies = [*pinned.studies()][::4]
    assert any("states" in options for _, options in studies)
    monkeypatch.setattr(pinned, "studies", lambda: studies)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    assert pinned.main(["answers", str(first)]) == 0
    assert pinned.main(["answers", str(second)]) == 0
    assert pinned.main(["compare", str(first), str(second)]) == 0
