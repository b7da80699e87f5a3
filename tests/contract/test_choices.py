"""Every invariant under options other than the defaults, of entries and of the model.

The default tier checks configurations in which every option occurs; the slow tier adds those that
have each option by itself.
"""

import pytest

from headtohead.testing import INVARIANTS, Subject, check
from headtohead.testing.consequences import consequences
from headtohead.testing.contracts import AttentionContract, MaskingContract, PositionalContract, VariantContract
from headtohead.testing.tiny import tiny_config

MODELS = {
    "post-norm": {"norm": "post"},
    "post-norm with final norm": {"norm": "post", "final_norm": True},
    "pre-norm without final norm": {"final_norm": False},
    "output tied": {"tie_embeddings": "output"},
    "all tied": {"tie_embeddings": "all"},
    "no biases": {"bias": False},
    "gelu, embeddings not scaled, torch's start": {"activation": "gelu", "embedding_scale": "one", "init": "torch"},
    "odd width": {"d_model": 9, "heads": 3},
    "fill -1e9": {"mask_value": "-1e9"},
    "fill additive": {"mask_value": "additive"},
    "one table for both sides": {"tie_embeddings": "embeddings"},
    "more rows than words": {"quirks": {"min_vocab_size": 20}},
    "more rows than words, output tied": {"tie_embeddings": "output", "quirks": {"min_vocab_size": 20}},
    "one table with more rows than words": {"tie_embeddings": "embeddings", "quirks": {"min_vocab_size": 11}},
    "shared norm": {"final_norm": True, "norm": "post", "quirks": {"shared_modules": ["norm"]}},
    "shared feed-forward": {"quirks": {"shared_modules": ["feed-forward"]}},
    "all that can be shared": {"quirks": {"shared_modules": ["feed-forward", "norm"]}},
    "feed-forward after each attention": {"quirks": {"decoder_feed_forward": "after-each"}},
}


TOGETHER = {
    "post-norm, all tied, torch's start": {
        "norm": "post",
        "tie_embeddings": "all",
        "init": "torch",
        "embedding_scale": "one",
    },
    "pre-norm without final norm, no biases, gelu, odd width": {
        "final_norm": False,
        "bias": False,
        "activation": "gelu",
        "d_model": 9,
        "heads": 3,
        "mask_value": "-1e9",
    },
    "final norm after post-norm, more rows than words, output tied": {
        "norm": "post",
        "final_norm": True,
        "tie_embeddings": "output",
        "quirks": {"min_vocab_size": 20},
    },
    "one table with more rows than words, masks that are added": {
        "tie_embeddings": "embeddings",
        "mask_value": "additive",
        "quirks": {"min_vocab_size": 11},
    },
    "notebook 5's feed-forward": {
        "norm": "post",
        "quirks": {"decoder_feed_forward": "after-each", "shared_modules": ["norm", "feed-forward"]},
    },
}


def test_every_option_of_the_slow_models_occurs_in_the_default_tier():
    def options(models):
        return {
            (name, part)
            for model in models.values()
            for name, value in model.items()
            for part in (value if isinstance(value, list) else [value])
        }

    assert options(MODELS) <= options(TOGETHER)


class TestModels(VariantContract):
    @pytest.fixture(params=TOGETHER.values(), ids=TOGETHER.keys())
    def config(self, request):
        return tiny_config(**request.param)


@pytest.mark.slow
class TestModelsWithOneOption(VariantContract):
    @pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
    def config(self, request):
        return tiny_config(**request.param)


def first_and_slow(values):
    """Return parameters of which the default tier takes the first."""
    first, *others = values
    return [first, *(pytest.param(one, marks=pytest.mark.slow) for one in others)]


DEAF = {
    "padding": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
    "causal twice": {"encoder": "padding", "decoder": "causal", "cross": "causal"},
    "as the slides": {"encoder": "none", "decoder": "causal", "cross": "none"},
    "nothing hidden": "none",
}
BY_ROW = {"name": "sinusoidal", "index": "row"}


class TestDecoderThatReadsItself(VariantContract):
    @pytest.fixture(params=first_and_slow(DEAF.values()), ids=DEAF.keys())
    def config(self, request):
        return tiny_config("rotary", "grouped-query", request.param, quirks={"cross_attention_memory": "decoder"})


