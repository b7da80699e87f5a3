"""Every invariant under options other than the defaults, of entries and of the model."""

import pytest

from headtohead.testing import check
from headtohead.testing.consequences import consequences
from headtohead.testing.contracts import AttentionContract, MaskingContract, PositionalContract, VariantContract
from headtohead.testing.tiny import tiny_config

MODELS = {
    "post-norm": {"norm": "post"},
    "post-norm with final norm": {"norm": "post", "final_norm": True},
    "pre-norm without final norm": {"final_norm": False},
    "output tied": {"tied": "output"},
    "all tied": {"tied": "all"},
    "no biases": {"bias": False},
    "gelu, embeddings not scaled, torch's start": {"activation": "gelu", "embedding_scale": "one", "init": "torch"},
    "odd width": {"d_model": 9, "heads": 3},
    "fill -1e9": {"fill": "-1e9"},
    "fill additive": {"fill": "additive"},
    "one table for both sides": {"tied": "embeddings"},
    "more rows than words": {"vocabulary_rows": 20},
    "more rows than words, output tied": {"vocabulary_rows": 20, "tied": "output"},
    "one table with more rows than words": {"vocabulary_rows": 11, "tied": "embeddings"},
    "shared norm": {"shared": ["norm"], "final_norm": True, "norm": "post"},
    "shared feed-forward": {"shared": ["feed-forward"]},
    "all that can be shared": {"shared": ["feed-forward", "norm"]},
    "feed-forward after each attention": {"decoder_feed_forward": "after-each"},
    "notebook 5's feed-forward": {
        "decoder_feed_forward": "after-each",
        "shared": ["norm", "feed-forward"],
        "norm": "post",
    },
}


class TestModels(VariantContract):
    @pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
    def config(self, request):
        return tiny_config(**request.param)


DEAF = {
    "padding": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
    "causal twice": {"encoder": "padding", "decoder": "causal", "cross": "causal"},
    "as the slides": {"encoder": "none", "decoder": "causal", "cross": "none"},
    "nothing hidden": "none",
}
BY_ROW = {"name": "sinusoidal", "index": "row"}


class TestDecoderThatReadsItself(VariantContract):
    @pytest.fixture(params=DEAF.values(), ids=DEAF.keys())
    def config(self, request):
        return tiny_config("rotary", "grouped-query", request.param, cross="decoder")


class TestPositionsByRow(VariantContract):
    @pytest.fixture(params=[BY_ROW, {"encoder": BY_ROW}, {"decoder": BY_ROW}], ids=["both sides", "encoder", "decoder"])
    def config(self, request):
        return tiny_config(request.param)


class TestEmbeddingSoftmaxUnderPostNorm(VariantContract):
    @pytest.fixture(params=["post", "pre"])
    def config(self, request):
        return tiny_config(attention="embedding-softmax", norm=request.param)


CONSEQUENCES = {
    "second attention of the decoder": ({"cross": "decoder"}, {"hears-source", "gradients"}),
    "rows on both sides": ({"positional": BY_ROW}, {"batch-of-one", "source-order", "source-mirror"}),
    "rows of targets": ({"positional": {"decoder": BY_ROW}}, {"batch-of-one"}),
    "single precision": ({"positional": {"name": "sinusoidal", "arithmetic": "single"}}, {"precision"}),
    "mask on embeddings": ({"attention": "embedding-softmax", "norm": "post"}, {"hears-target", "gradients"}),
}


@pytest.mark.parametrize(("choices", "expected"), CONSEQUENCES.values(), ids=CONSEQUENCES.keys())
def test_choice_breaks_what_it_is_known_to_break_and_is_named(choices, expected):
    config = tiny_config(**choices)
    verdicts = check(config)
    broken = {name: one for name, one in verdicts.items() if one.state == "broken"}
    assert set(broken) == expected
    for name, verdict in broken.items():
        assert verdict.because == consequences(config)[name]
        assert str(verdict).endswith(f"; a consequence of {verdict.because}")


def test_decoder_that_reads_itself_hears_nothing_at_all_of_the_source():
    assert check(tiny_config(cross="decoder"))["hears-source"].number == 0.0


def test_mask_on_embeddings_lets_earlier_tokens_through_at_a_billionth():
    number = check(tiny_config(attention="embedding-softmax", norm="post"))["hears-target"].number
    assert number < 1e-8
    assert check(tiny_config(norm="post"))["hears-target"].number > 1e-3


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


class TestRoles(VariantContract):
    @pytest.fixture(params=MIXED.values(), ids=MIXED.keys())
    def config(self, request):
        return tiny_config(**request.param)


class TestShortLearnedTable(PositionalContract):
    @pytest.fixture
    def name(self):
        return "learned"

    @pytest.fixture
    def options(self):
        return {"max_length": 16, "std": 1.0}


class TestFastRotary(PositionalContract):
    @pytest.fixture
    def name(self):
        return "rotary"

    @pytest.fixture
    def options(self):
        return {"theta": 10.0}


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


class TestPadding(MaskingContract):
    @pytest.fixture
    def name(self):
        return "padding"
