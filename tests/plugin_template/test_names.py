"""A name in kebab-case determines all other names; an invalid name is an error with a suggestion."""

from __future__ import annotations

import pytest

from headtohead import HeadToHeadError
from headtohead.plugins.template import PluginNames
from headtohead.plugins.template.names import suggest_name


@pytest.mark.parametrize(
    ("bad", "better"),
    [
        ("MyIdea", "my-idea"),
        ("my_idea", "my-idea"),
        ("my--idea", "my-idea"),
        ("-my-idea", "my-idea"),
        ("my-idea-", "my-idea"),
        ("2-ideas", "ideas"),
        ("mein spaß", "mein-spa"),
        ("../my-idea", "my-idea"),
        ("my-idea\n", "my-idea"),
        ("", "my-idea"),
        ("€", "my-idea"),
    ],
)
def test_a_name_not_in_kebab_case_is_an_error_with_a_suggestion(bad: str, better: str) -> None:
    with pytest.raises(HeadToHeadError) as caught:
        PluginNames(bad, "positional")
    message = str(caught.value)
    assert message.endswith(
        f"is not a valid plugin name; use lower-case letters, digits and single hyphens, such as '{better}'"
    )
    assert "\n" not in message
    assert PluginNames(suggest_name(bad), "positional").entry == better
