"""The sentences whose attention is recorded: those the file names, else two of the test set."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.data import PreparedData
from headtohead.schema.experiment_file import Probe
from headtohead.storage.records import ProbeSentence

QUANTILES = (0.5, 0.9)
"""Places, in the test set by source length, of the two sentences that are taken by default."""


def choose_probes(given: Sequence[str | Probe] | None, data: PreparedData) -> tuple[ProbeSentence, ...]:
    """Return the probes of an experiment, the same for every variant."""
    if given is not None:
        probes = [Probe(source=probe) if isinstance(probe, str) else probe for probe in given]
        return tuple(ProbeSentence(source=probe.source, target=probe.target) for probe in probes)
    test = data.splits["test"]
    order = sorted(range(len(test)), key=lambda row: (len(test.source[row]), test.source_text[row]))
    rows = dict.fromkeys(order[int(place * (len(order) - 1))] for place in QUANTILES)
    return tuple(ProbeSentence(source=test.source_text[row], target=None) for row in rows)
