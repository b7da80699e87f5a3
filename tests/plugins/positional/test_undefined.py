"""Encodings are excluded, with a reason, where they are incompatible."""

import pytest

from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import current
from headtohead.testing.tiny import tiny_config

ODD_WIDTH = "rotary requires an even key width, got 3; change model.d_model or model.heads"


def reason(config, **longest):
    return find_incompatibility(config, longest, current())


def test_rotary_refuses_an_odd_key_width():
    assert reason(tiny_config("rotary", d_model=9, heads=3)) == ODD_WIDTH
    assert reason(tiny_config("rotary", d_model=12, heads=3)) is None


def test_learned_refuses_data_longer_than_its_table():
    config = tiny_config({"name": "learned", "max_length": 12})
    assert reason(config, source=12, target=12) is None
    assert reason(config, source=13, target=9) == (
        "a source of 13 tokens is longer than the 12 positions of learned; "
        "set positional.encoder.max_length to at least 13"
    )
    assert reason(config, source=9, target=14) == (
        "a target of 14 tokens is longer than the 12 positions of learned; "
        "set positional.decoder.max_length to at least 14"
    )


@pytest.mark.parametrize("name", ["sinusoidal", "learned", "shape"])
def test_encodings_of_embeddings_refuse_cross_attention(name):
    assert reason(tiny_config({"cross": name})) == (
        f"{name} adds to embeddings, and cross-attention has none of its own; use 'none'"
    )


BY_ROW = {"name": "sinusoidal", "index": "row", "max_len": 20}


def test_positions_by_row_refuse_batches_that_may_be_larger_than_the_table():
    def incompatibility(evaluated, **train):
        config = tiny_config(BY_ROW, train=train)
        smaller = config.evaluate.model_copy(update={"batch_size": evaluated})
        return reason(config.model_copy(update={"evaluate": smaller}))

    message = (
        "sinusoidal supports 20 batch rows, but a batch may have {} sentences; "
        "set train.batch_size and evaluate.batch_size to at most 20"
    )
    assert incompatibility(20, batch_size=20) is None
    assert incompatibility(21, batch_size=20) == message.format(21)
    assert incompatibility(20, batch_size=64) == message.format(64)
    assert incompatibility(20, batch_tokens=512) == message.format(512)
    assert incompatibility(20, batch_tokens=20) is None


ACTING = "acts on queries, keys or scores, and embedding-softmax attention projects none; "


@pytest.mark.parametrize("name", ["rotary", "alibi", "t5-relative", "shaw-relative", "kerple-log", "sandwich"])
def test_encodings_of_scores_refuse_a_style_without_scores(name):
    assert reason(tiny_config(name, "embedding-softmax")) == (
        f"{name} {ACTING}use an encoding that is added to embeddings, or 'none'"
    )
    elsewhere = {"encoder": name, "decoder": "none"}
    assert reason(tiny_config(elsewhere, "embedding-softmax")) is None


def test_t5_refuses_a_largest_distance_without_room_for_logarithmic_buckets():
    def t5(role, most):
        return reason(tiny_config({role: {"name": "t5-relative", "max_distance": most}}))

    message = (
        "t5-relative with 32 buckets has {0} for single distances in the {1}; "
        "set positional.{1}.max_distance to more than {0}"
    )
    assert t5("encoder", 8) == message.format(8, "encoder")
    assert t5("encoder", 9) is None
    assert t5("decoder", 16) == message.format(16, "decoder")
    assert t5("decoder", 17) is None
    assert t5("cross", 8) == message.format(8, "cross")


RANDOMISED = {"name": "randomised", "max_length": 12}


def test_randomised_refuses_fewer_numbers_than_positions():
    assert reason(tiny_config(RANDOMISED | {"numbers": 11})) == (
        "randomised cannot sample 12 positions from 11 numbers; set positional.encoder.numbers to at least 12"
    )
    assert reason(tiny_config(RANDOMISED | {"numbers": 12})) is None


def test_randomised_is_incompatible_where_its_encoding_is():
    odd = {"d_model": 9, "heads": 3}
    assert reason(tiny_config(RANDOMISED | {"of": "rotary"}, **odd)) == ODD_WIDTH
    assert reason(tiny_config(RANDOMISED | {"of": "alibi"}, **odd)) is None


def test_shaws_vectors_on_values_need_no_queries():
    on_values = {"name": "shaw-relative", "on": "values"}
    assert reason(tiny_config(on_values, "uniform")) is None
    assert "has none" in reason(tiny_config({"name": "shaw-relative", "on": "keys"}, "uniform"))
