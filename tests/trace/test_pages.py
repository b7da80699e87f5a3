"""A trace as a page, as text and as arrays."""

import re
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from headtohead import HeadToHeadError
from headtohead_notebooks.trace import Trace, TraceStep
from headtohead_notebooks.trace.html import as_html
from headtohead_notebooks.trace.text import as_text


class Page(HTMLParser):
    """Collects ids, links, links to other files, and the text of cells."""

    VOID = frozenset({"meta"})

    def __init__(self, text):
        super().__init__()
        self.ids, self.links, self.elsewhere, self.cells = [], [], [], []
        self.open = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        if "id" in named:
            self.ids.append(named["id"])
        for name in ("href", "src"):
            if name in named:
                (self.links if named[name].startswith("#") else self.elsewhere).append(named[name])
        if tag not in self.VOID:
            self.open.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data


@pytest.fixture(scope="module")
def trace(traced):
    return traced(encoder_layers=2, decoder_layers=2)[1]


def one_step(**changes):
    step = TraceStep("encoder.0.self.head.0.weights", np.eye(2), ("a", "b"), ("a", "b"), "A", "says")
    return Trace("t", "s", "r", (replace(step, **changes),))


def test_the_page_is_complete_and_every_link_has_a_target(trace):
    page = Page(as_html(trace))
    assert page.open == []
    assert page.elsewhere == []
    assert len(page.ids) == len(set(page.ids))
    assert {link.removeprefix("#") for link in page.links} <= set(page.ids)
    assert set(page.ids) > {step.name for step in trace}
    assert not re.search(r"https?:|url\(|@import", as_html(trace))


def test_every_text_is_escaped():
    bad = "<script>alert('x')</script>&"
    step = one_step(rows=(bad, "b"), columns=("a", bad), formula=bad, meaning=bad, example=bad)
    text = as_html(replace(step, title=bad, source=bad, target=bad, notes=(bad,)))
    assert text.count("<script>") == 1, "its own"
    assert "alert('x')" not in text
    assert Page(text).open == []


def test_cells_show_the_numbers_beside_their_tokens():
    cells = Page(as_html(one_step(values=np.array([[0.25, 0.75], [-1.5, np.inf]])))).cells
    assert cells == ["", "a", "b", "a", "0.250", "0.750", "b", "−1.500", "∞"]


def test_colours_are_stronger_for_larger_numbers_and_masks_are_grey():
    numbers = np.array([[2.0, -1.0, 0.0], [-np.inf, -1e9, 1.0]])
    text = as_html(one_step(name="encoder.0.self.head.0.scores", values=numbers, columns=()))
    assert re.findall(r"<td class=(\w+)>", text) == ["p9", "n4", "p0", "x", "x", "p4"]
    mask = one_step(name="encoder.0.self.head.0.mask", values=numbers > 0, columns=())
    assert re.findall(r"<td class=(\w+)>", as_html(mask)) == ["m1", "m0", "m0", "m0", "m0", "m1"]
    shares = one_step(values=np.array([[0.5, 0.0]]), rows=("a",))
    assert re.findall(r"<td class=(\w+)>", as_html(shares)) == ["s4", "s0"]


def test_a_wide_matrix_shows_its_ends_and_its_size():
    wide = np.arange(40.0).reshape(1, 40)
    text = as_html(one_step(values=wide, rows=("a",), columns=()))
    assert "<span>1 × 40</span>" in text
    numbers = ["0", "1", "2", "3", "4", "5", "…", "37", "38", "39"]
    assert Page(text).cells == ["", *numbers, "a"] + [
        number if number == "…" else f"{int(number)}.000" for number in numbers
    ]


def test_the_likeliest_words_of_a_vocabulary_are_shown(trace):
    step = next(step for step in trace if step.name == "probabilities")
    wide = replace(step, values=np.zeros((3, 50)), columns=tuple(f"w{index}" for index in range(50)), prominent=(7, 31))
    assert Page(as_html(Trace("t", "s", "r", (wide,)))).cells[:4] == ["", "w7", "w31", "…"]


def test_a_long_sentence_shows_its_ends():
    rows = tuple(f"r{index}" for index in range(60))
    cells = Page(as_html(one_step(values=np.zeros((60, 1)), rows=rows, columns=()))).cells
    assert [cell for cell in cells if cell.startswith(("r", "…"))] == [
        *(f"r{index}" for index in range(16)),
        "…",
        *(f"r{index}" for index in range(52, 60)),
    ]


def test_formulas_have_subscripts_and_superscripts():
    text = as_html(one_step(formula="S' = Q K^T / √d_{k} · 10^{−2i/d}"))
    assert "K<sup>T</sup> / √d<sub>k</sub> · 10<sup>−2i/d</sup>" in text
    assert "S' = Q K^T / √d_k · 10^−2i/d" in as_text(one_step(formula="S' = Q K^T / √d_{k} · 10^{−2i/d}"))


def test_the_heading_of_cross_attention_names_its_memory(traced):
    for cross, heading in (
        ("encoder", "attention to the encoder"),
        ("decoder", "second attention, to the decoder itself"),
    ):
        text = as_html(traced(quirks={"cross_attention_memory": cross})[1])
        assert heading in text
        assert ("not attended to" in text) == (cross == "decoder")


def test_large_parts_are_collapsed_except_the_first(trace):
    text = as_html(trace)
    assert 'id="encoder.0.self.head.0" open>' in text
    assert 'id="encoder.0.self.head.1">' in text
    assert 'id="encoder.1">' in text
    small = as_html(trace.only("encoder.1.self"))
    assert 'id="encoder.1.self.head.3" open>' in small


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


def test_text_shortens_wide_matrices():
    step = one_step(values=np.arange(40.0).reshape(2, 20), columns=())
    row = as_text(step).splitlines()[5].split()
    assert row == ["a", "0.000", "1.000", "2.000", "3.000", "4.000", "5.000", "…", "17.000", "18.000", "19.000"]


def test_an_archive_holds_every_step_in_full(trace, tmp_path):
    trace.write_arrays(tmp_path / "pass.npz")
    with np.load(tmp_path / "pass.npz") as arrays:
        assert list(arrays) == [step.name for step in trace]
        for step in trace:
            assert arrays[step.name].dtype == step.values.dtype
            assert np.array_equal(arrays[step.name], step.values)


def test_a_part_is_selected_by_the_words_of_its_name(trace):
    assert {step.part for step in trace.only("decoder.1.cross.head.2")} == {"decoder.1.cross.head.2"}
    assert [step.name for step in trace.only("decoder.ids")] == ["decoder.ids"]
    assert all(step.name.startswith("encoder.1.") for step in trace.only("encoder.1"))


def test_the_error_for_an_unknown_part_suggests_the_nearest(trace):
    with pytest.raises(
        HeadToHeadError,
        match=r"^no step 'encoder\.0\.slef'; "
        r"did you mean 'encoder\.0\.self'\?$",
    ):
        trace.only("encoder.0.slef")
    with pytest.raises(HeadToHeadError, match=r"^no step 'qqq'; known: chosen, decoder, decoder\.0"):
        trace["qqq"]
