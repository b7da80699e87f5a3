"""Rules on the data: test or validation examples in training, and test sentences that are not the baseline's."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.analysis.findings.finding import (
    MAX_NAMED,
    Sentence,
    caution,
    note,
    of_titles,
    titles,
    warning,
)
from headtohead.analysis.leaks import Leak, leaks, recorded_data
from headtohead.analysis.scores import same_data_set
from headtohead.analysis.study import Analysis
from headtohead.config.labels import listed
from headtohead.planning.variants import DATA_AXIS
from headtohead.storage.experiment import leaked_validation
from headtohead.storage.metrics import readable, show

LEAKY = "LEAKY split: {part}; {effect}."
LEAKY_OF = "LEAKY split {of_variants}: {part}; {effect}."
LEAKY_VALIDATION = "LEAKY split: {part}."
LEAK = "Leak: {part}; {effect}."
LEAK_OF = "Leak {of_variants}: {part}; {effect}."
LEAK_VALIDATION = "Leak: {part}."

OTHER_SENTENCES_LIMIT = "the test sentences differ"
ONE_DATA_SET = "All variants are trained and tested on {dataset}; on other data, the differences can be others."
ONE_DATA_SET_LIMIT = "a single data set ({dataset})"

UNKNOWN_EFFECT = "its effect on {metric} is not known"
EFFECT = "it improves {metric} by at most {effect}"
ABOVE_MARGIN = "it improves {metric} by at most {effect}, more than the margin of {margin}"
WITHIN_MARGIN = "it improves {metric} by at most {effect}, not more than the margin of {margin}"


@warning
def leaky_test(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of test examples in training whose effect on a score can exceed the margin."""
    for leak in leaks(analysis):
        if leak.is_serious:
            yield _leak_sentence(analysis, leak, LEAKY_OF if leak.slugs else LEAKY)


@warning
def leaky_validation(analysis: Analysis) -> Iterator[Sentence]:
    """Warn of many validation examples in training."""
    for leak in leaked_validation(analysis.frames.record.data):
        if leak.is_serious:
            yield Sentence(LEAKY_VALIDATION.format(part=leak.clause), limit=leak.clause)


@caution
def leaked_test(analysis: Analysis) -> Iterator[Sentence]:
    """State the effect of test examples in training that cannot exceed the margin."""
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
    of_variants = of_titles(analysis, leak.slugs) if leak.slugs else ""
    text = template.format(of_variants=of_variants, part=leak.part, effect=_effect(analysis, leak))
    return Sentence(text, leak.slugs, leak.part if leak.is_serious else "")


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
    "Tested on other sentences than the baseline: {variants} (source also in training: {leaks}). A part of the "
    "difference can come from the sentences."
)


@caution
def other_test_sentences(analysis: Analysis) -> Iterator[Sentence]:
    """Name the ranked variants that translated other test sentences than the baseline, and the leaks of their data.

    Only variants with saved translations and the baseline's dataset, languages and values of the axes ``data`` and
    ``size`` are named. The leaks are the shares of their test examples that are in training, if above 0, in percent,
    equal ones once. Of variants and of leaks, the first `MAX_NAMED` are listed with the number of several others.

    Raises:
        HeadToHeadError: If saved translations cannot be read or have changed since they were written.
    """
    frames = analysis.frames
    slugs = []
    leak_texts = []
    for slug in analysis.other_test_sentences:
        if not same_data_set(frames, slug, frames.baseline):
            continue
        slugs.append(slug)
        leak = recorded_data(frames, slug).get("leak")
        if leak:
            leak_texts.append(f"{100 * leak:.1f} %")
    if not slugs:
        return
    variants = titles(analysis, slugs)
    text = OTHER_SENTENCES.format(variants=variants)
    if leak_texts:
        distinct_leaks = list(dict.fromkeys(leak_texts))
        text = OTHER_LEAKED_SENTENCES.format(
            variants=variants, leaks=listed(distinct_leaks, most=MAX_NAMED)
        )
    yield Sentence(text, tuple(slugs), OTHER_SENTENCES_LIMIT)


@note
def one_data_set(analysis: Analysis) -> Iterator[Sentence]:
    """State that the verdicts are those of a single data set, if the variants have no other."""
    names = {variant.data_name for variant in analysis.frames.by_slug.values()}
    if len(names) == 1 and DATA_AXIS not in analysis.frames.record.axes:
        (name,) = names
        limit = ONE_DATA_SET_LIMIT.format(dataset=name)
        yield Sentence(ONE_DATA_SET.format(dataset=name), limit=limit)
