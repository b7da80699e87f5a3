"""Every invariant under options of entries and of the model that differ from the defaults."""

import pytest

from headtohead.testing import Subject, check, tiny_config
from headtohead.testing.invariant import known_violations
from headtohead.testing.invariants.trained_stacks import (
    a_resumed_training_equals_an_uninterrupted_one,
)
from made import case_table, unexpected

TOGETHER = {
    "post-norm, all tied, torch's start, notebook 5's feed-forward": {
        "norm": "post",
        "tie_embeddings": "all",
        "init": "torch",
        "embedding_scale": "one",
        "shared_modules": ["norm", "feed-forward"],
        "quirks": {"notebooks": {"decoder_feed_forward": "after-each"}},
    },
    "pre-norm without final norm, no biases, gelu, odd width, a single table with more rows than tokens": {
        "final_norm": False,
        "bias": False,
        "feed_forward": "gelu",
        "d_model": 9,
        "heads": 3,
        "mask_value": "-1e9",
        "min_vocab_size": 11,
        "tie_embeddings": "embeddings",
    },
    "final norm after post-norm, more rows than tokens, output tied, masks that are added": {
        "norm": "post",
        "final_norm": True,
        "min_vocab_size": 20,
        "tie_embeddings": "output",
        "mask_value": "additive",
    },
}

SAMPLED = {"encoder": "shape", "decoder": {"name": "randomised", "of": "alibi"}}
POSITIONAL = {
    "relative tables by head": {
        "encoder": {"name": "shaw-relative", "on": "keys", "heads": "own", "clip": 5},
        "decoder": {"name": "shaw-relative", "on": "values", "heads": "own"},
        "cross": {"name": "shaw-relative", "on": "keys", "heads": "own", "clip": 5},
    },
    "other buckets, slopes by layer": {
        "encoder": {"name": "t5-relative", "buckets": 24, "max_distance": 20},
        "decoder": {"name": "kerple-log", "layers": "own"},
        "cross": {"name": "kerple-log", "layers": "own"},
    },
    "shifts with little room, sandwich over the source": {
        "encoder": {"name": "sandwich", "width": 16},
        "decoder": {"name": "shape", "max_shift": 1},
        "cross": {"name": "sandwich", "width": 16},
    },
    "fire with more units": {
        "encoder": "none",
        "decoder": {"name": "fire", "hidden": 50, "threshold": 2.0},
    },
    "sampled rotary": {"name": "randomised", "of": "rotary", "numbers": 300},
    "sampled against fixed": SAMPLED,
}

ROW_POSITIONS = {"name": "sinusoidal-by-row"}

IN_ONE_ROLE = {
    "an encoding and a style for each role": {
        "positional": {
            "encoder": {"name": "rotary", "theta": 10.0},
            "decoder": {"name": "learned", "max_length": 16, "std": 1.0},
            "cross": "none",
        },
        "attention": {
            "encoder": "single-head",
            "decoder": {"name": "free-geometry", "key_width": 3, "value_width": 5, "kv_heads": 2},
            "cross": {"name": "grouped-query", "kv_heads": 1},
        },
    },
    "alibi over the source, padding hidden in cross-attention only": {
        "positional": {"cross": "alibi"},
        "masking": {"encoder": "none", "decoder": "causal", "cross": "padding"},
    },
    "a causal encoder, rotary over the source": {
        "positional": {"cross": "rotary"},
        "masking": {"encoder": "padding-causal", "decoder": "causal", "cross": "padding"},
    },
    "cross-attention to the decoder, masked as in the slides": {
        "positional": "rotary",
        "masking": {"encoder": "none", "decoder": "causal", "cross": "none"},
        "quirks": {"notebooks": {"cross_attention_memory": "decoder"}},
    },
    "padding masks only": {"masking": "padding"},
}
CHOICES = (
    TOGETHER | IN_ONE_ROLE | {name: {"positional": choice} for name, choice in POSITIONAL.items()}
)


@pytest.mark.slow
@pytest.mark.parametrize("choices", CHOICES.values(), ids=CHOICES)
def test_no_choice_has_an_unexpected_violation(choices):
    assert unexpected(check(tiny_config(**choices))) == {}


def test_a_resumed_training_continues_with_the_same_samples():
    assert (
        a_resumed_training_equals_an_uninterrupted_one(Subject(tiny_config(SAMPLED))).state
        == "holds"
    )


KNOWN_VIOLATIONS = {
    "second attention of the decoder": (
        {"quirks": {"notebooks": {"cross_attention_memory": "decoder"}}},
        {"source-reaches-logits", "gradients"},
    ),
    "rows on both sides": (
        {"positional": ROW_POSITIONS},
        {"batch-of-one", "source-order", "source-mirror"},
    ),
    "rows of targets": ({"positional": {"decoder": ROW_POSITIONS}}, {"batch-of-one"}),
    "single precision": (
        {"positional": {"name": "sinusoidal", "arithmetic": "single"}},
        {"precision"},
    ),
    "mask on embeddings": (
        {"attention": "embedding-softmax", "norm": "post"},
        {"target-reaches-logits", "gradients"},
    ),
}


@case_table(
    ("choices", "expected"), KNOWN_VIOLATIONS.values(), ids=list(KNOWN_VIOLATIONS), default=0
)
def test_a_setting_has_its_known_violations_and_verdicts_name_it(choices, expected):
    config = tiny_config(**choices)
    violations = {
        name: verdict for name, verdict in check(config).items() if verdict.state == "violated"
    }
    assert set(violations) == expected
    for name, verdict in violations.items():
        assert verdict.cause == known_violations(config)[name]
        assert str(verdict).endswith(f"; known violation of {verdict.cause}")
