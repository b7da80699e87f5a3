"""Stacks: a run is the same alone and in a stack, trained on toy-grammar in float64."""

from functools import cache

import pytest
import torch

from headtohead.data import prepare
from headtohead.model.geometry import only_length
from headtohead.plugins.registry import current
from headtohead.testing.invariants import trained_stacks
from headtohead.testing.invariants.trained_stacks import a_member_trains_as_it_would_alone
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from made import case_table
from made.array import choices, compatibility, covering, factors
from made.data_section import data_config
from made.equality import same_training

REGISTRY = current()
FACTORS = {name: factors(REGISTRY)[name] for name in ("positional", "attention", "masking", "role")}


def test_weights_that_are_not_a_number_violate_stacking(monkeypatch):
    """The planted fault: training with dropout gives NaN, alone and in a stack."""

    def trained(subject, config, seeds, configs=None):
        value = float("nan") if config.model.dropout_attention else 1.0
        return [{"weight": torch.full((2,), value)} for _ in seeds]

    monkeypatch.setattr(trained_stacks, "trained_weights", trained)
    assert a_member_trains_as_it_would_alone(Subject(tiny_config())).state == "violated"


@cache
def rows():
    """Return rows with every entry; not computed during collection, which every worker repeats."""
    return covering(FACTORS, compatibility(), size=1)


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    config = data_config(dataset="toy-grammar", options={"size": 80}, valid=8, test=8)
    return prepare(config, tmp_path_factory.mktemp("cache"))


@case_table("attention", FACTORS["attention"], default=2)
def test_member_of_a_stack_trains_as_its_run_in_a_stack_of_one(attention, toy):
    for row in (row for row in rows() if row["attention"] == attention):
        config = tiny_config(**choices(row), decoder_layers=1, train={"batch_tokens": 128})
        # A style for a fixed number of tokens gets sentences of that length.
        data = toy if only_length(config) is None else None
        verdict = a_member_trains_as_it_would_alone(Subject(config, seeds=(3, 1), data=data))
        assert verdict.state == "holds", f"{row}: {verdict}"


@case_table("optimizer", ["adam", "adamw"], default=1)
def test_stacking_holds_with_decay_smoothing_clipping_and_a_schedule(optimizer, toy):
    train = {
        "batch_tokens": 128,
        "steps": 6,
        "optimizer": optimizer,
        "weight_decay": 0.1,
        "label_smoothing": 0.1,
        "clip_norm": 0.05,
        "schedule": "cosine",
        "warmup_steps": 2,
    }
    # A key bias has no gradient under plain softmax, so that with L2 Adam follows the sign of a
    # rounding error. The bias changes no output, but its values would differ.
    config = tiny_config(train=train, bias=optimizer == "adamw")
    verdict = a_member_trains_as_it_would_alone(Subject(config, seeds=(5, 9), data=toy))
    assert verdict.state == "holds", str(verdict)


@case_table(
    "positional",
    [{"decoder": name} if name == "fire" else name for name in FACTORS["positional"]],
    ids=str,
    default=2,
)
def test_causal_and_padding_causal_decoders_train_to_bit_equal_weights(positional):
    masks = {"encoder": "padding", "cross": "padding"}
    configs = [
        tiny_config(positional, masking=masks | {"decoder": decoder})
        for decoder in ("causal", "padding-causal")
    ]
    assert same_training(*configs)


def test_masks_that_differ_at_non_padding_positions_train_to_other_weights():
    assert not same_training(tiny_config(masking="causal"), tiny_config(masking="padding-causal"))
