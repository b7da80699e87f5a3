"""``SharedText`` parses field by field with the result of the json library, for any layout."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headtohead.storage.shared_text import LONG, SharedText

LEAVES = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=12)
LONG_VALUES = st.lists(VALUES, max_size=3).map(lambda some: [*some, "x" * LONG])
RECORDS = st.lists(st.dictionaries(st.text(), VALUES | LONG_VALUES), max_size=4)


INDENTS = st.sampled_from([1, 1, 1, 0, 2, None])


@pytest.mark.slow
@settings(max_examples=25)
@given(RECORDS, INDENTS, st.booleans())
def test_a_layout_gives_the_result_of_the_library(records, indent, ascii_only):
    compare(records, indent, ascii_only)


@pytest.mark.slow
@given(RECORDS, INDENTS, st.booleans())
def test_many_layouts_give_the_result_of_the_library(records, indent, ascii_only):
    compare(records, indent, ascii_only)


def compare(records, indent, ascii_only):
    shared = SharedText()
    for record in [*records, *records]:
        text = json.dumps(record, indent=indent, ensure_ascii=ascii_only)
        found = shared.parse(text + "\n")
        assert json.dumps(found, sort_keys=True) == json.dumps(json.loads(text), sort_keys=True)


@given(
    st.lists(
        st.sampled_from(["{", "}", '\n "', '"a', 'b": ', "1", "[", "]", ",", " ", '"', "x" * LONG]), max_size=14
    ).map("".join)
)
def test_damaged_text_gives_the_result_of_the_library(text):
    try:
        wanted = json.loads(text)
    except ValueError as error:
        with pytest.raises(type(error)):
            SharedText().parse(text)
    else:
        assert SharedText().parse(text) == wanted


@pytest.mark.parametrize(
    "text",
    [
        '{\n "a": 1,\n "a": 2\n}',
        '{\n "a": 1, "b": 2,\n "c": 3\n}',
        '{\n "a": {\n "b": 1,\n "c": 2\n },\n "d": 3\n}',
        '{\n "a": [1,\n "b"],\n "c": 1\n}',
        '{\n "a": "%s",\n "a": 1\n}' % ("x" * LONG),
        '[\n "a",\n "b"\n]',
        "{}",
        '{\n "a": "%s"\n}' % ("x" * LONG),
    ],
)
def test_unusual_layouts_give_the_result_of_the_library(text):
    assert SharedText().parse(text) == json.loads(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{\n "a": 1,\n}',
        '{\n "a": 1\n "b": 2\n}',
        '{\n "a": 1\n}}',
        '{\n "a\n "b": 1\n}',
        '{\n "a": %s\n "b": 1\n}' % ("1" * LONG),
    ],
)
def test_invalid_json_is_refused(text):
    with pytest.raises(json.JSONDecodeError):
        json.loads(text)
    with pytest.raises(json.JSONDecodeError):
        SharedText().parse(text)


def test_a_long_field_is_parsed_once():
    shared = SharedText()
    config = {"name": "x" * LONG}
    first, second = (shared.parse(json.dumps({"seed": seed, "config": config}, indent=1)) for seed in (1, 2))
    assert first["config"] is second["config"]
    assert (first["seed"], second["seed"]) == (1, 2)
