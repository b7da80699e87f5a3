"""Sample translations side by side: the sentences on which variants differ most."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headtohead.analysis.study import Analysis
from headtohead.report.attention import MOST_VARIANTS, shown_run
from headtohead.storage.translations import Translation, translations_of

SAMPLES = 8


@dataclass(frozen=True)
class Output:
    """What some variants made of a sentence, letter for letter the same."""

    hypothesis: str
    exact: bool
    slugs: tuple[str, ...]


@dataclass(frozen=True)
class Sample:
    """One sentence and every different translation of it, right ones first."""

    source: str
    references: str
    outputs: tuple[Output, ...]


def samples(analysis: Analysis, count: int = SAMPLES) -> list[Sample]:
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
    places = [place for place in range(shared) if _same_sentence(read, place)]
    places.sort(key=lambda place: (*_interest(read, place), place))
    chosen: dict[str, int] = {}
    first = next(iter(read.values()))
    for place in places:
        if len(chosen) == count:
            break
        chosen.setdefault(first[place].source, place)
    return [_sample(read, place) for place in sorted(chosen.values())]


def _same_sentence(read: Mapping[str, Sequence[Translation]], place: int) -> bool:
    return len({rows[place].source for rows in read.values()}) == 1


def _interest(read: Mapping[str, Sequence[Translation]], place: int) -> tuple[int, int]:
    right = sum(rows[place].exact for rows in read.values())
    different = len({rows[place].hypothesis for rows in read.values()})
    return -min(right, len(read) - right), -different


def _sample(read: Mapping[str, Sequence[Translation]], place: int) -> Sample:
    groups: dict[tuple[bool, str], list[str]] = {}
    for slug, rows in read.items():
        groups.setdefault((not rows[place].exact, rows[place].hypothesis), []).append(slug)
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], -len(item[1]), item[0][1]))
    first = next(iter(read.values()))[place]
    outputs = tuple(Output(text, not wrong, tuple(slugs)) for (wrong, text), slugs in ordered)
    return Sample(first.source, first.references, outputs)
