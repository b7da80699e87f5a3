import itertools

import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.config.identity import run_identity
from headtohead.planning.equality import MAX_LENGTH, variants_equal_by_mask
from headtohead.plugins.masking import Masking
from headtohead.plugins.registry import current
from made import plugin_of, separate_registry

LENGTHS = {"source": 7, "target": 9}


class Window(Masking):
    """The nine most recent keys, padding included."""

    def mask(self, role, query_positions, key_positions, lengths):
        near = query_positions[:, None] - key_positions[None, :]
        return ((near >= 0) & (near < 9)).unsqueeze(0)


class AttendsToOnePad(Masking):
    """Causal, and the last non-padding query attends to the padding after it."""

    def mask(self, role, query_positions, key_positions, lengths):
        causal = key_positions[None, :] <= query_positions[:, None]
        peeks = (query_positions[None, :, None] == lengths[:, None, None] - 1) & (
            key_positions[None, None, :] == lengths[:, None, None]
        )
        return causal.unsqueeze(0) | peeks


class PadsAttendToEverything(Masking):
    """Causal for non-padding queries; padding queries attend to all keys."""

    def mask(self, role, query_positions, key_positions, lengths):
        causal = key_positions[None, None, :] <= query_positions[None, :, None]
        return causal | (query_positions[None, :, None] >= lengths[:, None, None])


OWN = {
    "last-nine": Window,
    "reads-one-pad": AttendsToOnePad,
    "pads-see-all": PadsAttendToEverything,
}


@pytest.fixture(scope="module")
def planted():
    with separate_registry(plugin_of(masking=OWN)):
        yield current()


def equals(registry, *maskings, longest=LENGTHS, **raw):
    base = {"train": {"epochs": 1}, "masking": "padding-causal"} | raw
    configs = {f"v{number}": resolve(base | masking) for number, masking in enumerate(maskings)}
    identities = {slug: run_identity(config, "f") for slug, config in configs.items()}
    found = variants_equal_by_mask(configs, "v0", identities, longest)
    return {slug: to for slug, (to, _) in found.items()}


CAUSAL = {"masking.decoder": "causal"}
OPEN = [
    {"masking.encoder": scheme, "masking.cross": "none"} for scheme in ("causal", "pads-see-all")
]


@pytest.mark.parametrize(
    ("first", "second", "longest", "equal"),
    [
        ({}, {}, LENGTHS, True),
        ({}, CAUSAL, LENGTHS, True),
        ({}, CAUSAL | {"model.d_ff": 64}, LENGTHS, False),
        ({}, CAUSAL, {"source": MAX_LENGTH + 1, "target": 9}, False),
        ({}, {"masking": "causal"}, LENGTHS, False),
        ({}, {"masking": "none"}, LENGTHS, False),
        ({}, {"masking.encoder": "none"}, LENGTHS, False),
        ({}, {"masking.cross": "none"}, LENGTHS, False),
        (
            {"masking": "causal"},
            {"masking": "causal", "masking.decoder": "padding-causal"},
            LENGTHS,
            True,
        ),
        (CAUSAL, {"masking.decoder": "last-nine"}, LENGTHS, True),
        (CAUSAL, {"masking.decoder": "last-nine"}, {"source": 7, "target": 10}, False),
        (CAUSAL, {"masking.decoder": "reads-one-pad"}, LENGTHS, False),
        (
            CAUSAL,
            {"masking.decoder": "pads-see-all"},
            LENGTHS,
            True,
        ),  # nothing attends to the padding rows
        (*OPEN, LENGTHS, False),  # cross-attention attends to the padding rows
        (*(masking | {"masking.cross": "padding"} for masking in OPEN), LENGTHS, True),
        # Target queries of any length:
        ({"masking.cross": "causal"}, {"masking.cross": "pads-see-all"}, LENGTHS, False),
    ],
)
def test_variants_are_equal_if_their_masks_have_the_same_effect(
    planted, first, second, longest, equal
):
    assert equals(planted, first, second, longest=longest) == ({"v1": "v0"} if equal else {})


@pytest.mark.parametrize(
    ("scheme", "other"),
    list(itertools.combinations(["none", "padding", "causal", "padding-causal"], 2)),
)
@pytest.mark.parametrize(
    ("role", "cross"), [("decoder", "encoder"), ("decoder", "decoder"), ("cross", "decoder")]
)
def test_the_verdict_agrees_with_the_logits_of_the_model(registry, scheme, other, role, cross):
    """The oracle is the model: logits at non-padding positions are equal if and only if the variants are."""
    from headtohead.model.transformer import Transformer

    assert scheme != other
    masks = {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}
    if cross == "decoder":
        masks["cross"] = "causal"
    maskings = [{"masking": masks | {role: mask}} for mask in (scheme, other)]
    sizes = {"d_model": 8, "heads": 2, "layers": 2, "d_ff": 8, "dropout": 0.0}
    small = {"model": sizes, "quirks": {"notebooks": {"cross_attention_memory": cross}}}
    verdict = bool(equals(registry, *maskings, **small))

    source = torch.tensor([[[4, 5, 3, 0], [6, 4, 5, 3]]])
    target = torch.tensor([[[2, 5, 4, 0, 0], [2, 6, 5, 4, 3]]])
    lengths = (torch.tensor([[3, 4]]), torch.tensor([[3, 5]]))
    outputs = []
    for masking in maskings:
        raw = {"train": {"epochs": 1}} | small | masking
        model = Transformer(resolve(raw), [1], 8, 8)
        logits = model.double().eval()(source, lengths[0], target, lengths[1])
        outputs.append(torch.cat([logits[0, 0, :3], logits[0, 1]]))
    assert torch.allclose(*outputs, atol=1e-12, rtol=0) == verdict
