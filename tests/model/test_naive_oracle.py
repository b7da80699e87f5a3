"""Both architectures against loops over Python floats that share no code with it."""

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made.oracle import Oracle

CHOICES = {
    "pre-norm": {},
    "post-norm": {"norm": "post"},
    "post-norm and a final norm": {"norm": "post", "final_norm": True},
    "pre-norm without a final norm": {"final_norm": False},
    "gelu": {"feed_forward": "gelu"},
    "squared relu in the decoder": {"feed_forward": {"decoder": "relu2"}},
    "swiglu": {"feed_forward": "swiglu"},
    "geglu without biases": {"feed_forward": "geglu", "bias": False},
    "rmsnorm": {"norm": "rmsnorm", "norm_eps": 0.1},
    "sandwich": {"norm": "sandwich", "decoder_layers": 2},
    "embeddings as they are": {"embedding_scale": "one"},
    "output tied": {"tie_embeddings": "output"},
    "all tied": {"tie_embeddings": "all"},
    "no biases": {"bias": False},
    "norm eps": {"norm_eps": 0.1},
    "two encoder layers": {"encoder_layers": 2, "decoder_layers": 1},
    "second attention of the decoder": {"decoder_layers": 2, "quirks": {"cross_attention_memory": "decoder"}},
    "second attention of the decoder, post-norm": {"norm": "post", "quirks": {"cross_attention_memory": "decoder"}},
    "one table": {"tie_embeddings": "embeddings"},
    "more rows than words": {"quirks": {"min_vocab_size": 15}},
    "one table of more rows than words": {"tie_embeddings": "embeddings", "quirks": {"min_vocab_size": 15}},
    "shared norm": {"decoder_layers": 2, "quirks": {"shared_modules": ["norm"]}},
    "shared feed-forward": {"norm": "post", "final_norm": True, "quirks": {"shared_modules": ["feed-forward"]}},
    "feed-forward after each attention": {"quirks": {"decoder_feed_forward": "after-each"}},
    "all places shared": {
        "norm": "post",
        "quirks": {"decoder_feed_forward": "after-each", "shared_modules": ["norm", "feed-forward"]},
    },
    "positions by row": {"positional": {"name": "sinusoidal-by-row"}},
    "decoder only": {"architecture": "decoder-only", "decoder_layers": 2},
    "decoder only, post-norm and tied": {"architecture": "decoder-only", "norm": "post", "tie_embeddings": "output"},
    "smeared embeddings": {"attention": "smear", "encoder_layers": 2},
    "smeared embeddings, decoder only": {
        "architecture": "decoder-only",
        "attention": {"name": "smear", "gate_width": 4},
    },
    "value embeddings": {"attention": "value-embedding", "encoder_layers": 2},
    "value embeddings in the first and last layer, decoder only": {
        "architecture": "decoder-only",
        "decoder_layers": 3,
        "attention": {"name": "value-embedding", "ends": 1},
    },
    "mask on embeddings": {"attention": "embedding-softmax", "norm": "post"},
    "mask on embeddings, pre-norm": {"attention": "embedding-softmax"},
}


@pytest.mark.parametrize("model", CHOICES.values(), ids=CHOICES.keys())
@pytest.mark.parametrize("masking", ["padding-causal", "none"])
def test_logits_equal_a_forward_pass_in_plain_loops(model, masking):
    small = {"d_model": 6, "heads": 2, "d_ff": 5, "encoder_layers": 1, "decoder_layers": 1}
    subject = Subject(tiny_config(masking=masking, **(small | model)))
    sentences, logits = subject.sentences, subject.reference_logits
    for member, row in ((0, 1), (1, 0)):
        weights = {name: value[member].tolist() for name, value in subject.model.state_dict().items()}
        oracle = Oracle(subject.config, weights, masking == "padding-causal", row)
        expected = oracle.logits(
            sentences.source[member, row].tolist(),
            int(sentences.source_lengths[member, row]),
            sentences.target[member, row].tolist(),
            int(sentences.target_lengths[member, row]),
        )
        live = int(sentences.target_lengths[member, row])
        torch.testing.assert_close(
            logits[member, row, :live], torch.tensor(expected[:live], dtype=torch.float64), rtol=0, atol=1e-10
        )
        assert len(expected[0]) == logits.shape[-1]
