"""Closed forms are those of CATALOGUE, and equal counts at sizes that they were not found at."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch

from headtohead.config.resolve import resolve
from headtohead.errors import HeadToHeadError
from headtohead.model.counting import count
from headtohead.plugins.positional import BuildContext
from headtohead.plugins.registry import current, load_registry
from headtohead.schema.config import ModelConfig
from headtohead.tools.catalogue.costs import (
    attention_costs,
    attention_operations,
    attention_weights,
    positional_costs,
    positional_operations,
    positional_weights,
)
from headtohead.tools.catalogue.forms import Form, find_forms

BUILT_IN = [one for one in load_registry().all() if one.distribution == "headtohead"]
ATTENTIONS = [one.name for one in BUILT_IN if one.family == "attention"]
POSITIONALS = [one.name for one in BUILT_IN if one.family == "positional"]
ELSEWHERE = (
    {"d": 120, "h": 10, "L": 5, "n": 9},
    {"d": 240, "h": 20, "L": 6, "n": 13},
    {"d": 96, "h": 12, "L": 7, "n": 21},
)

ATTENTION_FORMS = {
    "split-heads": ("4d²", "4d", "4n²d + 8nd²"),
    "independent-heads": ("4d²h", "3dh + d", "4n²dh + 8nd²h"),
    "single-head": ("4d²", "4d", "4n²d + 8nd²"),
    "grouped-query": ("2d² + 2d²·kv_heads/h", "2d + 2d·kv_heads/h", "4n²d + 4nd² + 4nd²·kv_heads/h"),
    "multi-query": ("2d² + 2d²/h", "2d + 2d/h", "4n²d + 4nd² + 4nd²/h"),
    "qk-norm": ("4d² + h", "4d", "4n²d + 8nd²"),
    "talking-heads": ("4d² + 2h²", "4d", "4n²h² + 4n²d + 8nd²"),
    "sigmoid": ("4d²", "4d", "4n²d + 8nd²"),
    "embedding-softmax": ("0", "0", "2d³"),
}
POSITIONAL_FORMS = {
    "none": ("0", "0"),
    "sinusoidal": ("0", "0"),
    "alibi": ("0", "0"),
    "rotary": ("0", "0"),
    "learned": ("d·max_length", "0"),
    "t5-relative": ("h·buckets", "0"),
}


@pytest.mark.parametrize("name", ATTENTION_FORMS)
def test_an_attention_costs_what_its_mathematics_says(name: str) -> None:
    found = attention_costs(current().attention(name), "decoder")
    assert tuple(map(str, (found.parameters, found.biases, found.operations))) == (ATTENTION_FORMS[name])


@pytest.mark.parametrize("name", POSITIONAL_FORMS)
def test_an_encoding_costs_what_its_mathematics_says(name: str) -> None:
    found = positional_costs(current().positional(name), "decoder")
    assert (str(found.parameters), str(found.operations)) == POSITIONAL_FORMS[name]


def with_options(options, sizes: dict[str, int]) -> dict[str, int]:
    return (
        sizes
        | {name: value for name, value in options if isinstance(value, int)}
        | ({"kv_heads": sizes["h"]} if getattr(options, "kv_heads", 0) is None else {})
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTENTIONS)
def test_the_forms_of_an_attention_equal_counts_at_other_sizes(name: str) -> None:
    style = current().attention(name)
    forms = attention_costs(style, "decoder")
    options = style.Options()
    assert forms.parameters is not None
    assert forms.biases is not None
    assert forms.operations is not None
    for sizes in ELSEWHERE:
        known = with_options(options, sizes)
        weights = attention_weights(style, options, sizes, "decoder")
        assert forms.parameters(known) == weights
        biased = attention_weights(style, options, sizes, "decoder", bias=True)
        assert weights is not None
        assert biased is not None
        assert forms.biases(known) == biased - weights
        only = style.only_length(options, ModelConfig())
        if only is None:
            operations = attention_operations(style, options, sizes, "decoder")
            assert forms.operations(known) == operations


@pytest.mark.slow
@pytest.mark.parametrize("name", POSITIONALS)
def test_the_forms_of_an_encoding_equal_counts_and_its_own_count_at_other_sizes(name: str) -> None:
    encoding = current().positional(name)
    forms = positional_costs(encoding, "decoder")
    options = encoding.Options()
    assert forms.parameters is not None
    assert forms.operations is not None
    for sizes in ELSEWHERE:
        known = with_options(options, sizes)
        weights = positional_weights(encoding, options, sizes, "decoder")
        assert forms.parameters(known) == weights
        assert forms.operations(known) == positional_operations(encoding, options, sizes, "decoder")
        style = current().attention("split-heads")
        model = ModelConfig(d_model=sizes["d"], heads=sizes["h"])
        context = BuildContext(
            "decoder", sizes["L"], sizes["d"], style.geometry(style.Options(), model), [torch.Generator()]
        )
        assert encoding.parameter_count(options, context) == weights


def test_operations_are_those_that_a_plan_counts() -> None:
    """A whole model's count grows with its layers by what the forms of its parts say."""
    lengths = (7, 7)

    def operations(layers: int) -> float:
        model = {"d_model": 24, "heads": 4, "d_ff": 40, "encoder_layers": layers}
        config = resolve({"model": model, "train": {"steps": 1}}, current())
        return count(config, 11, 13, *lengths).flops_per_token * lengths[1]

    form = attention_costs(current().attention("split-heads"), "encoder").operations
    assert form is not None
    feed_forward = 2 * 2 * 7 * 24 * 40
    attention = form({"d": 24, "h": 4, "n": 7})
    assert operations(3) - operations(2) == attention + feed_forward


