"""Masked heads equal heads with outputs set to 0, scored by hand."""

import pytest
import torch

from headtohead.errors import UndefinedError
from headtohead.execution.head_ablation import head_effects, head_metrics, with_masks
from headtohead.model.loss import token_losses
from headtohead.model.transformer import Transformer
from headtohead.plugins.registry import current
from headtohead.testing.tiny import tiny_config, tiny_data
from made import case_table, moved


@pytest.fixture(scope="module")
def data():
    return tiny_data()


def model_of(data, **choices):
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    return moved(Transformer(tiny_config(**choices), [1], *words).double())


def loss_with_outputs_zeroed(model, data, attention, heads):
    """Set head outputs to 0 before the output projection, and return the mean loss per token."""
    width = attention.context.geometry.value_width

    def zero(module, arguments):
        joined = arguments[0].clone()
        for head in heads:
            joined[..., head * width : (head + 1) * width] = 0.0
        return (joined,)

    handle = attention.output.register_forward_pre_hook(zero)
    losses, num_tokens = 0.0, 0
    with torch.no_grad():
        for source, target in zip(
            data.splits["test"].source, data.splits["test"].target, strict=True
        ):
            source, target = (torch.tensor(ids).view(1, 1, -1) for ids in (source, target))
            decoder_input_ids, labels = target[..., :-1], target[..., 1:]
            lengths = [torch.full((1, 1), ids_.shape[-1]) for ids_ in (source, decoder_input_ids)]
            logits = model(source, lengths[0], decoder_input_ids, lengths[1])
            losses += float(token_losses(logits, labels.long()).sum())
            num_tokens += labels.numel()
    handle.remove()
    return losses / num_tokens


CHOICES = [
    {"attention": "split-heads"},
    {"attention": "independent-heads", "positional": "rotary"},
    {"attention": {"name": "grouped-query", "kv_heads": 2}, "positional": "alibi"},
    {"attention": {"name": "free-geometry", "key_width": 3, "value_width": 5}},
]


@case_table("choices", CHOICES, ids=str, default=1)
def test_masking_a_head_equals_zeroing_its_output(choices, data):
    model = model_of(data, **choices)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    found, heads = head_effects(model, data, None)
    layers = {(a.context.role, a.context.layer or 0): a for a in model.attentions}
    assert [(head["role"], head["layer"], head["head"]) for head in heads] == [
        (*layer, head) for layer in layers for head in range(4)
    ]
    whole = loss_with_outputs_zeroed(model, data, layers["encoder", 0], [])
    assert found["loss"] == pytest.approx(whole, abs=1e-6)
    for effect in heads:
        attention = layers[effect["role"], effect["layer"]]
        without_head = loss_with_outputs_zeroed(model, data, attention, [effect["head"]])
        others = [head for head in range(4) if head != effect["head"]]
        only_head = loss_with_outputs_zeroed(model, data, attention, others)
        assert effect["without-one"]["loss"] == pytest.approx(without_head - whole, abs=1e-6)
        assert effect["only-one"]["loss"] == pytest.approx(only_head - whole, abs=1e-6)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())


@case_table(
    "style",
    [{"name": "random", "trained": False}, *current().entries["attention"]],
    ids=str,
    default=3,
)
def test_a_copy_without_masks_equals_its_model(data, style):
    words = len(data.source_vocabulary), len(data.target_vocabulary)
    model = Transformer(tiny_config(attention=style), [2], *words).eval()
    stack = with_masks(model, data, [(0, ())] * 2)
    for name, value in model.state_dict().items():
        assert torch.equal(stack.state_dict()[name], value.expand_as(stack.state_dict()[name])), (
            name
        )


def test_metrics_of_a_role_are_the_mean_effect_and_the_best_single_head():
    effects = {
        ("cross", 0): [(0.1, 0.9), (0.3, 0.5)],
        ("cross", 1): [(0.2, 0.1), (0.2, 0.7)],
        ("encoder", 0): [(0.01, 0.04), (0.03, 0.02)],
    }
    heads = [
        {
            "role": role,
            "layer": layer,
            "head": head,
            "without-one": {"loss": without},
            "only-one": {"loss": only},
        }
        for (role, layer), own in effects.items()
        for head, (without, only) in enumerate(own)
    ]
    assert head_metrics(heads) == pytest.approx(
        {
            "heads/cross/without-one/loss": 0.2,
            "heads/cross/only-one/loss": 0.3,
            "heads/encoder/without-one/loss": 0.02,
            "heads/encoder/only-one/loss": 0.02,
        }
    )


def test_a_style_without_projections_has_no_heads_to_mask(data):
    model = model_of(data, attention="embedding-softmax", heads=4)
    with pytest.raises(UndefinedError, match="no output projection in which heads could be masked"):
        head_effects(model, data, None)
