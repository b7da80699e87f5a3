import itertools

import pytest
import torch

from headtohead.config.builder import resolve
from headtohead.config.identity import run_identity
from headtohead.planning.equality import LONGEST, equal_variants
from headtohead.planning.variants import Variant
from headtohead.plugins.hookspecs import hookimpl
from headtohead.plugins.masking import Masking
from headtohead.plugins.registry import load_registry

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


class Planted:
    @hookimpl
    def register_maskings(self):
        return {"last-nine": Window, "reads-one-pad": AttendsToOnePad, "pads-see-all": PadsAttendToEverything}


@pytest.fixture(scope="module")
def planted():
    return load_registry(objects=[Planted()])


def equals(registry, *maskings, longest=LENGTHS, **raw):
    variants = [
        Variant(
            f"v{number}",
            f"v{number}",
            {},
            resolve({"train": {"epochs": 1}, "masking": "padding-causal"} | raw | masking, registry),
        )
        for number, masking in enumerate(maskings)
    ]
    identities = {variant.slug: run_identity(variant.config, "f") for variant in variants}
    found = equal_variants(variants, "v0", identities, longest, registry)
    return {slug: item.to for slug, item in found.items()}


def test_causal_equals_padding_causal_in_the_decoder(registry):
    assert equals(registry, {}, {"masking.decoder": "causal"}) == {"v1": "v0"}


def test_the_reason_names_the_masks_and_the_lengths(registry):
    config = resolve({"train": {"epochs": 1}}, registry)
    other = resolve({"train": {"epochs": 1}, "masking.decoder": "causal"}, registry)
    variants = [Variant("a", "a", {}, config), Variant("b", "b", {}, other)]
    identities = {variant.slug: run_identity(variant.config, "f") for variant in variants}
    found = equal_variants(variants, "b", identities, LENGTHS, registry)
    assert found["a"].to == "b"
    assert found["a"].reason == (
        "masking.decoder 'padding-causal' and 'causal' allow the same keys for every non-padding query at "
        "all lengths up to 9 with right padding"
    )


@pytest.mark.parametrize(
    "other",
    [
        {"masking": "causal"},
        {"masking": "padding"},
        {"masking": "none"},
        {"masking.encoder": "none"},
        {"masking.cross": "none"},
        {"masking.decoder": "padding"},
    ],
)
def test_masks_that_show_padding_or_later_tokens_are_not_equal(registry, other):
    assert equals(registry, {}, other) == {}


def test_variants_with_another_difference_are_not_equal(registry):
    assert equals(registry, {}, {"masking.decoder": "causal", "model.d_ff": 64}) == {}


def test_equality_is_found_with_a_shared_mask_of_all_roles(registry):
    maskings = [{"masking": "causal"}, {"masking": "causal", "masking.decoder": "padding-causal"}]
    assert equals(registry, *maskings) == {"v1": "v0"}


def test_a_window_equals_causal_up_to_its_width(planted):
    window = {"masking.decoder": "last-nine"}
    assert equals(planted, {"masking.decoder": "causal"}, window) == {"v1": "v0"}
    longer = {"source": 7, "target": 10}
    assert equals(planted, {"masking.decoder": "causal"}, window, longest=longer) == {}


def test_a_mask_that_shows_one_padding_token_is_not_equal(planted):
    assert equals(planted, {"masking.decoder": "causal"}, {"masking.decoder": "reads-one-pad"}) == {}


def test_padding_rows_may_differ_if_no_attention_reads_them(planted):
    maskings = [{"masking.decoder": "causal"}, {"masking.decoder": "pads-see-all"}]
    assert equals(planted, *maskings) == {"v1": "v0"}


def test_padding_rows_must_be_equal_if_cross_attention_reads_them(planted):
    maskings = [
        {"masking.encoder": "causal", "masking.cross": "none"},
        {"masking.encoder": "pads-see-all", "masking.cross": "none"},
    ]
    assert equals(planted, *maskings) == {}
    closed = [masking | {"masking.cross": "padding"} for masking in maskings]
    assert equals(planted, *closed) == {"v1": "v0"}


def test_all_target_queries_count_in_cross_attention_for_any_source_length(planted):
    maskings = [{"masking.cross": "causal"}, {"masking.cross": "pads-see-all"}]
    assert equals(planted, *maskings) == {}


def test_masks_are_not_equal_beyond_the_longest_compared_length(registry):
    longest = {"source": LONGEST + 1, "target": 9}
    assert equals(registry, {}, {"masking.decoder": "causal"}, longest=longest) == {}


def test_equal_configurations_are_equal(registry):
    assert equals(registry, {}, {}) == {"v1": "v0"}


@pytest.mark.parametrize(
    ("scheme", "other"), list(itertools.combinations(["none", "padding", "causal", "padding-causal"], 2))
)
@pytest.mark.parametrize(("role", "cross"), [("decoder", "encoder"), ("decoder", "decoder"), ("cross", "decoder")])
def test_the_verdict_agrees_with_the_logits_of_the_model(registry, scheme, other, role, cross):
    """The oracle is the model: logits at non-padding positions are equal if and only if the variants are."""
    from headtohead.model.transformer import Transformer

    assert scheme != other
    masks = {"encoder": "padding", "decoder": "padding-causal", "cross": "padding"}
    if cross == "decoder":
        masks["cross"] = "causal"
    maskings = [{"masking": masks | {role: mask}} for mask in (scheme, other)]
    sizes = {"d_model": 8, "heads": 2, "layers": 2, "d_ff": 8, "dropout": 0.0}
    small = {"model": sizes, "quirks": {"cross_attention_memory": cross}}
    verdict = bool(equals(registry, *maskings, **small))

    source = torch.tensor([[[4, 5, 3, 0], [6, 4, 5, 3]]])
    target = torch.tensor([[[2, 5, 4, 0, 0], [2, 6, 5, 4, 3]]])
    lengths = (torch.tensor([[3, 4]]), torch.tensor([[3, 5]]))
    outputs = []
    for masking in maskings:
        raw = {"train": {"epochs": 1}} | small | masking
        model = Transformer(resolve(raw, registry), [1], 8, 8)
        logits = model.double().eval()(source, lengths[0], target, lengths[1])
        outputs.append(torch.cat([logits[0, 0, :3], logits[0, 1]]))
    assert torch.allclose(*outputs, atol=1e-12, rtol=0) == verdict
