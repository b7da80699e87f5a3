"""The survey as a page: the invariants and where each holds, without times or machine."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from headtohead.plugins.registry import Registry
from headtohead.testing import INVARIANTS
from headtohead.testing.invariants import TRAINING
from headtohead.tools.pitfalls.survey import FAMILIES, Survey

HEAD = """# Invariants

Made by `h2h check --all --format markdown`: every invariant, asked in float64 on a CPU of {asked}
small models: one for each combination of attention × positional × masking that has a meaning, the
three fills taking turns, and for each entry in every role by itself. {training} train, and are
asked once for each pair of attention and positional.

{verdict}
"""

SOUND = "**Nothing is broken** but by choices that are known to break it, listed below."


def as_markdown(survey: Survey, registry: Registry) -> str:
    """Return the page, the same for the same registry."""
    verdict = SOUND if survey.is_sound else f"**{len(survey.breaches)} are broken**, listed below."
    training = " and ".join(f"`{name}`" for name in sorted(TRAINING))
    return "\n".join(
        [
            HEAD.format(asked=survey.asked, training=training, verdict=verdict),
            "## What is asked\n",
            *_invariants(survey),
            "",
            "## Attention × positional\n",
            f"Combinations with the {len(registry.entries['masking'])} maskings and with roles: how "
            "many hold; `*`: some known violation; –: refused, with the reason below. An encoding "
            "without a meaning in the encoder is asked in the decoder alone.\n",
            *_grid(survey, registry),
            "",
            *_named(survey),
            *_breaches(survey),
            *_refusals(survey),
        ]
    )


def _invariants(survey: Survey) -> Iterator[str]:
    yield from _header(["invariant", "promise", "holds", "does not apply", "known violation", "broken"])
    for one in INVARIANTS:
        counts = survey.invariants[one.name]
        numbers = [str(counts[name]) for name in ("holds", "does not apply", "known violation", "broken")]
        yield _row([f"`{one.name}`", one.promise, *numbers])


def _grid(survey: Survey, registry: Registry) -> Iterator[str]:
    styles, encodings = (sorted(registry.entries[family]) for family in FAMILIES[:2])
    yield from _header(["", *encodings])
    for style in styles:
        yield _row([style, *(_cell(survey, (style, encoding)) for encoding in encodings)])


def _cell(survey: Survey, pair: tuple[str, str]) -> str:
    counts = survey.outcomes.get(pair)
    if not counts:
        return "–"
    if counts["broken"]:
        return f"**{counts['broken']} of {counts.total()} broken**"
    return f"{counts.total()}{'*' if counts['known violation'] else ''}"


def _named(survey: Survey) -> Iterator[str]:
    if survey.named:
        yield "## Broken as named\n"
        yield from _header(["invariant", "by", "combinations"])
        for (name, choice), count in sorted(survey.named.items()):
            yield _row([f"`{name}`", choice, str(count)])
        yield ""


def _breaches(survey: Survey) -> Iterator[str]:
    if survey.breaches:
        yield "## Broken\n"
        yield from _header(["variant", "invariant", "smallest example"])
        for variant, found in survey.breaches:
            yield _row([variant, f"`{found.invariant}`", found.example or found.reason])
        yield ""


def _refusals(survey: Survey) -> Iterator[str]:
    whole = {pair: why for pair, why in survey.refused.items() if pair not in survey.outcomes}
    if whole:
        yield "## Refused\n"
        yield from _header(["attention", "positional", "why"])
        for (style, encoding), why in sorted(whole.items()):
            yield _row([style, encoding, why])


def _header(columns: Sequence[str]) -> Iterator[str]:
    yield _row(columns)
    yield "|" + "---|" * len(columns)


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
