"""The page of the invariants: what they require, and the models on which the tests evaluate them."""

from __future__ import annotations

from collections.abc import Iterator

from headtohead.plugins.registry import current, find_attention
from headtohead.report.render import environment, tidy_markdown
from headtohead.testing import INVARIANTS
from headtohead.testing.checks.configurations import compatible_config, role_variants
from headtohead.testing.invariants import PER_ENTRY, TRAINING


def invariants_page() -> str:
    """Return the Markdown page of the invariants; nothing is evaluated."""
    styles = sorted(current().entries["attention"])
    violations = [(style, _listed(find_attention(style).known_violations)) for style in styles]
    text = (
        environment("catalogue")
        .get_template("invariants.md.j2")
        .render(
            invariants=INVARIANTS,
            per_entry=_listed(PER_ENTRY - TRAINING),
            training=" and ".join(f"`{name}`" for name in sorted(TRAINING)),
            violations=[(style, names) for style, names in violations if names],
            incompatible=[*_incompatible_pairs()],
        )
    )
    return tidy_markdown(text)


def _incompatible_pairs() -> Iterator[tuple[str, str, str]]:
    """Yield attention, positional and reason of every pair that is incompatible, also in the decoder alone."""
    for attention in sorted(current().entries["attention"]):
        for positional in sorted(current().entries["positional"]):
            decoder_only = dict(role_variants("positional", positional)).get(
                "the decoder only", positional
            )
            reasons = [
                compatible_config({"attention": attention, "positional": value})[1]
                for value in (positional, decoder_only)
            ]
            if all(reasons):
                yield attention, positional, reasons[0]


def _listed(names: frozenset[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names))
