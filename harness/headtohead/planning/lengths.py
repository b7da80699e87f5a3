"""The decoding limit, the probe sentences, and notes on the lengths of sentences."""

from __future__ import annotations

from collections.abc import Sequence

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
    "the longest training source has {length} tokens, which is inside a bucket of evaluate.buckets: "
    "add a bound at {length} to separate lengths that were trained on from longer ones"
)


def decoding_limit(config: RunConfig, longest_target: int) -> int:
    """Return the maximum number of tokens that autoregressive decoding generates.

    It is ``evaluate.max_length`` or, by default, 1.5 times the number of labels of the longest
    training target, at least 4.

    Args:
        config: A resolved configuration.
        longest_target: Tokens of the longest training target, boundary tokens included.
    """
    labels = int(decoder_input_lengths(config, np.array([longest_target]))[0])
    return config.evaluate.max_length or max(4, labels * 3 // 2)


def length_notes(config: RunConfig, data: PreparedData) -> list[str]:
    """Return notes on test sentences that are too long for the decoding limit or the buckets; empty without any.

    - References that, with their end, exceed `decoding_limit`: no output matches them. Checked for greedy decoding of
      words without a vocabulary file only. The shortest reference of a sentence counts.
    - With ``data.split: length``, a longest training source that is not a bound of ``evaluate.buckets``, if a test
      source is longer. Its bucket can mix lengths of training with longer ones; whether a test source is in it is not
      checked.

    Args:
        config: A resolved configuration.
        data: Its data, with the splits ``train`` and ``test``; every test sentence has a reference.
    """
    notes = []
    decodes_words = config.data.tokens == "word" and config.data.vocabulary.file is None
    if config.evaluate.decode == "greedy" and decodes_words:
        limit = decoding_limit(config, data.longest_target)
        shortest = []
        for texts in data.splits["test"].references:
            shortest.append(min(len(text.split()) for text in texts))
        longer = sum(length >= limit for length in shortest)
        if longer:
            notes.append(
                LONG_REFERENCES.format(
                    number=longer, all=len(shortest), limit=limit, enough=max(shortest) + 1
                )
            )
    if config.data.split == "length":
        longest = _longest_source(data, data.splits["train"])
        has_longer = _longest_source(data, data.splits["test"]) > longest
        if has_longer and longest not in config.evaluate.buckets:
            notes.append(MIXED_BUCKET.format(length=longest))
    return notes


def _longest_source(data: PreparedData, split: Split) -> int:
    """Return the number of words of the longest source of a split."""
    return max(data.source_vocabulary.count_words(ids) for ids in split.measured)


def choose_probes(
    configured: Sequence[str | Probe] | None, data: PreparedData
) -> tuple[ProbeSentence, ...]:
    """Return the probe sentences of an experiment: the configured ones or, by default, up to two test sentences.

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
    """Return the test sentences whose source lengths are the `QUANTILES`; one if both are the same sentence.

    Without sources, the probes are the beginnings of targets, of at most ``PROBE_TOKENS`` tokens. An empty test set is
    an `IndexError`; prepared data have none.
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
