from pathlib import Path

import pytest
from hypothesis import given, settings

from headtohead.config.loading import load_file, load_text
from headtohead.config.yaml_text import dump
from headtohead.errors import HeadToHeadError
from made import refused
from made.texts import random_texts

NO_VALUE = "has no value; type one (null for none), or remove the field"


def test_a_file_without_yaml_is_refused_with_its_location(load):
    assert refused(load, "question: q\nbase: {\n").startswith("x.yaml:3: not valid YAML")
    assert refused(load, "# a comment\n").startswith("x.yaml: the file is empty")


def test_the_experiment_is_named_after_its_file(tmp_path):
    path = tmp_path / "do heads (really) matter.yaml"
    path.write_text("question: q\n")
    assert load_file(path).name == "do-heads-really-matter"


def test_numbers_are_those_of_yaml_1_2(load):
    loaded = load("""
        question: q
        base: {a: 1e-3, b: 1E5, c: .5, d: 010, e: no, f: 2020-01-01, g: 1:30, h: -inf, i: "7"}
    """)
    assert loaded.file.base == {
        "a": 1e-3,
        "b": 1e5,
        "c": 0.5,
        "d": 10,
        "e": "no",
        "f": "2020-01-01",
        "g": "1:30",
        "h": "-inf",
        "i": "7",
    }


def test_the_option_replaces_the_seeds_of_the_file(load):
    assert load("question: q\nseeds: {until: decided, at_most: 9}", seeds=2).seeds == (1, 2)
    assert refused(load, "question: q\nseeds: 6", seeds=0).startswith("--seeds 0: ")


def test_an_override_is_parsed_as_yaml(load):
    loaded = load("question: q", "train.lr=1e-4", "model.norm=post", "train.betas=[0.9, 0.99]")
    assert [override.value for override in loaded.overrides] == [1e-4, "post", [0.9, 0.99]]
    assert loaded.overrides[0].path == ("train", "lr")


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("tune:", "x.yaml:2: tune"),
        ("tune:\n#  train.lr: [1.0e-3, 2.0e-3]", "x.yaml:2: tune"),
        ("margin: # later", "x.yaml:2: margin"),
        ("base: {train: {clip_norm: }}", "x.yaml:2: base.train.clip_norm"),
        ("seeds: [1, 2,\n  ]\nprobes:\n- ", "x.yaml:5: probes[0]"),
    ],
)
def test_a_field_without_a_value_is_refused(load, text, where):
    assert refused(load, f"question: q\n{text}") == f"{where}: {NO_VALUE}"


def test_null_is_a_value(load):
    loaded = load(
        "question: q\ntune: null\nmargin: ~\nbase: {train.clip_norm: null}", "train.clip_norm=null"
    )
    assert (loaded.file.tune, loaded.file.margin, loaded.file.base) == (
        None,
        None,
        {"train.clip_norm": None},
    )
    assert loaded.overrides[0].value is None


def test_an_override_without_a_value_is_refused(load):
    expected = "--set train.clip_norm=: expected path=value, such as model.d_model=64"
    assert refused(load, "question: q", "train.clip_norm=") == expected
    assert (
        refused(load, "question: q", "model={d_ff: }")
        == f"--set model={{d_ff: }}: d_ff: {NO_VALUE}"
    )


def test_strings_that_look_like_numbers_remain_strings_from_python():
    content = {"question": "q", "base": {"a": "1e-3", "b": "no", "c": "010", "d": 1e-3, "e": None}}
    assert load_text(dump(content), Path("study.yaml")).file.base == content["base"]


@settings(max_examples=30)
@given(random_texts(max_size=40))
def test_any_invalid_text_raises_the_documented_exception(text):
    message = ""
    try:
        load_text(text, Path("x.yaml"))
    except HeadToHeadError as error:
        message = str(error)
    assert "\n" not in message
