"""Both architectures against loops over Python floats that share no code with it."""

import pytest
import torch

from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made.oracle import CHOICES, Oracle


@pytest.mark.parametrize("model", CHOICES.values(), ids=CHOICES.keys())
@pytest.mark.parametrize("masking", ["padding-causal", "none"])
def test_logits_equal_a_forward_pass_in_plain_loops(model, masking):
    small = {"d_model": 6, "heads": 2, "d_ff": 5, "encoder_layers": 1, "decoder_layers": 1}
    subject = Subject(tiny_config(masking=masking, **(small | model)))
    sentences, logits = subject.sentences, subject.reference_logits
    for member, row in ((0, 1), (1, 0)):
        weights = {
            name: value[member].tolist() for name, value in subject.model.state_dict().items()
        }
        oracle = Oracle(subject.config, weights, masking == "padding-causal", row)
        expected = oracle.logits(
            sentences.source[member, row].tolist(),
            int(sentences.source_lengths[member, row]),
            sentences.target[member, row].tolist(),
            int(sentences.target_lengths[member, row]),
        )
        live = int(sentences.target_lengths[member, row])
        torch.testing.assert_close(
            logits[member, row, :live],
            torch.tensor(expected[:live], dtype=torch.float64),
            rtol=0,
            atol=1e-10,
        )
        assert len(expected[0]) == logits.shape[-1]