class TestPositionsByRow(VariantContract):
    @pytest.fixture(
        params=first_and_slow([BY_ROW, {"encoder": BY_ROW}, {"decoder": BY_ROW}]),
        ids=["both sides", "encoder", "decoder"],
    )
    def config(self, request):
        return tiny_config(request.param)


class TestEmbeddingSoftmaxUnderPostNorm(VariantContract):
    @pytest.fixture(params=first_and_slow(["post", "pre"]))
    def config(self, request):
        return tiny_config(attention="embedding-softmax", norm=request.param)


CONSEQUENCES = {
    "second attention of the decoder": (
        {"quirks": {"cross_attention_memory": "decoder"}},
        {"hears-source", "gradients"},
    ),
    "rows on both sides": ({"positional": BY_ROW}, {"batch-of-one", "source-order", "source-mirror"}),
    "rows of targets": ({"positional": {"decoder": BY_ROW}}, {"batch-of-one"}),
    "single precision": ({"positional": {"name": "sinusoidal", "arithmetic": "single"}}, {"precision"}),
    "mask on embeddings": ({"attention": "embedding-softmax", "norm": "post"}, {"hears-target", "gradients"}),
}


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        one
        if name in ("second attention of the decoder", "rows of targets")
        else pytest.param(*one, marks=pytest.mark.slow)
        for name, one in CONSEQUENCES.items()
    ],
    ids=CONSEQUENCES.keys(),
)
def test_choice_breaks_what_it_is_known_to_break_and_is_named(choices, expected):
    config = tiny_config(**choices)
    verdicts = check(config)
    broken = {name: one for name, one in verdicts.items() if one.state == "broken"}
    assert set(broken) == expected
    for name, verdict in broken.items():
        assert verdict.because == consequences(config)[name]
        assert str(verdict).endswith(f"; a consequence of {verdict.because}")


def number(name, **choices):
    """Return what one invariant measures."""
    (invariant,) = (one for one in INVARIANTS if one.name == name)
    return invariant(Subject(tiny_config(**choices))).number


def test_decoder_that_reads_itself_hears_nothing_at_all_of_the_source():
    assert number("hears-source", quirks={"cross_attention_memory": "decoder"}) == 0.0


def test_mask_on_embeddings_lets_earlier_tokens_through_at_a_billionth():
    assert number("hears-target", attention="embedding-softmax", norm="post") < 1e-8
    assert number("hears-target", norm="post") > 1e-3


MIXED = {
    "an encoding for each role": {"positional": {"encoder": "rotary", "decoder": "alibi", "cross": "none"}},
    "alibi over the source": {"positional": {"cross": "alibi"}},
    "rotary over the source": {"positional": {"cross": "rotary"}},
    "a style for each role": {
        "attention": {
            "encoder": "single-head",
            "decoder": "independent-heads",
            "cross": {"name": "grouped-query", "kv_heads": 1},
        }
    },
    "padding hidden in cross-attention alone": {
        "masking": {"encoder": "none", "decoder": "causal", "cross": "padding"}
    },
    "a causal encoder": {
        "positional": "none",
        "masking": {"encoder": "padding-causal", "decoder": "causal", "cross": "padding"},
    },
}


IN_ROLES = [
    one if name in ("an encoding for each role", "a style for each role") else pytest.param(one, marks=pytest.mark.slow)
    for name, one in MIXED.items()
]


class TestRoles(VariantContract):
    @pytest.fixture(params=IN_ROLES, ids=MIXED.keys())
    def config(self, request):
        return tiny_config(**request.param)


@pytest.mark.slow
class TestShortLearnedTable(PositionalContract):
    @pytest.fixture
    def name(self):
        return "learned"

    @pytest.fixture
    def options(self):
        return {"max_length": 16, "std": 1.0}


@pytest.mark.slow
class TestFastRotary(PositionalContract):
    @pytest.fixture
    def name(self):
        return "rotary"

    @pytest.fixture
    def options(self):
        return {"theta": 10.0}


@pytest.mark.slow
class TestMultiQuery(AttentionContract):
    @pytest.fixture
    def name(self):
        return "grouped-query"

    @pytest.fixture
    def options(self):
        return {"kv_heads": 1}


class TestUnequalWidths(AttentionContract):
    @pytest.fixture
    def name(self):
        return "free-geometry"

    @pytest.fixture
    def options(self):
        return {"key_width": 3, "value_width": 5, "kv_heads": 2}


@pytest.mark.slow
class TestPadding(MaskingContract):
    @pytest.fixture
    def name(self):
        return "padding"
