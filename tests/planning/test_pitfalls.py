"""Pitfalls follow from the configuration alone, and each names the field that causes it."""

import pytest

from headtohead.config.builder import resolve
from headtohead.planning.pitfalls import find_pitfalls, padding_has_no_effect
from headtohead.plugins.registry import find_positional
from headtohead.schema.run_config import entry

SOUND = {"train": {"epochs": 1}}


def names(raw):
    config = resolve(SOUND | raw)
    return [pitfall.name for pitfall in find_pitfalls(config)]


def test_a_sound_configuration_has_no_pitfalls():
    assert names({}) == []


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"data": {"split": "nothing-held-out"}}, "nothing held out"),
        ({"data": {"dataset": "notebook-en-de", "split": "row"}}, "split by rows"),
        ({"data": {"normalise": "ascii-fold"}}, "letters lost"),
        ({"data": {"vocabulary": {"unknown": "drop"}}}, "words dropped"),
        (
            {"data": {"target_boundaries": "none"}, "evaluate": {"decode": "none"}},
            "no boundary tokens",
        ),
        (
            {
                "quirks": {"notebooks": {"cross_attention_memory": "decoder"}},
                "masking": {"cross": "padding-causal"},
            },
            "source ignored",
        ),
        ({"model": {"tie_embeddings": "embeddings"}}, "one table, two vocabularies"),
        ({"masking": {"decoder": "padding"}}, "future not masked"),
        ({"masking": {"encoder": "none"}}, "padding not masked"),
        ({"masking": {"cross": "none"}}, "padding not masked"),
        ({"train": {"epochs": 0}}, "never trained"),
        ({"quirks": {"notebooks": {"shift_targets": False}}}, "targets not shifted"),
        ({"train": {"epochs": 1, "trainable": ["lm-head"]}}, "parameters frozen"),
        ({"train": {"epochs": 1, "batch_size": 4, "pad_to": 100}}, "fixed padding"),
        ({"evaluate": {"decode": "non-autoregressive"}}, "not autoregressive"),
        ({"evaluate": {"decode": "teacher-forced"}}, "reference as input"),
        ({"positional": {"encoder": {"name": "sinusoidal-by-row"}}}, "positions by batch row"),
    ],
)
def test_exactly_the_expected_pitfall_is_named(raw, name):
    assert names(raw) == [name]


@pytest.mark.parametrize("family", ["positional", "masking", "attention"])
def test_padding_may_have_an_effect_with_an_entry_that_is_not_registered(family):
    config = resolve(SOUND)
    assert padding_has_no_effect(config)
    roles = getattr(config, family).model_copy(update={"encoder": entry("gone")})
    assert not padding_has_no_effect(config.model_copy(update={family: roles}))


def test_unmasked_cross_attention_to_the_decoder_is_two_pitfalls():
    assert names({"quirks": {"notebooks": {"cross_attention_memory": "decoder"}}}) == [
        "future not masked",
        "source ignored",
    ]


@pytest.mark.parametrize(
    ("leak", "expected"), [(0.0, []), (0.2, ["split by rows"]), (None, ["split by rows"])]
)
def test_a_row_split_without_a_leak_is_no_pitfall(leak, expected):
    config = resolve(SOUND | {"data": {"split": "row"}})
    assert [pitfall.name for pitfall in find_pitfalls(config, leak)] == expected


@pytest.mark.parametrize(("by_row", "expected"), [(True, ["positions by batch row"]), (False, [])])
def test_positions_by_batch_row_are_a_pitfall_in_every_encoding(by_row, expected, monkeypatch):
    monkeypatch.setattr(find_positional("learned"), "by_row", by_row)
    assert names({"positional": {"encoder": "learned"}}) == expected
