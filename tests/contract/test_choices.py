"""Every invariant under options of entries and of the model that differ from the defaults.

The default tier checks configurations in which every option occurs; the slow tier adds
configurations with a single option each.
"""

import pytest

from headtohead.testing import INVARIANTS, Subject, check
from headtohead.testing.contracts import AttentionContract, MaskingContract, PositionalContract, VariantContract
from headtohead.testing.known_violations import known_violations
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
    "a single table for both sides": {"tie_embeddings": "embeddings"},
    "more rows than tokens": {"quirks": {"min_vocab_size": 20}},
    "more rows than tokens, output tied": {"quirks": {"min_vocab_size": 20}, "tie_embeddings": "output"},
    "a single table with more rows than tokens": {"quirks": {"min_vocab_size": 11}, "tie_embeddings": "embeddings"},
    "shared norm": {"quirks": {"shared_modules": ["norm"]}, "final_norm": True, "norm": "post"},
    "shared feed-forward": {"quirks": {"shared_modules": ["feed-forward"]}},
    "all that can be shared": {"quirks": {"shared_modules": ["feed-forward", "norm"]}},
    "feed-forward after each attention": {"quirks": {"decoder_feed_forward": "after-each"}},
}


TOGETHER = {
    "post-norm, all tied, torch's start, notebook 5's feed-forward": {
        "norm": "post",
        "tie_embeddings": "all",
        "init": "torch",
        "embedding_scale": "one",
        "quirks": {"decoder_feed_forward": "after-each", "shared_modules": ["norm", "feed-forward"]},
    },
    "pre-norm without final norm, no biases, gelu, odd width, a single table with more rows than tokens": {
        "final_norm": False,
        "bias": False,
        "activation": "gelu",
        "d_model": 9,
        "heads": 3,
        "mask_value": "-1e9",
        "quirks": {"min_vocab_size": 11},
        "tie_embeddings": "embeddings",
    },
    "final norm after post-norm, more rows than tokens, output tied, masks that are added": {
        "norm": "post",
        "final_norm": True,
        "quirks": {"min_vocab_size": 20},
        "tie_embeddings": "output",
        "mask_value": "additive",
    },
}


def test_every_option_of_the_slow_models_occurs_in_the_default_tier():
    def options(models):
        fields = [item for model in models.values() for item in [*model.items(), *model.get("quirks", {}).items()]]
        return {
            (name, part)
            for name, value in fields
            if name != "quirks"
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
    """Return parameters: the first for the default tier, the others for the slow tier."""
    first, *slow = values
    return [first, *(pytest.param(value, marks=pytest.mark.slow) for value in slow)]


MASKS = {
    "padding": {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"},
    "causal in both attentions of the decoder": {"encoder": "padding", "decoder": "causal", "cross": "causal"},
    "as in the slides": {"encoder": "none", "decoder": "causal", "cross": "none"},
    "no masks": "none",
}
ROW_POSITIONS = {"name": "sinusoidal", "index": "row"}


@pytest.mark.slow
class TestCrossAttentionToTheDecoder(VariantContract):
    @pytest.fixture(params=first_and_slow(MASKS.values()), ids=MASKS.keys())
    def config(self, request):
        return tiny_config("rotary", "grouped-query", request.param, quirks={"cross_attention_memory": "decoder"})


@pytest.mark.slow
class TestPositionsByRow(VariantContract):
    @pytest.fixture(
        params=first_and_slow([ROW_POSITIONS, {"encoder": ROW_POSITIONS}, {"decoder": ROW_POSITIONS}]),
        ids=["both sides", "encoder", "decoder"],
    )
    def config(self, request):
        return tiny_config(request.param)


@pytest.mark.slow
class TestEmbeddingSoftmaxUnderPostNorm(VariantContract):
    @pytest.fixture(params=first_and_slow(["post", "pre"]))
    def config(self, request):
        return tiny_config(attention="embedding-softmax", norm=request.param)


KNOWN_VIOLATIONS = {
    "second attention of the decoder": (
        {"quirks": {"cross_attention_memory": "decoder"}},
        {"source-reaches-logits", "gradients"},
    ),
    "rows on both sides": ({"positional": ROW_POSITIONS}, {"batch-of-one", "source-order", "source-mirror"}),
    "rows of targets": ({"positional": {"decoder": ROW_POSITIONS}}, {"batch-of-one"}),
    "single precision": ({"positional": {"name": "sinusoidal", "arithmetic": "single"}}, {"precision"}),
    "mask on embeddings": ({"attention": "embedding-softmax", "norm": "post"}, {"target-reaches-logits", "gradients"}),
}


@pytest.mark.parametrize(
    ("choices", "expected"),
    [
        case if name == "second attention of the decoder" else pytest.param(*case, marks=pytest.mark.slow)
        for name, case in KNOWN_VIOLATIONS.items()
    ],
    ids=KNOWN_VIOLATIONS.keys(),
)
def test_a_setting_has_its_known_violations_and_verdicts_name_it(choices, expected):
    config = tiny_config(**choices)
    violations = {name: verdict for name, verdict in check(config).items() if verdict.state == "violated"}
    assert set(violations) == expected
    for name, verdict in violations.items():
        assert verdict.cause == known_violations(config)[name]
        assert str(verdict).endswith(f"; known violation of {verdict.cause}")


def number(name, **choices):
    """Return the number that an invariant measures."""
    (selected,) = (invariant for invariant in INVARIANTS if invariant.name == name)
    return selected(Subject(tiny_config(**choices))).number


def test_cross_attention_to_the_decoder_ignores_the_source_entirely():
    assert number("source-reaches-logits", quirks={"cross_attention_memory": "decoder"}) == 0.0


def test_a_mask_on_embeddings_attenuates_earlier_tokens_by_a_billion():
    assert number("target-reaches-logits", attention="embedding-softmax", norm="post") < 1e-8
    assert number("target-reaches-logits", norm="post") > 1e-3


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
    "padding hidden in cross-attention only": {"masking": {"encoder": "none", "decoder": "causal", "cross": "padding"}},
    "a causal encoder": {
        "positional": "none",
        "masking": {"encoder": "padding-causal", "decoder": "causal", "cross": "padding"},
    },
}


@pytest.mark.slow
class TestRoles(VariantContract):
    @pytest.fixture(params=MIXED.values(), ids=MIXED.keys())
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


@pytest.mark.slow
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
