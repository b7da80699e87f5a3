"""A trace as a page, as text and as arrays."""

import re
from dataclasses import replace

import numpy as np
import pytest

from headtohead_notebooks.trace import Trace, TraceStep
from headtohead_notebooks.trace.html import as_html
from headtohead_notebooks.trace.text import as_text
from made.page import Page


@pytest.fixture(scope="module")
def trace(traced):
    return traced(encoder_layers=2, decoder_layers=2)[1]


def one_step(**changes):
    step = TraceStep(
        "encoder.0.self.head.0.weights", np.eye(2), ("a", "b"), ("a", "b"), "A", "says"
    )
    return Trace("t", "s", "r", (replace(step, **changes),))


def test_the_page_is_complete_and_every_link_has_a_target(trace):
    attributes = [item for _, named in Page(as_html(trace)).elements for item in named.items()]
    ids = [value for name, value in attributes if name == "id"]
    links = [value for name, value in attributes if name in ("href", "src")]
    assert len(ids) == len(set(ids))
    assert set(links) <= {f"#{name}" for name in ids}
    assert set(ids) > {step.name for step in trace}
    assert not re.search(r"https?:|url\(|@import", as_html(trace))


def test_every_text_is_escaped():
    bad = "<script>alert('x')</script>&"
    step = one_step(rows=(bad, "b"), columns=("a", bad), formula=bad, meaning=bad, example=bad)
    text = as_html(replace(step, title=bad, source=bad, target=bad, notes=(bad,)))
    assert text.count("<script>") == 1, "its own"
    assert "alert('x')" not in text
    assert Page(text).elements


def test_text_has_a_line_for_each_step_and_its_numbers_below(trace):
    text = as_text(trace.only("encoder.0.self.head.1.weights"))
    lines = text.splitlines()
    assert lines[:4] == ["a model", "source: s", "target: t", ""]
    assert lines[4] == (
        "encoder.0.self.head.1.weights  [4×4]  A = softmax(S'); "
        "how much each token (row) attends to each other (column)"
    )
    assert lines[5].split() == ["s0", "s1", "s2", "s3"]
    values = trace["encoder.0.self.head.1.weights"]
    for line, row, label in zip(lines[6:10], values, ("s0", "s1", "s2", "s3"), strict=True):
        assert line.split() == [label, *(f"{value:.3f}" for value in row)]
    assert len({len(line) for line in lines[5:10]}) == 1, "columns stand below each other"
    assert as_text(trace).count("  [") == len(trace.steps)


def test_a_part_is_selected_by_the_words_of_its_name(trace):
    assert {step.part for step in trace.only("decoder.1.cross.head.2")} == {
        "decoder.1.cross.head.2"
    }
    assert [step.name for step in trace.only("decoder.ids")] == ["decoder.ids"]
    assert all(step.name.startswith("encoder.1.") for step in trace.only("encoder.1"))
