"""The measurement of each pitfall, by the name of the pitfall."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headtohead.testing.checks.examination import MissingFilesError
from headtohead_notebooks.pitfalls import data, model
from headtohead_notebooks.pitfalls.case import Case
from headtohead_notebooks.pitfalls.facts import Fact

Measure = Callable[[Case], Iterator[tuple[str, dict[str, float]]]]
"""Yields sentences with their numbers, in a fixed order."""

MEASUREMENTS: dict[str, Measure] = {
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


def measure_pitfall(name: str, case: Case) -> list[Fact]:
    """Return the measured facts about a pitfall; the last fact names missing data, if any."""
    facts = []
    try:
        for sentence, numbers in MEASUREMENTS[name](case):
            facts.append(Fact(name, sentence, numbers))
    except MissingFilesError as missing:
        facts.append(Fact(name, f"not measured: {missing}", measured=False))
    return facts
