"""Rules on the data: test or validation examples in training, and test sentences that are not the baseline's."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.analysis.findings.finding import MAX_NAMED, Sentence, caution, titles, warning
from headtohead.analysis.leaks import Leak, leaks, recorded_data
from headtohead.analysis.scores import same_data_set
from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.storage.experiment import leaked_validation
from headtohead.storage.metrics import readable, show

LEAKY = "LEAKY split: {part}; {effect}."
LEAKY_OF = "LEAKY split of {variants}: {part}; {effect}."
LEAKY_VALIDATION = "LEAKY split: {part}."
LEAK = "Leak: {part}; {effect}."
LEAK_OF = "Leak of {variants}: {part}; {effect}."
LEAK_VALIDATION = "Leak: {part}."

UNKNOWN_EFFECT = "its effect on {metric} is not known"
EFFECT = "it improves {metric} by at most {effect}"
ABOVE_MARGIN = "it improves {metric} by at most {effect}, more than the margin of {margin}"
WITHIN_MARGIN = "it improves {metric} by at most {effect}, not more than the margin of {margin}"


@warning
def leaky_test(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of test examples in training whose effect on a score can exceed the margin.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    for leak in leaks(analysis):
        if leak.is_serious:
            yield _leak_sentence(analysis, leak, LEAKY_OF if leak.slugs else LEAKY)


@warning
def leaky_validation(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of many validation examples in training."""
    for leak in leaked_validation(analysis.frames.record.data):
        if leak.is_serious:
            yield Sentence(LEAKY_VALIDATION.format(part=leak.clause))


@caution
def leaked_test(analysis: Analysis) -> Iterator[Sentence]:
    """State the effect of test examples in training that cannot exceed the margin.

    Raises:
        HeadToHeadError: As `Analysis`.
    """
    for leak in leaks(analysis):
        if not leak.is_serious:
            yield _leak_sentence(analysis, leak, LEAK_OF if leak.slugs else LEAK)


@caution
def leaked_validation_examples(analysis: Analysis) -> Iterator[Sentence]:
    """State how many validation examples are in training if they are few."""
    for leak in leaked_validation(analysis.frames.record.data):
        if not leak.is_serious:
            yield Sentence(LEAK_VALIDATION.format(part=leak.clause))


def _leak_sentence(analysis: Analysis, leak: Leak, template: str) -> Sentence:
    """Return the sentence on a leak; it names variants only if their data are not the baseline's."""
    variants = titles(analysis, leak.slugs) if leak.slugs else ""
    text = template.format(variants=variants, part=leak.part, effect=_effect(analysis, leak))
    return Sentence(text, leak.slugs)


def _effect(analysis: Analysis, leak: Leak) -> str:
    """Return the largest effect of a leak on a score, and its relation to the margin."""
    if leak.metric is None:
        return UNKNOWN_EFFECT.format(metric=readable(analysis.metric))
    metric, effect = readable(leak.metric), show(leak.effect, leak.metric)
    if leak.margin is None:
        return EFFECT.format(metric=metric, effect=effect)
    template = ABOVE_MARGIN if leak.is_serious else WITHIN_MARGIN
    margin = show(leak.margin, leak.metric, like=leak.margin)
    return template.format(metric=metric, effect=effect, margin=margin)


OTHER_SENTENCES = (
    "Tested on other sentences than the baseline: {variants}. A part of the difference can come from "
    "the sentences."
)
OTHER_LEAKED_SENTENCES = (
    "Tested on other sentences than the baseline: {variants} (source also in training: {shares}). A part of the "
    "difference can come from the sentences."
)


@caution
def other_test_sentences(analysis: Analysis) -> Iterator[Sentence]:
    """Name the ranked variants of the baseline's data set that translated other sentences, with their leaks.

    Those are the variants of ``Analysis.other_test_sentences``, so variants without saved translations are not named.
    Variants on another dataset, language or size are not named either. The shares are those that were measured and are
    above 0, in percent with one decimal, equal ones once; of many, the first `MAX_NAMED`.

    Raises:
        HeadToHeadError: As `Analysis`, and if saved outputs have changed since they were written.
    """
    frames = analysis.frames
    slugs = []
    shares = []
    for slug in analysis.other_test_sentences:
        if not same_data_set(frames, slug, frames.baseline):
            continue
        slugs.append(slug)
        share = recorded_data(frames, slug).get("leak")
        if share:
            shares.append(f"{100 * share:.1f} %")
    if not slugs:
        return
    variants = titles(analysis, slugs)
    text = OTHER_SENTENCES.format(variants=variants)
    if shares:
        distinct_shares = list(dict.fromkeys(shares))
        text = OTHER_LEAKED_SENTENCES.format(
            variants=variants, shares=listed(distinct_shares, most=MAX_NAMED)
        )
    yield Sentence(text, tuple(slugs))
