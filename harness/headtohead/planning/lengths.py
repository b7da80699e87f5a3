"""The decoding limit, the probe sentences, and notes on the lengths of sentences."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence

import numpy as np

from headtohead.data import PreparedData
from headtohead.data.byte_alphabet import INCOMPLETE
from headtohead.data.prepared import Split
from headtohead.model.quirks import decoder_input_lengths
from headtohead.schema.experiment_file import Probe
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import ProbeSentence

QUANTILES = (0.5, 0.9)
"""Quantiles of the source length in the test set at which the default probes are taken."""

PROBE_TOKENS = 24
"""Tokens of a probe from a text or a sequence, without source."""

LONG_REFERENCES = (
    "{number} of {all} test references and their end exceed the decoding limit of {limit} words: "
    "set evaluate.max_length: {enough}"
)
MIXED_BUCKET = (
    "the longest training example has {length} tokens, and a bucket of evaluate.buckets has test examples of {shorter} "
    "to {longer}: add a bound at {length} to separate lengths that were trained on from longer ones"
)


def decoding_limit(config: RunConfig, longest_target: int) -> int:
    """Return the maximum number of tokens that autoregressive decoding generates.

    It is ``evaluate.max_length`` or, by default, 1.5 times the number of labels of the longest training target,
    rounded down, and at least 4.

    Args:
        config: A resolved configuration.
        longest_target: Tokens of the longest training target, boundary tokens included.

    Raises:
        HeadToHeadError: If a quirk is not registered, or its code fails.
    """
    labels = int(decoder_input_lengths(config, np.array([longest_target]))[0])
    return config.evaluate.max_length or max(4, labels * 3 // 2)


def length_notes(config: RunConfig, data: PreparedData) -> list[str]:
    """Return notes on test sentences that are too long for the decoding limit or the buckets; empty without any.

    There is at most one note of each kind: that of `_long_references`, then that of `_mixed_bucket`.

    Args:
        config: A resolved configuration.
        data: Its data, with the splits ``train`` and ``test``; every test sentence has a reference.

    Raises:
        HeadToHeadError: If a quirk is not registered, or its code fails.
    """
    notes = [_long_references(config, data), _mixed_bucket(config, data)]
    return [note for note in notes if note is not None]


def _long_references(config: RunConfig, data: PreparedData) -> str | None:
    """Return a note on the references that, with their end, exceed `decoding_limit`, or None if there are none.

    No output matches such a reference. Of a sentence with several references, only the shortest counts. Also None
    unless decoding is greedy and tokens are words without a vocabulary file.
    """
    decodes_words = config.data.tokens == "word" and config.data.vocabulary.file is None
    if config.evaluate.decode != "greedy" or not decodes_words:
        return None
    limit = decoding_limit(config, data.longest_target)
    lengths = []
    for references in data.splits["test"].references:
        lengths.append(min(len(text.split()) for text in references))
    number = sum(length + 1 > limit for length in lengths)  # the end is one more
    if number == 0:
        return None
    enough = max(lengths) + 1
    return LONG_REFERENCES.format(number=number, all=len(lengths), limit=limit, enough=enough)


def _mixed_bucket(config: RunConfig, data: PreparedData) -> str | None:
    """Return a note if a bucket mixes lengths that occur in training with longer ones, or None.

    It is the bucket of ``evaluate.buckets`` of the longest training example. The note is returned if this bucket has
    scored test examples that are longer than every training example, and others. Also None without ``data.split:
    length``.
    """
    if config.data.split != "length":
        return None
    train = data.splits["train"]
    test = data.splits["test"]
    bounds = config.evaluate.buckets
    longest_trained = max(_lengths(data, train, range(len(train))))
    bucket = bisect_left(bounds, longest_trained)
    lengths = []
    for length in _lengths(data, test, test.distinct_sources(config.evaluate.test_limit)):
        if bisect_left(bounds, length) == bucket:
            lengths.append(length)
    if not lengths:
        return None
    shortest = min(lengths)
    longest = max(lengths)
    if shortest > longest_trained or longest <= longest_trained:
        return None
    return MIXED_BUCKET.format(length=longest_trained, shorter=shortest, longer=longest)


def _lengths(data: PreparedData, split: Split, rows: Iterable[int]) -> list[int]:
    """Return the number of tokens of examples without boundary tokens, as the buckets of the results count them."""
    measured = split.measured
    return [data.source_vocabulary.count_words(measured[row]) for row in rows]


def choose_probes(
    configured: Sequence[str | Probe] | None, data: PreparedData
) -> tuple[ProbeSentence, ...]:
    """Return the probe sentences of an experiment: the configured sentences or, by default, up to two test sentences.

    The sentences are not checked: a probe that a run cannot encode is left out later, by the scheduler.

    Args:
        configured: The file's ``probes``; a text is a source. None means the default, an empty list no probes.
        data: The data of the baseline. Probes of a text are cut to the tokens that a model predicts of a block.
    """
    if configured is None:
        return tuple(_default_probes(data))
    tokeniser = data.tokenisers["target"]
    probes = []
    for entry in configured:
        probe = Probe(source=entry) if isinstance(entry, str) else entry
        source, target = data.texts(probe.source, probe.target)
        if tokeniser.unit.is_text:
            source = ""
            target = tokeniser.beginning(str(target), data.record["longest"]["target"] - 1)
        probes.append(ProbeSentence(source=source, target=target))
    return tuple(probes)


def _default_probes(data: PreparedData) -> list[ProbeSentence]:
    """Return the test sentences whose source lengths are the `QUANTILES`; a single sentence if both are the same.

    Without sources, the probes are the beginnings of two targets, of at most ``PROBE_TOKENS`` tokens, and of at most
    those that a model predicts of a training block. An empty test set is an `IndexError`; prepared data have none.
    """
    test = data.splits["test"]
    order = sorted(range(len(test)), key=lambda row: (len(test.source[row]), test.source_text[row]))
    # A mapping keeps the order and each row once.
    rows = dict.fromkeys(order[int(quantile * (len(order) - 1))] for quantile in QUANTILES)
    if any(len(ids) for ids in test.source):
        return [ProbeSentence(source=test.source_text[row], target=None) for row in rows]
    tokeniser = data.tokenisers["target"]
    most = min(PROBE_TOKENS, data.record["longest"]["target"] - 1)
    probes = []
    for row in rows:
        text = tokeniser.decode(test.target[row].tolist()).lstrip(INCOMPLETE)
        probes.append(ProbeSentence(source="", target=tokeniser.beginning(text, most)))
    return probes
