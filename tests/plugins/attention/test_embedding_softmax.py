"""The softmax of masked embeddings: the notebook's numbers, and incompatible settings."""

import torch

from headtohead.planning.compatibility import find_incompatibility
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config

# Notebook 5: embeddings with positions and the output, digits as printed.
EMBEDDINGS = [
    [-1.8414, -0.1653, -1.6628, -0.9757, 0.5443, 2.3233],
    [0.7097, 0.8202, 0.1538, 1.2056, -1.7091, 1.3063],
    [0.9607, -0.7560, 1.3283, 0.2207, -0.3546, 0.3512],
    [-1.1170, -2.5425, 0.0085, 0.8106, 0.2896, -0.6482],
    [-1.7519, -2.2727, -0.0269, 2.0114, -0.7436, 1.1899],
    [-2.2542, 0.8670, 0.3996, -0.7127, -0.0201, -0.3976],
]
OUTPUT = [
    [-1.8414e00, -1.0000e09, -1.0000e09, -1.0000e09, -1.0000e09, -1.0000e09],
    [-4.9545e-01, -4.7240e08, -1.0000e09, -1.0000e09, -1.0000e09, -1.0000e09],
    [-1.2436e-01, -3.8110e08, -4.4957e08, -1.0000e09, -1.0000e09, -1.0000e09],
    [-5.7052e-01, -8.9330e07, -1.1080e08, -3.8608e08, -1.0000e09, -1.0000e09],
    [-9.2311e-01, -1.8853e07, -3.0054e07, -1.3588e08, -9.4832e08, -1.0000e09],
    [-1.3912e-01, -1.7154e07, -4.0612e08, -6.4985e08, -7.2999e08, -8.9018e08],
]


def test_the_output_equals_the_printed_values_of_the_notebook():
    config = tiny_config("none", "embedding-softmax", "causal", d_model=6, heads=2, norm="post")
    subject = Subject(config)
    attention = subject.attention("decoder")
    x = torch.tensor(EMBEDDINGS, dtype=torch.float64).expand(2, 3, 6, 6)
    found, _ = attention(
        x, None, subject.attention_context("decoder", mask=subject.mask("decoder"))
    )
    expected = torch.tensor(OUTPUT, dtype=torch.float64)
    torch.testing.assert_close(found[1, 2], expected, rtol=1e-3, atol=1e-3)


def reason(train=None, quirks=None, decode="teacher-forced", longest=None, **choices):
    config = tiny_config(
        **({"attention": "embedding-softmax", "d_model": 6, "heads": 2} | choices),
        train=train,
        quirks=quirks,
    )
    evaluate = config.evaluate.model_copy(update={"decode": decode})
    config = config.model_copy(update={"evaluate": evaluate})
    return find_incompatibility(config, longest or {})


LENGTH = (
    "embedding-softmax needs as many target tokens as d_model, got {} and 6; set model.d_model: {}"
)


def test_target_must_have_d_model_tokens():
    assert reason() is None
    assert reason(longest={"source": 5, "target": 7}) is None
    assert reason(longest={"source": 5, "target": 6}) == LENGTH.format(5, 5)
    same = {"shift_targets": False}
    assert reason(quirks=same, longest={"source": 5, "target": 6}) is None
    assert reason(quirks=same, longest={"source": 5, "target": 7}) == LENGTH.format(7, 7)
