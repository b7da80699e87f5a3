"""One name in kebab-case gives every other spelling; what is none is refused with one that is."""

from __future__ import annotations

import pytest

from headtohead import HeadToHeadError
from headtohead.tools.plugin_template import Names
from headtohead.tools.plugin_template.names import suggested


def test_every_spelling_follows_from_the_name() -> None:
    names = Names("my-2nd-idea", "positional")
    assert names.module == "h2h_my_2nd_idea"
    assert names.distribution == "h2h-my-2nd-idea"
    assert names.class_name == "My2ndIdea"


@pytest.mark.parametrize(
    ("entry", "family", "expected"),
    [
        ("options", "positional", "OptionsPositional"),
        ("tensor", "masking", "TensorMasking"),
        ("none", "attention", "NoneAttention"),
        ("true", "dataset", "TrueDataset"),
        ("alibi", "positional", "Alibi"),
    ],
)
def test_a_class_name_shadows_nothing(entry: str, family: str, expected: str) -> None:
    names = Names(entry, family, used=frozenset({"Options", "Tensor", "Positional"}))
    assert names.class_name == expected


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
def test_what_is_not_kebab_case_is_refused_with_a_name_that_is(bad: str, better: str) -> None:
    with pytest.raises(HeadToHeadError) as caught:
        Names(bad, "positional")
    message = str(caught.value)
    assert message.endswith(
        f"is no name for a plugin; use small letters, digits and single hyphens, such as '{better}'"
    )
    assert "\n" not in message
    assert Names(suggested(bad), "positional").entry == better
