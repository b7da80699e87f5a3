"""Entries that alternate over the layers of a role."""

import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.config.entries import parsed_options
from headtohead.config.identity import run_hash
from headtohead.config.labels import label_at
from headtohead.errors import HeadToHeadError
from headtohead.planning.compatibility import find_incompatibility
from headtohead.schema.run_config import RunConfig
from headtohead.testing import INVARIANTS, Subject, tiny_config
from made import refused

CHECKS = {invariant.name: invariant for invariant in INVARIANTS}
DECODER_ONLY = {"architecture": "decoder-only", "decoder_layers": 3}
WINDOW = {"name": "window", "width": 2}
PATTERNS = {
    "windows between full layers": ("masking", [WINDOW, "padding-causal"]),
    "no positions in every third layer": ("positional", ["rotary", "rotary", "none"]),
    "two rotary bases": ("positional", ["rotary", {"name": "rotary", "theta": 3.0}]),
    "two feed-forward networks": ("feed_forward", ["relu2", "gelu"]),
}


@pytest.mark.parametrize(("family", "pattern"), PATTERNS.values(), ids=PATTERNS)
def test_each_layer_equals_that_of_a_model_with_this_entry_in_all_layers(family, pattern):
    base = {"positional": "none"} | DECODER_ONLY
    mixed = Subject(tiny_config(**base | {family: {"decoder": pattern}}))
    ids = mixed.sentences.target
    span, lengths = (0, ids.shape[-1]), mixed.sentences.target_lengths
    with torch.no_grad():
        found = mixed.model.decode(ids, lengths)
        x = mixed.model._embed(ids, mixed.model.target_embedding, "decoder", 0)
        for layer in range(3):
            entry = {"decoder": pattern[layer % len(pattern)]}
            model = Subject(tiny_config(**base | {family: entry})).model
            model.load_state_dict(mixed.model.state_dict())
            (context,) = model._attention_contexts("decoder", span, span, lengths)
            x, _ = model.decoder[layer](x, None, (context, None))
        expected = mixed.model._finish(x, mixed.model.decoder_norm, "decoder", ids)
    seen = mixed.sentences.target_nonpad
    torch.testing.assert_close(found[seen], expected[seen], rtol=0, atol=1e-12)
    plain = Subject(tiny_config(**base | {family: {"decoder": pattern[0]}})).model
    plain.load_state_dict(mixed.model.state_dict())
    assert (plain.decode(ids, lengths) - found)[seen].abs().max() > 1e-3


@pytest.mark.parametrize(
    "fields",
    [
        {
            "masking": {"decoder": [WINDOW, "padding-causal"], "encoder": ["padding", WINDOW]},
            "encoder_layers": 2,
        },
        {
            "positional": {"decoder": ["t5-relative", "none"], "encoder": ["none", "alibi"]},
            "encoder_layers": 2,
        },
        {
            "attention": {"decoder": ["split-heads", "qk-norm"]},
            "masking": {"decoder": ["causal", WINDOW]},
            **DECODER_ONLY,
        },
    ],
    ids=["masking", "positional", "attention"],
)
def test_cached_decoding_stacks_and_checkpoints_work_with_patterns(fields):
    subject = Subject(tiny_config(**fields))
    for name in ("cached-decoding", "members", "checkpoint", "stacking", "causality"):
        assert CHECKS[name](subject).state == "holds", name


def test_the_first_values_are_those_of_the_first_layer_with_every_mask():
    """For tokens that are no padding, both masks are equal."""
    fields = {"attention": "value-residual", **DECODER_ONLY}
    mixed, plain = (
        Subject(tiny_config(**fields, masking={"decoder": pattern}))
        for pattern in (["padding-causal", "causal"], ["padding-causal"])
    )
    plain.model.load_state_dict(mixed.model.state_dict())
    ids, lengths = mixed.sentences.target, mixed.sentences.target_lengths
    with torch.no_grad():
        found, expected = (subject.model.decode(ids, lengths) for subject in (mixed, plain))
    seen = mixed.sentences.target_nonpad
    torch.testing.assert_close(found[seen], expected[seen], rtol=0, atol=1e-12)
    assert CHECKS["cached-decoding"](mixed).state == "holds"


def test_attention_depends_on_no_values_of_an_earlier_pass():
    fields = {"attention": "value-residual", "positional": "none", **DECODER_ONLY}
    subject = Subject(tiny_config(**fields))
    attention = subject.model.decoder[1].attention
    x, _ = subject.activations("decoder")
    context = subject.attention_context("decoder")
    with torch.no_grad():
        attention(2 * x, None, context)
        found = attention(x, None, context)[0]
        expected = attention(x, None, subject.attention_context("decoder"))[0]
    assert torch.equal(found, expected)


def test_a_pattern_is_in_hash_label_and_record():
    def made(**fields):
        return resolve({"train": {"epochs": 1}} | fields)

    def hashed(config):
        return run_hash(config, 1, "f" * 64)

    plain, mixed = made(), made(masking={"decoder": [WINDOW, "causal"]})
    for same in (["padding-causal"], ["padding-causal", "padding-causal"]):
        assert made(**{"masking.decoder": same}) == plain
    others = [
        made(masking={"decoder": pattern})
        for pattern in (["causal", WINDOW], [WINDOW, "causal", "causal"])
    ]
    assert len({*map(hashed, [plain, mixed, *others])}) == 4
    assert label_at(mixed, ("masking", "decoder")) == "window(width=2)+causal"
    assert parsed_options(RunConfig.model_validate(mixed.model_dump(mode="json")), "r") == mixed


def test_mistakes_in_patterns_are_one_line():
    def failure(field, value):
        return refused(resolve, {"train": {"epochs": 1}, field: value})

    assert failure("masking", ["window", "causal"]).endswith(
        "for a pattern of layers, type masking: {decoder: [...]}"
    )
    assert "unknown masking 'casual'" in failure("masking.decoder", ["window", "casual"])
    assert "masking.decoder[1].width: must be" in failure(
        "masking.decoder", ["causal", {"name": "window", "width": 0}]
    )
    reasons = {
        "positional": (["sinusoidal", "rotary"], "sinusoidal acts before the first layer"),
        "attention": (
            ["split-heads", "single-head"],
            "the styles that attention.decoder lists differ",
        ),
    }
    for family, (pattern, reason) in reasons.items():
        config = tiny_config(**{family: {"decoder": pattern}})
        assert find_incompatibility(config, {}).startswith(reason)
    with pytest.raises(HeadToHeadError, match="expected one entry"):
        tiny_config(masking={"decoder": []})
