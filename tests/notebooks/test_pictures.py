"""The pictures show what was measured, and the words of the page fit the evidence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from headtohead.tools.notebooks.content import Broken
from headtohead.tools.notebooks.known import EXPLANATIONS, NOTEBOOKS
from headtohead.tools.notebooks.measured import Measured
from headtohead.tools.pitfalls import EVIDENCE

Pitfalls = Callable[[str], dict[str, Measured]]


def picture(measured: Pitfalls, recipe: str, pitfall: str) -> dict[str, Any]:
    found = measured(recipe)[pitfall].picture
    assert found is not None
    return dict(found)


def shown(panel: dict[str, Any]) -> list[list[str]]:
    return [[cell["text"] for cell in line] for line in panel["cells"]]


def words(row: dict[str, Any]) -> list[str]:
    return [cell["text"] for cell in row["cells"]]


def test_every_fault_is_explained() -> None:
    assert EXPLANATIONS.keys() == EVIDENCE.keys()


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda one: one.recipe)
def test_every_sentence_has_its_numbers_where_the_data_is_at_hand(notebook, measured) -> None:
    for name, one in measured(notebook.recipe).items():
        broken = Broken(one, EXPLANATIONS[name])
        says = one.pitfall.consequence
        assert (broken.did == f"{says[0].upper()}{says[1:]}.") == (not one.numbers)
        assert "{" not in broken.did
        assert one.measured or broken.missing.startswith("Not measured: no file")


def test_no_english_word_reaches_a_deaf_decoder(measured: Pitfalls) -> None:
    deaf, mended = picture(measured, "slides-en-fr", "source ignored")["panels"]
    assert shown(deaf) == [["0"] * 3] * 4
    assert all(float(text) > 0.01 for line in shown(mended) for text in line)


def test_words_ahead_are_heard_where_the_second_attention_reads_the_decoder(measured: Pitfalls) -> None:
    seen, mended = picture(measured, "slides-en-fr", "future not masked")["panels"]
    for row, (line, right) in enumerate(zip(shown(seen), shown(mended), strict=True)):
        for column, (text, sound) in enumerate(zip(line, right, strict=True)):
            assert float(text) > 0.01
            assert (float(sound) > 0.01) == (column >= row)


def test_a_mask_on_embeddings_leaves_the_diagonal(measured: Pitfalls) -> None:
    masked, mended = picture(measured, "by-hand-en-fr", "mask on embeddings")["panels"]
    for row, (line, right) in enumerate(zip(shown(masked), shown(mended), strict=True)):
        for column, (text, sound) in enumerate(zip(line, right, strict=True)):
            own = row == column and row > 0
            assert (float(text) > 0.1) == own
            assert float(text) > 0.1 or float(text) < 1e-7
            assert (float(sound) > 0.01) == (column >= row)


def test_the_dropped_word_is_struck_out_and_has_no_id(measured: Pitfalls) -> None:
    (panel,) = picture(measured, "scratch-en-fr", "words dropped")["panels"]
    written, read = panel["rows"]
    assert [(one["text"], one["mark"]) for one in written["cells"]] == [("cat", ""), ("is", "gone"), ("small", "")]
    assert words(read) == ["9", "22", "39"]
    assert measured("by-hand-en-fr")["words dropped"].picture is None


def test_the_answer_is_asked_for_where_it_is_read(measured: Pitfalls) -> None:
    (panel,) = picture(measured, "by-hand-en-fr", "targets not shifted")["panels"]
    reads, asked, shifted = map(words, panel["rows"])
    assert reads == asked == ["<sos>", "c'est", "un", "chat", "gros", "<eos>"]
    assert shifted == ["c'est", "un", "chat", "gros", "<eos>", ""]


def test_words_of_a_row_have_one_position_and_words_of_a_sentence_their_own(measured: Pitfalls) -> None:
    written, mended = picture(measured, "tatoeba-en-es", "positions by batch row")["panels"]
    for row, (line, right) in enumerate(zip(written["rows"], mended["rows"], strict=True)):
        assert {cell["hue"] for cell in line["cells"]} == {row}
        assert [cell["hue"] for cell in right["cells"]] == list(range(len(right["cells"])))


def test_letters_fall_out_of_words(measured: Pitfalls) -> None:
    (panel,) = picture(measured, "tatoeba-en-es", "letters lost")["panels"]
    assert {row["label"]: words(row) for row in panel["rows"]} == {
        "cumpleaños": ["cumplea", "os"],
        "mañana": ["ma", "ana"],
        "pingüino": ["ping", "ino"],
    }


def test_the_first_word_is_never_asked_for(measured: Pitfalls) -> None:
    (panel,) = picture(measured, "architecture-en-de", "no boundary tokens")["panels"]
    faint = [[one["text"] for one in row["cells"] if one["mark"] == "faint"] for row in panel["rows"]]
    assert faint == [["auf"], ["wie"], ["können"]]


def test_bars_are_the_parts_of_a_whole(measured: Pitfalls) -> None:
    bars = picture(measured, "architecture-en-de", "fixed padding")["bars"]
    assert [sum(part["share"] for part in bar["parts"]) for bar in bars] == [1.0] * 4
    assert bars[0]["parts"][1]["share"] == pytest.approx(0.9706)