def test_a_count_that_is_no_polynomial_has_no_form() -> None:
    samples = [{"d": 2 * one + 3} for one in range(40)]
    powers = {"d": (0, 1, 2)}
    assert find_forms(lambda sizes: (2 ** sizes["d"],), powers, samples) == (None,)
    assert find_forms(lambda sizes: (sizes["d"] ** 3,), powers, samples) == (None,)
    assert find_forms(lambda sizes: (sizes["d"],), powers, samples[:4]) == (None,)
    assert find_forms(lambda sizes: None, powers, samples) == ()


def test_one_wrong_count_is_enough_to_have_no_form() -> None:
    samples = [{"d": 2 * one + 3} for one in range(11)]
    found = find_forms(
        lambda sizes: (3 * sizes["d"] ** 2 + 1, sizes["d"] + (sizes["d"] == 21)), {"d": (0, 1, 2)}, samples
    )
    assert str(found[0]) == "3d² + 1"
    assert found[1] is None


@pytest.mark.parametrize(
    ("terms", "expected"),
    [
        ({}, "0"),
        ({(0, 0): Fraction(7)}, "7"),
        ({(2, -1): Fraction(4), (2, 0): Fraction(2)}, "2d² + 4d²/h"),
        ({(1, 0): Fraction(1), (0, 1): Fraction(-3)}, "d − 3h"),
        ({(1, 0): Fraction(-1, 2)}, "−d/2"),
        ({(1, -1): Fraction(1, 2)}, "d/(2h)"),
    ],
)
def test_a_form_reads_as_one_writes_it(terms, expected: str) -> None:
    assert str(Form(("d", "h"), terms)) == expected


def test_words_are_kept_apart_from_letters() -> None:
    form = Form(("d", "kv_heads"), {(2, 1): Fraction(2), (0, 1): Fraction(1)})
    assert str(form) == "2d²·kv_heads + kv_heads"
    assert form({"d": 3, "kv_heads": 5}) == 95


def test_sizes_that_do_not_fit_are_not_counted() -> None:
    style = current().attention("split-heads")
    assert attention_weights(style, style.Options(), {"d": 10, "h": 4}, "decoder") is None
    with pytest.raises(HeadToHeadError):
        style.geometry(style.Options(), ModelConfig(d_model=10))
