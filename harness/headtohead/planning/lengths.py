"""The decoding limit, the probe sentences, and notes on the lengths of sentences."""

from __future__ import annotations

from collections.abc import Sequence

from headtohead.data import PreparedData
from headtohead.data.byte_alphabet import INCOMPLETE
from headtohead.schema.experiment_file import Probe
from headtohead.schema.run_config import RunConfig
from headtohead.storage.experiment import ProbeSentence


def decoding_limit(config: RunConfig, longest_target: int) -> int:
    """Return the maximum number of tokens that autoregressive decoding generates.

    It is ``evaluate.max_length`` or, by default, 1.5 times the number of labels of the longest
    training target (boundary tokens included), at least 4.
    """
    labels = longest_target - (config.quirks.shift_targets)
    return config.evaluate.max_length or max(4, labels * 3 // 2)


def length_notes(config: RunConfig, data: PreparedData) -> list[str]:
    """Return notes on test sentences that are longer than the training sentences.

    A reference that is longer than the decoding limit cannot be matched by any variant, and one as long as the limit is
    matched by an output without <eos>. If no bucket
    ends at the longest training source, a bucket mixes lengths that were trained on with longer ones.
    """
    train, test = data.splits["train"], data.splits["test"]
    notes = []
    if config.evaluate.decode == "greedy":
        limit = decoding_limit(config, data.longest_target)
        shortest = [min(len(text.split()) for text in texts) for texts in test.references]
        longer = sum(length >= limit for length in shortest)
        if longer and config.data.tokens == "word" and config.data.vocabulary.file is None:
            notes.append(
                f"{longer} of {len(test)} test references and their end exceed the decoding limit of {limit} words: "
                f"set evaluate.max_length: {max(shortest) + 1}"
            )
    longest_train, longest_test = (
        max(data.source_vocabulary.count_words(ids) for ids in split.measured)
        for split in (train, test)
    )
    if (
        config.data.split == "length"
        and longest_test > longest_train
        and longest_train not in config.evaluate.buckets
    ):
        notes.append(
            f"the longest training source has {longest_train} tokens, which is inside a bucket of evaluate.buckets: "
            f"add a bound at {longest_train} to separate lengths that were trained on from longer ones"
        )
    return notes


QUANTILES = (0.5, 0.9)
"""Quantiles of the source length in the test set at which the default probes are taken."""


PROBE_TOKENS = 24
"""Tokens of a probe from a text or a sequence, without source."""


def choose_probes(
    given: Sequence[str | Probe] | None, data: PreparedData
) -> tuple[ProbeSentence, ...]:
    """Return the configured probe sentences, or by default two test sentences; every variant gets the same."""
    tokeniser = data.tokenisers["target"]
    if given is not None:
        probes = [Probe(source=probe) if isinstance(probe, str) else probe for probe in given]
        texts = [data.texts(probe.source, probe.target) for probe in probes]
        if tokeniser.unit.is_text:  # the beginning, as many tokens as a model predicts of a block
            most = data.record["longest"]["target"] - 1
            texts = [("", tokeniser.beginning(str(text), most)) for _, text in texts]
        return tuple(ProbeSentence(source=source, target=target) for source, target in texts)
    test = data.splits["test"]
    order = sorted(range(len(test)), key=lambda row: (len(test.source[row]), test.source_text[row]))
    rows = dict.fromkeys(order[int(quantile * (len(order) - 1))] for quantile in QUANTILES)
    if any(map(len, test.source)):
        return tuple(ProbeSentence(source=test.source_text[row], target=None) for row in rows)
    most = min(PROBE_TOKENS, data.record["longest"]["target"] - 1)
    sequences = [tokeniser.decode(test.target[row].tolist()).lstrip(INCOMPLETE) for row in rows]
    return tuple(
        ProbeSentence(source="", target=tokeniser.beginning(text, most)) for text in sequences
    )
