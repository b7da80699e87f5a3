"""The section on sample translations: the sentences on which variants differ most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headtohead.analysis.sentences import SentenceTest, sentence_tests
from headtohead.analysis.study import Analysis
from headtohead.report.blocks import (
    Block,
    Column,
    Details,
    Heading,
    Paragraph,
    SentenceTranslations,
    Table,
    TableCell,
    TableRow,
    TranslationOutput,
)
from headtohead.report.content import ReportContent
from headtohead.report.gallery import MOST_VARIANTS, shown_run
from headtohead.storage.metrics import show, show_p
from headtohead.storage.translations import Translation, translations_of

SAMPLES = 8


@dataclass(frozen=True)
class SampleOutput:
    """One translation of a sentence and the variants that wrote exactly it."""

    hypothesis: str
    exact: bool
    slugs: tuple[str, ...]


@dataclass(frozen=True)
class SampleSentence:
    """One sentence and every different translation of it, right ones first."""

    source: str
    references: str
    outputs: tuple[SampleOutput, ...]


def translation_blocks(content: ReportContent) -> list[Block]:
    """Return the section, nothing where no translations were saved."""
    chosen = samples(content.analysis)
    if not chosen:
        return []
    part = f" {content.parts['translations']}" if "translations" in content.parts else ""
    return [
        Heading(2, "Translations side by side", "translations", "Translations"),
        Paragraph(
            "The sentences on which variants differ most, translated by the first finished seed of "
            f"each.{part} Equal translations stand on one line.",
            "note",
        ),
        *(_block(content, sample) for sample in chosen),
        *_sentence_tests(content, sentence_tests(content.analysis)),
    ]


def _block(content: ReportContent, sample: SampleSentence) -> SentenceTranslations:
    outputs = (
        TranslationOutput(output.hypothesis or "(nothing)", output.exact, tuple(map(content.title, output.slugs)))
        for output in sample.outputs
    )
    return SentenceTranslations(sample.source, sample.references.replace(" ||| ", " / "), tuple(outputs))


def _sentence_tests(content: ReportContent, tests: Sequence[SentenceTest]) -> list[Block]:
    """Return the comparison of single trained models, nothing where there is none."""
    if not tests:
        return []
    rows = (
        TableRow(
            (
                TableCell(content.title(test.slug)),
                TableCell(str(test.seed)),
                TableCell(f"{test.bleu:.1f}"),
                TableCell(show(test.bleu - test.baseline_bleu, "test/bleu", signed=True)),
                TableCell(show_p(test.p)),
            )
        )
        for test in tests
    )
    note = (
        "The median seed of each variant against the median seed of the baseline "
        f"(seed {tests[0].baseline_seed}, BLEU {tests[0].baseline_bleu:.1f}), by approximate randomisation over the "
        "test sentences, not corrected for the number of variants. A small p says that these two trained models "
        "differ, nothing about what another seed would do."
    )
    columns = (Column("variant", align="left"), *map(Column, ("seed", "BLEU", "difference", "p")))
    table = Table(columns, tuple(rows))
    return [Details("Sentence by sentence: this model, not this architecture", (Paragraph(note, "note"), table))]


def samples(analysis: Analysis, count: int = SAMPLES) -> list[SampleSentence]:
    """Choose sentences, the same for every variant: where rights and wrongs are most evenly split.

    Ties go to the sentence with more different outputs, then to the earlier one; the chosen ones
    are shown in the order of the test set, no source twice.
    """
    read: dict[str, list[Translation]] = {}
    for slug in analysis.frames.variants:
        run = shown_run(analysis, slug) if analysis.frames.trained(slug) == slug else None
        if run is not None and len(read) < MOST_VARIANTS:
            found = translations_of(analysis.frames, slug, run[1])
            if found:
                read[slug] = found
    if not read:
        return []
    shared = min(len(rows) for rows in read.values())
    positions = [index for index in range(shared) if _same_sentence(read, index)]
    positions.sort(key=lambda index: (*_interest(read, index), index))
    chosen: dict[str, int] = {}
    first = next(iter(read.values()))
    for index in positions:
        if len(chosen) == count:
            break
        chosen.setdefault(first[index].source, index)
    return [_sample(read, index) for index in sorted(chosen.values())]


def _same_sentence(read: Mapping[str, Sequence[Translation]], index: int) -> bool:
    return len({rows[index].source for rows in read.values()}) == 1


def _interest(read: Mapping[str, Sequence[Translation]], index: int) -> tuple[int, int]:
    right = sum(rows[index].exact for rows in read.values())
    different = len({rows[index].hypothesis for rows in read.values()})
    return -min(right, len(read) - right), -different


def _sample(read: Mapping[str, Sequence[Translation]], index: int) -> SampleSentence:
    groups: dict[tuple[bool, str], list[str]] = {}
    for slug, rows in read.items():
        groups.setdefault((not rows[index].exact, rows[index].hypothesis), []).append(slug)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    first = next(iter(read.values()))[index]
    outputs = tuple(SampleOutput(text, not wrong, tuple(slugs)) for (wrong, text), slugs in ordered)
    return SampleSentence(first.source, first.references, outputs)
