"""Every pitfall has a measurement and a text."""

from headtohead.planning.pitfalls import RULES
from headtohead.plugins.registry import current
from headtohead_notebooks.page.descriptions import PITFALL_TEXTS
from headtohead_notebooks.pitfalls import MEASUREMENTS


def test_exactly_the_defined_pitfalls_have_a_measurement_and_a_text() -> None:
    of_styles = {
        name
        for style in current().entries["attention"]
        for name in current().attention(style).pitfalls
    }
    of_rules = {rule.name for rule in RULES}
    assert set(MEASUREMENTS) == of_styles | of_rules == set(PITFALL_TEXTS)
