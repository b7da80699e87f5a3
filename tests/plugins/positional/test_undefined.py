"""Entries are excluded, with a reason, where they are incompatible."""

import pytest

from headtohead.planning.compatibility import find_incompatibility
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import refused


def reason(config, **longest):
    return find_incompatibility(config, longest)


def learned(**options):
    return {"name": "learned", "max_length": 12, **options}


def t5(most):
    return {"name": "t5-relative", "max_distance": most}


def randomised(**options):
    return {"name": "randomised", "max_length": 12, **options}


def shaw(on):
    return {"name": "shaw-relative", "on": on}


ODD = {"d_model": 9, "heads": 3}
THREE_GROUPS = {"name": "grouped-query", "kv_heads": 3}
DECODER_FIRE = {"encoder": "none", "decoder": "fire"}
ON_SCORES = ("rotary", "alibi", "t5-relative", "shaw-relative", "kerple-log", "sandwich")

CASES = [
    ("rotary", ODD, {}, "got 3; change model.d_model or model.heads"),
    ("rotary", {"d_model": 12, "heads": 3}, {}, None),
    (learned(), {}, {"source": 12, "target": 12}, None),
    (learned(), {}, {"source": 13, "target": 9}, "a source of 13 tokens"),
    (learned(), {}, {"source": 9, "target": 14}, "a target of 14 tokens"),
    *(
        ({"cross": name}, {}, {}, f"{name} is added to embeddings")
        for name in ("sinusoidal", "learned", "shape")
    ),
    *(
        (name, {"attention": "embedding-softmax"}, {}, f"{name} acts on queries, keys or scores")
        for name in ON_SCORES
    ),
    ({"encoder": "rotary", "decoder": "none"}, {"attention": "embedding-softmax"}, {}, None),
    *(
        ("rotary", {"attention": name}, {}, f"rotary acts on queries, and {name}")
        for name in ("uniform", "random")
    ),
    (
        "alibi",
        {"attention": "linear"},
        {},
        "alibi acts on the matrix of scores, which linear attention never computes",
    ),
    (
        "rotary",
        {"attention": "linear"},
        {},
        "rotary rotates queries and keys, and φ of rotated vectors is not",
    ),
    (
        "none",
        {"masking": {"cross": "window"}},
        {},
        "window is defined for distances within a sentence, and cross-",
    ),
    (
        "none",
        {"d_model": 10},
        {},
        "split-heads needs d_model to be a multiple of heads, got 10 and 4; change d_model to 8 or 12",
    ),
    (
        "none",
        {"attention": THREE_GROUPS},
        {},
        "grouped-query needs kv_heads to divide heads, got 3 and 4",
    ),
    ("none", {"attention": "differential", "d_model": 15, "heads": 3}, {}, "got 3 and 15"),
    ({"encoder": t5(8)}, {}, {}, "set positional.encoder.max_distance to more than 8"),
    ({"encoder": t5(9)}, {}, {}, None),
    ({"decoder": t5(16)}, {}, {}, "set positional.decoder.max_distance to more than 16"),
    ({"decoder": t5(17)}, {}, {}, None),
    (randomised(numbers=11), {}, {}, "set positional.encoder.numbers to at least 12"),
    (randomised(numbers=12), {}, {}, None),
    (randomised(of="rotary"), ODD, {}, "got 3; change model.d_model or model.heads"),
    (randomised(of="alibi"), ODD, {}, None),
    (shaw("values"), {"attention": "uniform"}, {}, None),
    (shaw("keys"), {"attention": "uniform"}, {}, "has none"),
    ("fire", {}, {}, "use another encoding for the encoder"),
    ({"cross": "fire"}, {}, {}, "use another encoding for the cross"),
    ({"encoder": "alibi", "decoder": "fire"}, {}, {}, None),
    *(
        (DECODER_FIRE, {"masking": name}, {}, f"masking {name} shows later tokens")
        for name in ("none", "padding", "prefix")
    ),
    (
        DECODER_FIRE,
        {"masking": {"decoder": ["causal", "padding"]}},
        {},
        "masking padding shows later tokens",
    ),
    *(
        (DECODER_FIRE, {"masking": masking}, {}, None)
        for masking in ("causal", "window", {"name": "prefix", "length": 0})
    ),
]


@pytest.mark.parametrize(("positional", "fields", "longest", "named"), CASES)
def test_an_entry_is_refused_exactly_where_it_is_undefined(positional, fields, longest, named):
    found = reason(tiny_config(positional, **fields), **longest)
    assert found is None if named is None else named in found


def test_positions_by_row_refuse_batches_that_may_be_larger_than_the_table():
    message = (
        "sinusoidal-by-row supports 20 batch rows, but a batch may have {} sentences; "
        "set train.batch_size and evaluate.batch_size to at most 20"
    )
    for evaluated, train, rows in (
        (20, {"batch_size": 20}, None),
        (21, {"batch_size": 20}, 21),
        (20, {"batch_size": 64}, 64),
        (20, {"batch_tokens": 512}, 512),
        (20, {"batch_tokens": 20}, None),
    ):
        config = tiny_config({"name": "sinusoidal-by-row", "max_len": 20}, train=train)
        evaluate = config.evaluate.model_copy(update={"batch_size": evaluated})
        found = reason(config.model_copy(update={"evaluate": evaluate}))
        assert found == (message.format(rows) if rows else None)


def test_a_batch_larger_than_the_table_is_refused_in_one_line():
    by_row = {
        max_len: tiny_config({"name": "sinusoidal-by-row", "max_len": max_len})
        for max_len in (2, 3)
    }
    assert Subject(by_row[3]).logits().isfinite().all()
    message = "row 3 is beyond the 2 rows of sinusoidal-by-row; set positional.encoder.max_len"
    assert refused(Subject(by_row[2]).logits).startswith(message)
