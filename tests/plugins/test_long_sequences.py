"""Components with decays that depend on the tokens, on a long sequence in float32 and in bfloat16."""

import pytest
import torch

from headtohead.model.transformer import Transformer
from headtohead.testing.tiny import tiny_config
from made import case_table

TIME = 1024

DECAYS = {"at initialisation": {}, "strong": {"style.rate": 2.0, "style.step": 1.0, "offset": -6.0}}
"""Values of the parameters with these last names."""


def stack(positional, attention, decays):
    """Return a decoder-only model with one member in float32."""
    sizes = {"d_model": 32, "heads": 4, "d_ff": 32}
    config = tiny_config(positional, {"decoder": attention}, architecture="decoder-only", **sizes)
    model = Transformer(config, [1], 64, 64).eval()
    for name, parameter in model.named_parameters():
        for last, value in DECAYS[decays].items():
            if name.endswith(last):
                parameter.detach().fill_(value)
    return model


@torch.no_grad()
def logits(model):
    ids = torch.randint(4, 64, (1, 1, TIME), generator=torch.Generator().manual_seed(3))
    lengths = torch.full((1, 1), TIME)
    return model(ids[:, :, :0], lengths * 0, ids, lengths).double()


@case_table("decays", DECAYS, default=1)
@pytest.mark.parametrize(
    ("positional", "attention"), [("none", "gated-delta"), ("forgetting", "split-heads")]
)
def test_float32_logits_of_a_long_sequence_have_the_precision_of_a_recurrence(
    positional, attention, decays
):
    model = stack(positional, attention, decays)
    found = logits(model)
    assert float((found - logits(model.double())).abs().max()) < 1.5e-5


def test_bfloat16_products_leave_the_logarithms_of_decays_in_float32():
    style = stack("none", "gated-delta", "at initialisation").decoder[0].attention.style
    x = torch.randn(1, TIME, 32, generator=torch.Generator().manual_seed(3)).bfloat16()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        _, keys, _ = style.project(x)
        gates = (x @ style.project_in).unflatten(-1, (4, -1))[..., -2:].float()
    log_alpha = -style.rate.exp()[:, None] * torch.nn.functional.softplus(
        gates[..., 0] + style.step[:, None]
    )
    found = keys.unflatten(-1, (4, -1))[..., -2:]
    torch.testing.assert_close(found[..., 0], log_alpha, rtol=1e-6, atol=0)
    torch.testing.assert_close(found[..., 1], gates[..., 1].sigmoid(), rtol=1e-6, atol=0)
