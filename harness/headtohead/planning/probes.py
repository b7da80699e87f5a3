"""Choose the probe sentences, for which attention maps are recorded."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.data import PreparedData
from headtohead.schema.experiment_file import Probe
from headtohead.storage.experiment import ProbeSentence

QUANTILES = (0.5, 0.9)
"""Quantiles of the source length in the test set at which the default probes are taken."""


def choose_probes(given: Sequence[str | Probe] | None, data: PreparedData) -> tuple[ProbeSentence, ...]:
    """Return the configured probe sentences, or by default two test sentences; every variant gets the same."""
    if given is not None:
        probes = [Probe(source=probe) if isinstance(probe, str) else probe for probe in given]
        return tuple(ProbeSentence(source=probe.source, target=probe.target) for probe in probes)
    test = data.splits["test"]
    order = sorted(range(len(test)), key=lambda row: (len(test.source[row]), test.source_text[row]))
    rows = dict.fromkeys(order[int(quantile * (len(order) - 1))] for quantile in QUANTILES)
    return tuple(ProbeSentence(source=test.source_text[row], target=None) for row in rows)
