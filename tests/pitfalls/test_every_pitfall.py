"""Every pitfall has a measurement and a text."""

from headtohead.planning.pitfalls import RULES
from headtohead.plugins.registry import current, find_attention
from headtohead_notebooks.page.descriptions import PITFALL_TEXTS
from headtohead_notebooks.pitfalls import MEASUREMENTS
from headtohead_notebooks.quirks import NotebookOptions, NotebookQuirks


def test_exactly_the_defined_pitfalls_have_a_measurement_and_a_text() -> None:
    of_styles = {
        name for style in current().entries["attention"] for name in find_attention(style).pitfalls
    }
    of_rules = {rule.name for rule in RULES}
    every = NotebookOptions(shift_targets=False, cross_attention_memory="decoder")
    of_quirks = {name for name, _ in NotebookQuirks.pitfalls_by_option(every).values()}
    defined = of_styles | of_quirks | of_rules
    assert set(MEASUREMENTS) == defined == set(PITFALL_TEXTS)
