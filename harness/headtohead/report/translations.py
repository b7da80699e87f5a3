"""The section on translations: the test sentences on which the variants differ most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headtohead.report.blocks import Block, Heading, Paragraph, SentenceTranslations, TranslationOutput
from headtohead.report.content import ReportContent
from headtohead.report.gallery import MOST_VARIANTS, shown_run
from headtohead.storage.translations import Translation, translations_of

SAMPLES = 8


def translation_blocks(content: ReportContent) -> list[Block]:
    """Return the section; empty without saved translations."""
    chosen = samples(content)
    if not chosen:
        return []
    one = len(content.analysis.frames.by_slug) == 1
    chosen_by = "Sentences of the test set" if one else "The sentences on which the variants differ most"
    omission = f" {content.omissions['translations']}" if "translations" in content.omissions else ""
    return [
        Heading(2, "Translations side by side", "translations", "Translations"),
        Paragraph(
            f"{chosen_by}, translated by the first finished seed of each variant.{omission} Equal translations share a "
            "line.",
            "note",
        ),
        *chosen,
    ]


def samples(content: ReportContent) -> list[SentenceTranslations]:
    """Return the sentences for which exact and wrong translations are most evenly split, the same for all variants.

    Ties go to the sentence with more distinct outputs, then to the earlier sentence. The sentences are in
    the order of the test set, without repeated sources.
    """
    analysis = content.analysis
    by_slug: dict[str, list[Translation]] = {}
    for slug in analysis.frames.by_slug:
        run = shown_run(analysis, slug) if analysis.frames.trained(slug) == slug else None
        if run is not None and len(by_slug) < MOST_VARIANTS:
            rows = translations_of(analysis.frames, slug, run[1])
            if rows:
                by_slug[slug] = rows
    if not by_slug:
        return []
    count_shared = min(len(rows) for rows in by_slug.values())
    indices = [index for index in range(count_shared) if _same_sentence(by_slug, index)]
    indices.sort(key=lambda index: (*_sort_key(by_slug, index), index))
    chosen: dict[str, int] = {}
    first = next(iter(by_slug.values()))
    for index in indices:
        if len(chosen) == SAMPLES:
            break
        chosen.setdefault(first[index].source, index)
    return [_sample(content, by_slug, index) for index in sorted(chosen.values())]


def _same_sentence(by_slug: Mapping[str, Sequence[Translation]], index: int) -> bool:
    return len({rows[index].source for rows in by_slug.values()}) == 1


def _sort_key(by_slug: Mapping[str, Sequence[Translation]], index: int) -> tuple[int, int]:
    exact = sum(rows[index].exact for rows in by_slug.values())
    distinct = len({rows[index].hypothesis for rows in by_slug.values()})
    return -min(exact, len(by_slug) - exact), -distinct


def _sample(content: ReportContent, by_slug: Mapping[str, Sequence[Translation]], index: int) -> SentenceTranslations:
    """Return a sentence and its distinct translations, exact matches first."""
    groups: dict[tuple[bool, str], list[str]] = {}
    for slug, rows in by_slug.items():
        groups.setdefault((not rows[index].exact, rows[index].hypothesis), []).append(slug)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    first = next(iter(by_slug.values()))[index]
    outputs = (
        TranslationOutput(text or "(empty)", not wrong, tuple(map(content.title, slugs)))
        for (wrong, text), slugs in ordered
    )
    return SentenceTranslations(first.source, " / ".join(first.references), tuple(outputs))
