"""Small pictures of the effect of a pitfall, measured on the notebook's own model and sentences.

A picture is plain data: ``strips`` are rows of cells, ``heat`` is one map or two with a number in each cell,
``bars`` are the parts of a whole. `headtohead_notebooks.page.drawing` renders them as HTML.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headtohead.data.normalise import normaliser
from headtohead.schema.run_config import RunConfig
from headtohead.testing.checks.configurations import with_quirks
from headtohead_notebooks.page.descriptions import Notebook
from headtohead_notebooks.page.numbers import plain
from headtohead_notebooks.pitfalls.case import Case
from headtohead_notebooks.pitfalls.model import reversed_reference

Picture = dict[str, Any]
Numbers = Mapping[str, float]
Cell = dict[str, Any]

FAINTEST = -12.0
"""Changes are shaded by their power of ten, from 1e-12, a rounding error, to 1."""


def pitfall_picture(pitfall: str, case: Case, notebook: Notebook, numbers: Numbers) -> Picture | None:
    """Return the picture of a pitfall, or None if it has none or the data has no example.

    Raises:
        MissingFilesError: If the data is not available.
    """
    make = _PICTURES.get(pitfall)
    return make(case, notebook, numbers) if make else None


def _words_dropped(case: Case, notebook: Notebook, numbers: Numbers) -> Picture | None:
    vocabulary, split = case.data.source_vocabulary, case.data.tokenisers["source"].split
    for sentence in notebook.sentences:
        cells = [_cell(word, "gone" if word not in vocabulary else "") for word in split(sentence)]
        if any(cell["mark"] for cell in cells):
            ids = [_cell(str(index)) for index in case.data.tokenise(sentence, "source")]
            return _strips([("sentence", cells), ("ids", ids)], "Struck out: a word without id, which is dropped.")
    return None


def _no_boundary_tokens(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    train = case.data.splits["train"]
    texts = dict(zip(train.source_text, train.target_text, strict=True))
    rows = []
    for sentence in notebook.sentences:
        words = texts[sentence].split() if sentence in texts else []
        cells = [_cell("<sos>?", "missing")]
        cells += [_cell(word, "" if position else "faint") for position, word in enumerate(words)]
        rows.append((sentence, [*cells, _cell("<eos>?", "missing")]))
    return _strips(rows, "Pale: never a label. Dashed: missing.")


def _letters_lost(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    normalise = normaliser(case.config.data.normalise)
    rows = [(word, [_cell(part, "hot") for part in normalise(word).split()]) for word in notebook.words]
    return _strips(rows, "Each box is one word of the model's input.")


def _positions_by_batch_row(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    def rows(by_row: bool) -> list[Picture]:
        return [
            {
                "label": f"row {row}",
                "cells": [
                    _cell(word, hue=row if by_row else position, note=f"P[{row if by_row else position}]")
                    for position, word in enumerate(sentence.split())
                ],
            }
            for row, sentence in enumerate(notebook.sentences)
        ]

    return {
        "kind": "strips",
        "panels": [
            {"title": "as written: one position per batch row", "rows": rows(True)},
            {"title": "fixed: one position per word", "rows": rows(False)},
        ],
        "note": "Three sentences in one batch. Equal colours are equal positions.",
    }


def _source_ignored(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    fixed = _with_config(case, with_quirks(case.config, cross_attention_memory="encoder"))
    source, target = case.data.source_vocabulary, case.data.target_vocabulary
    return _heat(
        [
            ("as written", case.changes_by_token("source")),
            ("with quirks.cross_attention_memory: encoder", fixed.changes_by_token("source")),
        ],
        rows=[source.label(index) for index in case.source],
        columns=[f"after {target.label(index)}" for index in case.target],
        note="Row: the replaced English word. Column: the decoder position. Number: the largest change of a logit.",
    )


def _future_not_masked(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    words = [case.data.target_vocabulary.label(index) for index in case.target]
    maps = [("as written", case.changes_by_token("target"))]
    if case.config.quirks.cross_attention_memory == "decoder":
        fixed = _with_config(case, with_quirks(case.config, cross_attention_memory="encoder"))
        maps.append(("with quirks.cross_attention_memory: encoder", fixed.changes_by_token("target")))
    return _heat(
        maps,
        rows=words,
        columns=[f"after {word}" for word in words],
        note="Row: the replaced French word. Column: the decoder position. Below the diagonal the replaced word "
        "is later than the position and should have no effect.",
    )


def _mask_on_embeddings(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    attention = case.config.attention.model_copy(update={"decoder": case.config.attention.encoder})
    fixed = _with_config(case, case.config.model_copy(update={"attention": attention}))
    words = [case.data.target_vocabulary.label(index) for index in case.target]
    return _heat(
        [
            ("as written", case.changes_by_token("target")),
            (f"with attention.decoder: {attention.decoder.name}", fixed.changes_by_token("target")),
        ],
        rows=words,
        columns=words,
        note="Row: the replaced French word. Column: the decoder position. Number: the largest change of a logit; "
        "the shade is its power of ten.",
    )


def _fixed_padding(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    tokens = case.config.quirks.pad_to
    bars = {
        f"encoder, always to {tokens}": numbers["source_padding"],
        "encoder, to the longest": numbers["source_padding_to_longest"],
        f"decoder, always to {tokens}": numbers["target_padding"],
        "decoder, to the longest": numbers["target_padding_to_longest"],
    }
    return _bars({name: {"words": 1 - share, "padding": share} for name, share in bars.items()}, "Tokens of an epoch.")


def _one_table(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    source, target = case.data.source_vocabulary.words, case.data.target_vocabulary.words
    marks = ["" if word == other else "hot" for word, other in zip(source, target, strict=True)]
    rows = [("id", [_cell(str(index)) for index in range(len(source))])]
    for name, words in (("English", source), ("French", target)):
        rows.append((name, [_cell(word, mark) for word, mark in zip(words, marks, strict=True)]))
    return _strips(rows, "Two words below one id start from the same vector.", grid=True)


def _targets_not_shifted(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    words = [case.data.target_vocabulary.label(index) for index in case.target]
    rows = [
        ("decoder input", [_cell(word) for word in words]),
        ("label, as written", [_cell(word, "hot") for word in words]),
        ("label, shifted by one", [_cell(word) for word in [*words[1:], ""]]),
    ]
    return _strips(rows, "Each column is one decoder position.", grid=True)


def _parameters_frozen(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    share = numbers["trained"] / numbers["weights"]
    return _bars({"weights": {"trained": share, "frozen": 1 - share}}, "Weights updated by the single step.")


def _not_autoregressive(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    source, target = case.data.source_vocabulary, case.data.target_vocabulary
    rows = []
    for ids in (case.source, case.source[::-1]):
        predicted = case.logits([ids], [[0] * len(ids)])[0].argmax(-1).tolist()
        rows.append(("source", [_cell(source.label(index)) for index in ids]))
        rows.append(("decoder input", [_cell("0") for _ in ids]))
        rows.append(("prediction", [_cell(target.label(index), "hot") for index in predicted]))
    return _strips(rows, "The second source is the first one reversed. <pad> is not printed.", grid=True)


def _reference_as_input(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    vocabulary = case.data.target_vocabulary
    rows = []
    for reference in (case.target, reversed_reference(case.target)):
        predicted = case.logits([case.source], [reference])[0].argmax(-1).tolist()
        rows.append(("reference as input", [_cell(vocabulary.label(index)) for index in reference]))
        rows.append(("“translation”", [_cell(vocabulary.label(index), "hot") for index in predicted]))
    return _strips(rows, "The source is the same.", grid=True)


def _with_config(case: Case, config: RunConfig) -> Case:
    return Case(config, case.registry, case.cache)


def _cell(text: str, mark: str = "", *, hue: int | None = None, note: str = "") -> Cell:
    return {"text": text, "mark": mark, "hue": hue, "note": note}


def _strips(rows: Sequence[tuple[str, list[Cell]]], note: str, *, grid: bool = False) -> Picture:
    panel = {"title": "", "rows": [{"label": name, "cells": cells} for name, cells in rows]}
    return {"kind": "strips", "panels": [panel], "note": note, "grid": grid}


def _bars(bars: Mapping[str, Mapping[str, float]], note: str) -> Picture:
    return {
        "kind": "bars",
        "bars": [
            {"label": label, "parts": [{"name": name, "share": share} for name, share in parts.items()]}
            for label, parts in bars.items()
        ],
        "note": note,
    }


def _heat(
    maps: Sequence[tuple[str, list[list[float]]]], *, rows: Sequence[str], columns: Sequence[str], note: str
) -> Picture:
    panels = [
        {"title": title, "cells": [[_shaded(value) for value in row] for row in values]} for title, values in maps
    ]
    return {"kind": "heat", "panels": panels, "rows": list(rows), "columns": list(columns), "note": note}


def _shaded(value: float) -> Cell:
    """Return a number and its shade from 0 to 1, by its power of ten."""
    if value <= 10**FAINTEST:
        return {"text": plain(value), "shade": 0.0}
    shade = 1 - min(0.0, math.log10(value)) / FAINTEST
    return {"text": plain(value), "shade": round(shade, 3)}


_PICTURES: dict[str, Callable[[Case, Notebook, Numbers], Picture | None]] = {
    "words dropped": _words_dropped,
    "no boundary tokens": _no_boundary_tokens,
    "letters lost": _letters_lost,
    "positions by batch row": _positions_by_batch_row,
    "future not masked": _future_not_masked,
    "source ignored": _source_ignored,
    "mask on embeddings": _mask_on_embeddings,
    "fixed padding": _fixed_padding,
    "one table, two vocabularies": _one_table,
    "targets not shifted": _targets_not_shifted,
    "parameters frozen": _parameters_frozen,
    "not autoregressive": _not_autoregressive,
    "reference as input": _reference_as_input,
}
