"""Encodings are excluded, with a reason, where they are incompatible."""

import pytest

from headtohead.planning.compatibility import find_incompatibility
from headtohead.plugins.registry import current
from headtohead.testing.tiny import tiny_config


def reason(config, **longest):
    return find_incompatibility(config, longest, current())


def learned(**options):
    return {"name": "learned", "max_length": 12, **options}


def t5(most):
    return {"name": "t5-relative", "max_distance": most}


def randomised(**options):
    return {"name": "randomised", "max_length": 12, **options}


def shaw(on):
    return {"name": "shaw-relative", "on": on}


ODD = {"d_model": 9, "heads": 3}
ODD_WIDTH = "rotary requires an even key width, got 3; change model.d_model or model.heads"
LONG = "a {0} of {1} tokens is longer than the 12 positions of learned; set positional.{2}.max_length to at least {1}"
EMBEDDED = "{} is added to embeddings, and cross-attention has no embeddings; use 'none'"
BUCKETS = (
    "t5-relative with 32 buckets has {0} for single distances in the {1}; set positional.{1}.max_distance to more "
    "than {0}"
)
UNPROJECTED = (
    "{} acts on queries, keys or scores, and embedding-softmax attention projects none; use an encoding that is added "
    "to embeddings, or 'none'"
)
NUMBERS = "randomised cannot sample 12 positions from 11 numbers; set positional.encoder.numbers to at least 12"
DIVIDES = (
    "fire divides the distance by the query's position, which is defined only where keys precede the query; use "
    "another encoding for the {}"
)
LATER = "fire requires a causal decoder, but masking {} shows later tokens; use a causal masking"
DECODER_FIRE = {"encoder": "none", "decoder": "fire"}
ON_SCORES = ("rotary", "alibi", "t5-relative", "shaw-relative", "kerple-log", "sandwich")

CASES = [
    ("rotary", ODD, {}, ODD_WIDTH),
    ("rotary", {"d_model": 12, "heads": 3}, {}, None),
    (learned(), {}, {"source": 12, "target": 12}, None),
    (learned(), {}, {"source": 13, "target": 9}, LONG.format("source", 13, "encoder")),
    (learned(), {}, {"source": 9, "target": 14}, LONG.format("target", 14, "decoder")),
    *(({"cross": name}, {}, {}, EMBEDDED.format(name)) for name in ("sinusoidal", "learned", "shape")),
    *((name, {"attention": "embedding-softmax"}, {}, UNPROJECTED.format(name)) for name in ON_SCORES),
    ({"encoder": "rotary", "decoder": "none"}, {"attention": "embedding-softmax"}, {}, None),
    ({"encoder": t5(8)}, {}, {}, BUCKETS.format(8, "encoder")),
    ({"encoder": t5(9)}, {}, {}, None),
    ({"decoder": t5(16)}, {}, {}, BUCKETS.format(16, "decoder")),
    ({"decoder": t5(17)}, {}, {}, None),
    ({"cross": t5(8)}, {}, {}, BUCKETS.format(8, "cross")),
    (randomised(numbers=11), {}, {}, NUMBERS),
    (randomised(numbers=12), {}, {}, None),
    (randomised(of="rotary"), ODD, {}, ODD_WIDTH),
    (randomised(of="alibi"), ODD, {}, None),
    (shaw("values"), {"attention": "uniform"}, {}, None),
    ("fire", {}, {}, DIVIDES.format("encoder")),
    ({"cross": "fire"}, {}, {}, DIVIDES.format("cross")),
    ({"encoder": "alibi", "decoder": "fire"}, {}, {}, None),
    *((DECODER_FIRE, {"masking": name}, {}, LATER.format(name)) for name in ("none", "padding", "prefix")),
    *(
        (DECODER_FIRE, {"masking": masking}, {}, None)
        for masking in ("causal", "window", {"name": "prefix", "length": 0})
    ),
]


@pytest.mark.parametrize(("positional", "fields", "longest", "message"), CASES)
def test_an_encoding_is_refused_exactly_where_it_is_undefined(positional, fields, longest, message):
    assert reason(tiny_config(positional, **fields), **longest) == message


def test_shaws_vectors_on_keys_need_queries():
    assert "has none" in reason(tiny_config(shaw("keys"), "uniform"))


def test_positions_by_row_refuse_batches_that_may_be_larger_than_the_table():
    message = (
        "sinusoidal supports 20 batch rows, but a batch may have {} sentences; "
        "set train.batch_size and evaluate.batch_size to at most 20"
    )
    for evaluated, train, rows in (
        (20, {"batch_size": 20}, None),
        (21, {"batch_size": 20}, 21),
        (20, {"batch_size": 64}, 64),
        (20, {"batch_tokens": 512}, 512),
        (20, {"batch_tokens": 20}, None),
    ):
        config = tiny_config({"name": "sinusoidal", "index": "row", "max_len": 20}, train=train)
        evaluate = config.evaluate.model_copy(update={"batch_size": evaluated})
        found = reason(config.model_copy(update={"evaluate": evaluate}))
        assert found == (message.format(rows) if rows else None)
