"""Lines and tables fit the terminal and lose no word; colours repeat words and are absent from pipes."""

import re

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from headtohead_judge.colours import STATES, VERDICTS
from headtohead_judge.layout import broken, table_lines, text_width
from headtohead_judge.output import echo, echo_json, print_table
from made.terminal import in_terminal, plain

WORD = st.lists(st.sampled_from("ab-/é漢"), min_size=1, max_size=12).map("".join)
PROSE = st.lists(WORD, min_size=1, max_size=12).map(" ".join)
WIDTH = st.integers(1, 60)


@given(PROSE, WIDTH, st.sampled_from(["", "  ", "    "]))
def test_a_broken_line_has_the_same_text_and_only_single_words_are_wider(text, width, start):
    lines = broken(start + text, width)
    assert "".join(" ".join(lines).split()) == "".join(text.split())
    assert lines[0].startswith(start)
    for line in lines:
        assert text_width(line) <= width or len(line.split()) == 1
    assert broken(start + text, None) == [start + text]


@given(st.lists(st.tuples(PROSE, PROSE, WORD), max_size=4), WIDTH)
def test_a_table_has_all_characters_and_only_single_pieces_are_wider(rows, width):
    columns = ["variant", "adjusted p", "seeds"]
    lines = list(table_lines(columns, rows, right={2}, width=width))
    for line in lines:
        parts = re.findall(r"[^-/\s]*[-/]+|[^-/\s]+", line)
        assert text_width(line) <= width or len(parts) <= 1 or len(line.split()) == 1
    cells = "".join(cell for row in rows for cell in row)
    printed = "".join(lines)
    for character in set(cells) - {" "}:
        assert printed.count(character) >= cells.count(character)


def test_a_long_name_is_broken_in_a_sentence_and_a_path_is_not():
    assert broken("the variant sinusoidal-split-heads is best", 16) == [
        "the variant",
        "  sinusoidal-",
        "  split-heads is",
        "  best",
    ]
    assert broken("see reports/of-a-study/index.html", 16)[1] == "  reports/of-a-study/index.html"


def test_long_names_are_broken_after_hyphens_in_their_column_and_numbers_stay_whole():
    rows = [["sinusoidal-independent-heads (baseline)", "1,234,567", "no difference shown"]]
    columns = ["variant", "non-embedding parameters", "verdict"]
    assert list(table_lines(columns, rows, right={1}, width=40)) == [
        "variant               non-  verdict",
        "                 embedding",
        "                parameters",
        "sinusoidal-      1,234,567  no",
        "  independent-              difference",
        "  heads                     shown",
        "  (baseline)",
    ]


def test_headings_and_names_are_broken_before_an_interval():
    rows = [["with-rotary-positions", "−0.095 to −0.060", "worse by more than the margin"]]
    assert list(table_lines(["variant", "95 % interval", "verdict"], rows, {1}, 46)) == [
        "variant           95 % interval  verdict",
        "with-rotary-   −0.095 to −0.060  worse by more",
        "  positions                      than the",
        "                                 margin",
    ]


def test_a_table_without_room_for_its_columns_has_a_line_per_cell():
    lines = table_lines(["variant", "parameters"], [["alibi", "1,234"]], width=12)
    assert list(lines) == ["alibi", "  parameters:", "    1,234"]


def test_a_pipe_gets_one_line_per_row_and_no_colours():
    @click.command()
    def show():
        print_table(["run", "state"], [["x" * 50, "DONE " + "y " * 50]])
        echo("word " * 60)

    lines = CliRunner().invoke(show, env={"COLUMNS": "80", "FORCE_COLOR": None}).output.splitlines()
    assert len(lines) == 3
    assert "\x1b" not in "".join(lines)


def colours(text: str) -> dict[str, str]:
    return {part: code for code, part in re.findall(r"\x1b\[(\d+)m([^\x1b]+)\x1b\[0m", text)}


def test_states_and_verdicts_have_colours_on_a_terminal():
    def show():
        for state in STATES:
            echo(f"a run is {state} at step 3")
        for verdict in VERDICTS:
            print_table(["variant", "verdict"], [["a", f"{verdict}; could be more"]])

    found = colours(in_terminal(80, show))
    assert found == STATES | VERDICTS
    assert found["better"] != found["worse"] != found["no difference"]


@pytest.mark.parametrize(
    "line", ["the better question", "runs/DONE-1/x", "  better than before", "DONEX", "worse"]
)
def test_other_words_have_no_colour(line):
    assert in_terminal(80, lambda: echo(line)) == f"{line}\n"


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, True),
        ({"NO_COLOR": "1"}, False),
        ({"NO_COLOR": ""}, True),
        ({"TERM": "dumb"}, False),
        ({"TERM": "dumb", "FORCE_COLOR": "1"}, True),
        ({"NO_COLOR": "1", "FORCE_COLOR": "1"}, False),
    ],
)
def test_variables_turn_colours_off_and_on(environment, expected):
    text = in_terminal(80, lambda: echo("a run is FAILED"), **environment)
    assert ("\x1b" in text) == expected
    assert plain(text) == "a run is FAILED\n"


def test_force_color_colours_a_pipe_but_never_json():
    @click.command()
    def show():
        echo("a run is FAILED")
        echo_json(["FAILED"])

    text = CliRunner().invoke(show, env={"FORCE_COLOR": "1"}).output
    assert text == 'a run is \x1b[31mFAILED\x1b[0m\n[\n "FAILED"\n]\n'


def test_escape_sequences_of_files_stay_visible_text_beside_colours():
    text = in_terminal(80, lambda: echo("\x1b[31mquestion\x1b[0m DONE"))
    assert text == "\\x1b[31mquestion\\x1b[0m \x1b[32mDONE\x1b[0m\n"


def test_columns_overrides_the_width_of_a_terminal():
    text = in_terminal(80, lambda: echo("word " * 12), COLUMNS="20")
    assert max(map(len, text.splitlines())) <= 20
