"""Every invariant under options other than the defaults, of entries and of the model."""

import pytest

from headtohead.testing.contracts import (
    AttentionContract,
    MaskingContract,
    PositionalContract,
    VariantContract,
)
from headtohead.testing.tiny import tiny_config

MODELS = {
    "post-norm": {"norm": "post"},
    "post-norm with final norm": {"norm": "post", "final_norm": True},
    "pre-norm without final norm": {"final_norm": False},
    "output tied": {"tied": "output"},
    "all tied": {"tied": "all"},
    "no biases": {"bias": False},
    "gelu, embeddings not scaled, torch's start": {
        "activation": "gelu", "embedding_scale": "one", "init": "torch",
    },
    "odd width": {"d_model": 9, "heads": 3},
    "fill -1e9": {"fill": "-1e9"},
    "fill additive": {"fill": "additive"},
}  # fmt: skip


class TestModels(VariantContract):
    @pytest.fixture(params=MODELS.values(), ids=MODELS.keys())
    def config(self, request):
        return tiny_config(**request.param)


MIXED = {
    "an encoding for each role": {
        "positional": {"encoder": "rotary", "decoder": "alibi", "cross": "none"}
    },
    "alibi over the source": {"positional": {"cross": "alibi"}},
    "rotary over the source": {"positional": {"cross": "rotary"}},
    "a style for each role": {
        "attention": {
            "encoder": "single-head", "decoder": "independent-heads",
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
}  # fmt: skip


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
