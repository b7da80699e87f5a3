"""The sentences whose attention is recorded: those the file names, else two of the test set."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headtohead.data import PreparedData
from headtohead.schema.config import Probe

QUANTILES = (0.5, 0.9)
"""Places, in the test set by source length, of the two sentences that are taken by default."""


def choose_probes(given: Sequence[str | Probe] | None, data: PreparedData) -> tuple[Mapping[str, str | None], ...]:
    """Return the probes of an experiment, the same for every variant."""
    if given is not None:
        probes = [Probe(source=one) if isinstance(one, str) else one for one in given]
        return tuple({"source": one.source, "target": one.target} for one in probes)
    test = data.splits["test"]
    order = sorted(range(len(test)), key=lambda row: (len(test.source[row]), test.source_text[row]))
    rows = dict.fromkeys(order[int(place * (len(order) - 1))] for place in QUANTILES)
    return tuple({"source": test.source_text[row], "target": None} for row in rows)
