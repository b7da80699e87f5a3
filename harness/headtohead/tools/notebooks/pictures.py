"""Small pictures of what a pitfall did, measured on the notebook's own model and sentences.

A picture is plain data, so that it can be kept: ``strips`` are rows of cells, ``heat`` one map or
two with a number in each cell, ``bars`` parts of a whole. `headtohead.tools.notebooks.drawing` makes HTML
of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from headtohead.data.normalise import normaliser
from headtohead.schema.run_config import RunConfig
from headtohead.tools.notebooks.known import Notebook
from headtohead.tools.notebooks.numbers import plain
from headtohead.tools.pitfalls import Case
from headtohead.tools.pitfalls.case import other_word

Picture = dict[str, Any]
Numbers = Mapping[str, float]
Cell = dict[str, Any]

FAINTEST = -12.0
"""Changes are shaded by their power of ten: from 1e-12, which is rounding, up to 1."""


def picture(pitfall: str, case: Case, notebook: Notebook, numbers: Numbers) -> Picture | None:
    """Return the picture of a pitfall, or None where there is none or nothing to draw it from."""
    draw = _PICTURES.get(pitfall)
    return draw(case, notebook, numbers) if draw else None


def _words_dropped(case: Case, notebook: Notebook, numbers: Numbers) -> Picture | None:
    vocabulary, split = case.data.source_vocabulary, case.data.tokenisers["source"].split
    for sentence in notebook.sentences:
        cells = [_cell(word, "gone" if vocabulary.lacks(word) else "") for word in split(sentence)]
        if any(one["mark"] for one in cells):
            ids = [_cell(str(index)) for index in case.data.tokenise(sentence, "source")]
            rows = [{"label": "written", "cells": cells}, {"label": "ids that the model reads", "cells": ids}]
            return _strips(rows, "Struck out: has no id, and is left out.")
    return None


def _no_start_no_stop(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    train = case.data.splits["train"]
    texts = dict(zip(train.source_text, train.target_text, strict=True))
    rows = []
    for sentence in notebook.sentences:
        words = texts[sentence].split() if sentence in texts else []
        cells = [_cell("<sos>?", "missing")]
        cells += [_cell(word, "" if place else "faint") for place, word in enumerate(words)]
        rows.append({"label": sentence, "cells": [*cells, _cell("<eos>?", "missing")]})
    return _strips(rows, "Pale: never asked for. Dashed: not there.")


def _letters_destroyed(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    normalise = normaliser(case.config.data.normalise or "none")
    rows = [
        {"label": word, "cells": [_cell(part, "hot") for part in normalise(word).split()]} for word in notebook.words
    ]
    return _strips(rows, "Each box is what the model takes for a word.")


def _positions_by_batch_row(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    def rows(by_row: bool) -> list[dict[str, Any]]:
        return [
            {
                "label": f"row {row}",
                "cells": [
                    _cell(word, hue=row if by_row else place, note=f"P[{row if by_row else place}]")
                    for place, word in enumerate(sentence.split())
                ],
            }
            for row, sentence in enumerate(notebook.sentences)
        ]

    return {
        "kind": "strips",
        "panels": [
            {"title": "as written: a position for each row", "rows": rows(True)},
            {"title": "put right: a position for each word", "rows": rows(False)},
        ],
        "note": "Three sentences in one batch. Equal colours are equal positions.",
    }


def _deaf_decoder(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    model = case.config.model.model_copy(update={"cross": "encoder"})
    mended = _other(case, case.config.model_copy(update={"model": model}))
    source, target = case.data.source_vocabulary, case.data.target_vocabulary
    return _heat(
        [("as written", _by_source(case)), ("with quirks.cross_attention_memory: encoder", _by_source(mended))],
        rows=[source.label(index) for index in case.source],
        columns=[f"after {target.label(index)}" for index in case.target],
        note="Row: the English word that is exchanged. Column: where the decoder stands. Number: "
        "how much its logits change at most.",
    )


def _future_visible(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    words = [case.data.target_vocabulary.label(index) for index in case.target]
    maps = [("as written", _by_target(case))]
    if case.config.quirks.cross_attention_memory == "decoder":
        model = case.config.model.model_copy(update={"cross": "encoder"})
        mended = _other(case, case.config.model_copy(update={"model": model}))
        maps.append(("with quirks.cross_attention_memory: encoder", _by_target(mended)))
    return _heat(
        maps,
        rows=words,
        columns=[f"after {word}" for word in words],
        note="Row: the French word that is exchanged. Column: where the decoder stands. Below the "
        "diagonal the word lies ahead: it should not be heard there.",
    )


def _by_source(case: Case) -> list[list[float]]:
    """Return how much each source word, exchanged, moves each row of logits; each pass by itself.

    One pass at a time: in a batch, the same row may be rounded in another way.
    """
    before = case.logits([case.source], [case.target])[0]
    found = []
    for place, word in enumerate(case.source):
        changed = [*case.source]
        changed[place] = other_word(word, case.words[0])
        after = case.logits([changed], [case.target])[0]
        found.append((after - before).abs().amax(-1).tolist())
    return found


def _mask_on_embeddings(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    attention = case.config.attention.model_copy(update={"decoder": case.config.attention.encoder})
    mended = _other(case, case.config.model_copy(update={"attention": attention}))
    words = [case.data.target_vocabulary.label(index) for index in case.target]
    return _heat(
        [("as written", _by_target(case)), (f"with attention.decoder: {attention.decoder.name}", _by_target(mended))],
        rows=words,
        columns=words,
        note="Row: the French word that is exchanged. Column: where the decoder stands. Number: "
        "how much its logits change at most; the shade is its power of ten.",
    )


def _by_target(case: Case) -> list[list[float]]:
    """Return how much each target word, exchanged, moves each row of logits."""
    before = case.logits([case.source], [case.target])[0]
    found = []
    for place, word in enumerate(case.target):
        changed = [*case.target]
        changed[place] = other_word(word, case.words[1])
        after = case.logits([case.source], [changed])[0]
        found.append((after - before).abs().amax(-1).tolist())
    return found


def _fixed_padding(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    return _bars(
        [
            (name, [("words", 1 - numbers[part]), ("padding", numbers[part])])
            for name, part in (
                ("encoder, always to 100", "source_padding"),
                ("encoder, to the longest", "source_padding_to_longest"),
                ("decoder, always to 100", "target_padding"),
                ("decoder, to the longest", "target_padding_to_longest"),
            )
        ],
        "What is computed in an epoch.",
    )


def _one_table(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    source, target = case.data.source_vocabulary.words, case.data.target_vocabulary.words
    same = [one == other for one, other in zip(source, target, strict=True)]
    rows = [{"label": "id", "cells": [_cell(str(index)) for index in range(len(source))]}]
    rows += [
        {"label": name, "cells": [_cell(word, "" if equal else "hot") for word, equal in zip(words, same, strict=True)]}
        for name, words in (("English", source), ("French", target))
    ]
    return _strips(rows, "Two words below one id start from the same vector.", grid=True)


def _answer_given(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    words = [case.data.target_vocabulary.label(index) for index in case.target]
    shifted = [*words[1:], ""]
    rows = [
        {"label": "the decoder reads", "cells": [_cell(word) for word in words]},
        {"label": "asked for, as written", "cells": [_cell(word, "hot") for word in words]},
        {"label": "asked for, shifted by one", "cells": [_cell(word) for word in shifted]},
    ]
    return _strips(rows, "A column is one place of the decoder.", grid=True)


def _parts_untrained(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    share = numbers["trained"] / numbers["weights"]
    return _bars([("weights", [("trained", share), ("as drawn", 1 - share)])], "What the one step may move.")


def _one_pass_over_zeros(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    vocabulary = case.data.target_vocabulary
    rows = []
    for words in (case.source, case.source[::-1]):
        written = case.logits([words], [[0] * len(words)])[0].argmax(-1).tolist()
        said = [case.data.source_vocabulary.label(index) for index in words]
        rows.append({"label": "source", "cells": [_cell(word) for word in said]})
        rows.append({"label": "the decoder reads", "cells": [_cell("0") for _ in words]})
        rows.append({"label": "it writes", "cells": [_cell(vocabulary.label(index), "hot") for index in written]})
    note = "The second source is the first one the other way round. <pad> is not printed."
    return _strips(rows, note, grid=True)


def _reference_given(case: Case, notebook: Notebook, numbers: Numbers) -> Picture:
    vocabulary, target = case.data.target_vocabulary, case.target
    rows = []
    for order in (target, [*target[:1], *target[1:-1][::-1], *target[-1:]]):
        written = case.logits([case.source], [order])[0].argmax(-1).tolist()
        read = [_cell(vocabulary.label(index)) for index in order]
        said = [_cell(vocabulary.label(index), "hot") for index in written]
        rows.append({"label": "answer that is read", "cells": read})
        rows.append({"label": "“translation”", "cells": said})
    return _strips(rows, "The source is the same.", grid=True)


def _other(case: Case, config: RunConfig) -> Case:
    """Return the case of another configuration, on the same sentence."""
    return Case(config, case.registry, case.cache)


def _cell(text: str, mark: str = "", *, hue: int | None = None, note: str = "") -> Cell:
    return {"text": text, "mark": mark, "hue": hue, "note": note}


def _strips(rows: Sequence[Mapping[str, Any]], note: str, *, grid: bool = False) -> Picture:
    panel = {"title": "", "rows": list(rows)}
    return {"kind": "strips", "panels": [panel], "note": note, "grid": grid}


def _bars(bars: Sequence[tuple[str, list[tuple[str, float]]]], note: str) -> Picture:
    return {
        "kind": "bars",
        "bars": [
            {"label": name, "parts": [{"name": part, "share": share} for part, share in parts]} for name, parts in bars
        ],
        "note": note,
    }


def _heat(
    maps: Sequence[tuple[str, list[list[float]]]], *, rows: Sequence[str], columns: Sequence[str], note: str
) -> Picture:
    panels = [
        {"title": title, "cells": [[_shaded(value) for value in line] for line in values]} for title, values in maps
    ]
    return {"kind": "heat", "panels": panels, "rows": list(rows), "columns": list(columns), "note": note}


def _shaded(value: float) -> Cell:
    """Return a number and its shade from 0 to 1, by its power of ten."""
    if value <= 10**FAINTEST:
        return {"text": "0" if value == 0 else plain(value), "shade": 0.0}
    shade = 1 - min(0.0, math.log10(value)) / FAINTEST
    return {"text": plain(value), "shade": round(shade, 3)}


_PICTURES: dict[str, Callable[[Case, Notebook, Numbers], Picture | None]] = {
    "words dropped": _words_dropped,
    "no boundary tokens": _no_start_no_stop,
    "letters lost": _letters_destroyed,
    "positions by batch row": _positions_by_batch_row,
    "future not masked": _future_visible,
    "source ignored": _deaf_decoder,
    "mask on embeddings": _mask_on_embeddings,
    "fixed padding": _fixed_padding,
    "one table, two vocabularies": _one_table,
    "targets not shifted": _answer_given,
    "parameters frozen": _parts_untrained,
    "not autoregressive": _one_pass_over_zeros,
    "reference as input": _reference_given,
}
