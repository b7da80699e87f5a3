"""Measurements of the pitfalls of a configuration, on its own data and at its own sizes."""

from __future__ import annotations

from collections.abc import Callable

from headtohead_notebooks.pitfalls import data, model
from headtohead_notebooks.pitfalls.case import Case, Numbers

MEASUREMENTS: dict[str, Callable[[Case], Numbers]] = {
    "nothing held out": data.nothing_held_out,
    "split by rows": data.split_by_rows,
    "letters lost": data.letters_lost,
    "words dropped": data.words_dropped,
    "no boundary tokens": data.no_boundary_tokens,
    "one table, two vocabularies": data.one_table_two_vocabularies,
    "targets not shifted": data.targets_not_shifted,
    "fixed padding": data.fixed_padding,
    "positions by batch row": model.positions_by_batch_row,
    "mask on embeddings": model.mask_on_embeddings,
    "future not masked": model.future_not_masked,
    "padding not masked": model.padding_not_masked,
    "source ignored": model.source_ignored,
    "never trained": model.never_trained,
    "parameters frozen": model.parameters_frozen,
    "not autoregressive": model.not_autoregressive,
    "reference as input": model.reference_as_input,
}
"""The measurement of each pitfall, by the name of the pitfall. It raises MissingFilesError without its data."""
