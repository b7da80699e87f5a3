"""Stacks of unlike runs: each member equals its run trained in a stack of one."""

from typing import Any

import pytest
import torch

from headtohead.model.decoding import greedy
from headtohead.model.members import shape_key
from headtohead.model.transformer import Transformer
from headtohead.storage.stack import ResumePoints
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.training.loop import StackTraining

CPU = torch.device("cpu")
EXACT = {"precision": "float64"}


def of(positional="none", masking="padding-causal", mask_value="-inf", model=None, **train):
    return tiny_config(
        positional,
        masking=masking,
        train=EXACT | train,
        **{"mask_value": mask_value} | (model or {}),
    )


UNLIKE = [
    of("none"),
    of("sinusoidal", lr=3e-3, model={"dropout": 0.3}),
    of("t5-relative", weight_decay=0.3, mask_value="-1e9", model={"dropout_residual": 0.1}),
    of("alibi", "causal", model={"dropout": 0.1, "dropout_attention": 0}, label_smoothing=0.2),
    of({"encoder": "t5-relative", "decoder": "kerple-log"}, clip_norm=0.05, mask_value="additive"),
    of({"encoder": "rotary", "decoder": "fire"}, warmup_steps=3),
    of("sandwich", {"name": "window", "width": 2}, "-1e9", schedule="cosine", clip_norm=None),
    of("rotary", {"name": "prefix", "length": 2}, model={"init": "torch"}),
    of({"cross": "alibi"}, "none", lr=3e-3),
]
SEEDS = [3, 1, 2, 3, 5, 1, 8, 9, 3]


def training(configs, seeds, data, path=None):
    return StackTraining(configs[0], seeds, data, CPU, path, configs=configs)


@pytest.fixture(scope="module")
def data():
    return Subject(UNLIKE[0]).data


@pytest.fixture(scope="module")
def single_models(data):
    found = []
    for config, seed in zip(UNLIKE, SEEDS, strict=True):
        single = training([config], [seed], data)
        single.run()
        found.append(single.model)
    return found


def difference(model, member, single):
    theirs = single.member_state(0)
    ours = model.member_state(member)
    assert set(ours) == set(theirs)
    return max(float((ours[name] - theirs[name]).abs().max()) for name in theirs)


def test_these_variants_have_one_shape():
    assert len({shape_key(changes) for changes in UNLIKE}) == 1


@pytest.mark.parametrize("order", [range(9), [8, 0, 3, 6, 1, 4, 7, 2, 5]], ids=["given", "mixed"])
def test_every_member_equals_its_run_trained_in_a_stack_of_one(single_models, data, order):
    stack = training([UNLIKE[i] for i in order], [SEEDS[i] for i in order], data)
    stack.run()
    for member, i in enumerate(order):
        assert difference(stack.model, member, single_models[i]) < 1e-9, UNLIKE[i]


def test_a_stack_has_the_logits_and_translations_of_its_members(single_models, data):
    stack = training(UNLIKE, SEEDS, data)
    for member, single in enumerate(single_models):
        stack.model.load_member(member, single.member_state(0))
    split = stack.splits["valid"]
    rows = split.padded_batches(64)[0]
    batch = split.batch(rows.expand(len(UNLIKE), -1), *split.times(rows))
    model = stack.model.eval()
    with torch.no_grad():
        logits = model(
            batch.source, batch.source_lengths, batch.decoder_input_ids, batch.target_lengths
        )
    written = greedy(model, batch.source, batch.source_lengths, 9)
    for member, single in enumerate(single_models):
        own = batch.source[:1], batch.source_lengths[:1]
        with torch.no_grad():
            expected = single.eval()(*own, batch.decoder_input_ids[:1], batch.target_lengths[:1])[0]
        live = batch.labels[member] >= 0
        assert float((logits[member] - expected)[live].abs().max()) < 1e-10
        theirs = greedy(single, *own, 9)[0]
        ours = written[member, :, : theirs.shape[1]]
        assert torch.equal(ours, theirs)
        assert not written[member, :, theirs.shape[1] :].any()


def test_members_with_muon_and_bounded_logits_equal_their_runs_alone(data):
    common = {"optimizer": "muon", "schedule": "wsd", "z_loss": 0.01, "weight_decay": 0.1}
    settings: list[dict[str, Any]] = [
        {},
        {"schedule": {"name": "wsd", "decay_fraction": 0.7}},
        {"lr": 3e-3, "schedule": {"name": "wsd", "final_lr": 1e-3}},
    ]
    configs = [of("rotary", model={"logit_softcap": 2.0}, **{**common, **own}) for own in settings]
    plain = of("rotary", **{**common, **settings[0]})
    stack = training(configs, [3, 1, 2], data)
    stack.run()
    for member, (config, seed) in enumerate(zip(configs, [3, 1, 2], strict=True)):
        single = training([config], [seed], data)
        single.run()
        assert difference(stack.model, member, single.model) < 1e-9, settings[member]
    batch = stack.splits["valid"].batch(torch.zeros(3, 1, dtype=torch.long), 6, 5)
    logits = stack.model(
        batch.source, batch.source_lengths, batch.decoder_input_ids, batch.target_lengths
    )
    assert logits.abs().max() < 2
    unbounded = training([plain], [3], data)
    unbounded.run()
    assert difference(stack.model, 0, unbounded.model) > 1e-4


def test_a_budget_of_tokens_sees_as_many_target_tokens(data):
    passes = training([of("none", tokens=10**9)], [1], data).batches.tokens_per_epoch
    whole = training([of("none", tokens=3 * passes)], [1], data)
    assert whole.steps == 3 * whole.batches.steps_per_epoch
    whole.run()
    assert whole.token_sums.tolist() == [3 * passes]


@pytest.mark.slow
def test_a_stack_of_unlike_runs_resumes_bit_for_bit(data, tmp_path):
    whole = training(UNLIKE, SEEDS, data)
    whole.run()
    first = training(UNLIKE, SEEDS, data, ResumePoints(tmp_path))
    first.steps //= 2
    first.run()
    second = training(UNLIKE, SEEDS, data, ResumePoints(tmp_path))
    second.run()
    for name, value in whole.model.state_dict().items():
        assert torch.equal(second.model.state_dict()[name], value), name


@pytest.mark.parametrize(
    "changed",
    [
        {"d_ff": 13},
        {"feed_forward": "gelu"},
        {"norm": "post"},
        {"positional": "shaw-relative"},
        {"positional": "shape"},
        {"positional": "learned"},
        {"attention": "sigmoid"},
        {"train": {"batch_tokens": 99}},
        {"train": {"betas": [0.9, 0.99]}},
    ],
    ids=str,
)
def test_runs_that_cannot_be_stacked_have_different_shapes(changed):
    assert shape_key(tiny_config(**changed)) != shape_key(tiny_config())


def test_unlike_modules_are_applied_to_their_members_only():
    model = Transformer(UNLIKE[0], SEEDS, 12, 9, UNLIKE)
    members_of_tables = []
    for name, _, members in model.owned_parameters():
        if name.startswith("positionals.encoder"):
            members_of_tables.append(members)
    assert members_of_tables == [(2, 4)]
    assert "positionals.encoder.table" in model.member_state(2)
    assert "positionals.encoder.table" not in model.member_state(3)
