"""Faults are named from the configuration alone, each by the choice that makes it."""

import pytest

from headtohead.config.resolve import resolve
from headtohead.planning.pitfalls import faults_of
from headtohead.plugins.registry import current

SOUND = {"train": {"epochs": 1}}


def names(raw):
    config = resolve(SOUND | raw, current())
    return [fault.name for fault in faults_of(config, current())]


def test_a_sound_configuration_has_none():
    assert names({}) == []


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        ({"data": {"split": "nothing-held-out"}}, "nothing held out"),
        ({"data": {"dataset": "notebook-en-de", "split": "row"}}, "split by rows"),
        ({"data": {"normalise": "ascii-fold"}}, "letters destroyed"),
        ({"data": {"vocabulary": {"unknown": "drop"}}}, "words dropped"),
        ({"data": {"target_boundaries": "none"}, "evaluate": {"decode": "none"}}, "no start, no stop"),
        ({"quirks": {"cross_attention_memory": "decoder"}, "masking": {"cross": "padding-causal"}}, "deaf decoder"),
        ({"model": {"tie_embeddings": "embeddings"}}, "one table, two vocabularies"),
        ({"masking": {"decoder": "padding"}}, "future visible"),
        ({"masking": {"encoder": "none"}}, "padding visible"),
        ({"masking": {"cross": "none"}}, "padding visible"),
        ({"train": {"epochs": 0}}, "never trained"),
        ({"quirks": {"shift_targets": False}}, "answer given"),
        ({"quirks": {"trainable": ["lm-head"]}}, "parts untrained"),
        ({"train": {"epochs": 1, "batch_size": 4}, "quirks": {"pad_to": 100}}, "fixed padding"),
        ({"evaluate": {"decode": "non-autoregressive"}}, "not autoregressive"),
        ({"evaluate": {"decode": "teacher-forced"}}, "reference given"),
        ({"positional": {"encoder": {"name": "sinusoidal", "index": "row"}}}, "positions by batch row"),
    ],
)
def test_each_faulty_choice_is_named_and_no_other(raw, name):
    assert names(raw) == [name]


def test_a_second_attention_that_reads_the_decoder_unmasked_sees_the_future():
    assert names({"quirks": {"cross_attention_memory": "decoder"}}) == ["future visible", "deaf decoder"]


def test_a_fault_says_which_field_makes_it():
    config = resolve(
        SOUND | {"positional": {role: {"name": "sinusoidal", "index": "row"} for role in ("encoder", "decoder")}},
        current(),
    )
    (fault,) = faults_of(config, current())
    assert fault.field == "positional.encoder.index, positional.decoder.index"
    assert "word order is not heard" in fault.says
