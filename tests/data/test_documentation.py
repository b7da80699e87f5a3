"""The samples of docs/reference/datasets.md are valid, and its tables list every dataset and every option of pairs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from headtohead.config.resolve import resolve
from headtohead.data.normalise import NORMALISERS
from headtohead.plugins.registry import current

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "reference" / "datasets.md").read_text(encoding="utf-8")


def test_the_table_lists_every_dataset() -> None:
    for name, entry in current().entries["dataset"].items():
        if entry.distribution == "headtohead":
            dataset = current().dataset(name)
            splits = ", ".join(f"`{split}`" for split in dataset.splits)
            row = rf"^\| `{name}` \| .* \| {splits} \| `{dataset.normalise}` \|$"
            assert re.search(row, PAGE, re.MULTILINE)


def test_every_option_of_pairs_is_explained() -> None:
    for option in current().dataset("pairs").Options.model_fields:
        assert re.search(rf"^\| .*`{option}`.* \| ", PAGE, re.MULTILINE)


@pytest.mark.parametrize("name", NORMALISERS)
def test_the_sample_is_normalised_as_the_table_shows(name: str) -> None:
    raw = re.search(r"\| name \| effect \| \"(.*)\" \|", PAGE)
    row = re.search(rf"^\| `{name}` \|.*\| `([^`]*)` \|$", PAGE, re.MULTILINE)
    assert raw is not None
    assert row is not None
    assert NORMALISERS[name](raw[1]) == row[1]


def test_the_yaml_samples_are_valid_experiment_text() -> None:
    samples = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    assert samples
    for sample in samples:
        resolve(yaml.safe_load(sample) | {"train": {"epochs": 1}}, current())


def test_the_sample_permutations_have_two_translations() -> None:
    block = re.search(r"```text\n(.*?)```", PAGE, re.DOTALL)
    assert block is not None
    english, french = zip(*(re.split(" {2,}", line) for line in block[1].splitlines()), strict=True)
    assert sorted(english[1].split()) == sorted(english[2].split())
    assert french[1] != french[2]
