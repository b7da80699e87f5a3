"""Stacks: a run is the same alone and among neighbours, trained on toy-grammar in float64."""

import pytest

from headtohead.data import prepare
from headtohead.model.geometry import only_length
from headtohead.plugins.registry import current
from headtohead.schema.config import DataConfig
from headtohead.testing.covering import covering
from headtohead.testing.equality import same_training
from headtohead.testing.invariants.stacking import a_member_trains_as_it_would_alone
from headtohead.testing.subject import Subject
from headtohead.testing.tiny import tiny_config
from headtohead.tools.pitfalls.surroundings import defined

REGISTRY = current()
POSITIONALS, ATTENTIONS, MASKINGS = (
    sorted(REGISTRY.entries[family]) for family in ("positional", "attention", "masking")
)


def has_meaning(names):
    return defined(names, REGISTRY) is not None


FACTORS = {"positional": POSITIONALS, "attention": ATTENTIONS, "masking": MASKINGS}
PAIRWISE = [tuple(row.values()) for row in covering(FACTORS, has_meaning)]
# Each entry once, and of the rest every third pair: all pairs are asked by h2h check --all.
ASKED = PAIRWISE[::3]


@pytest.fixture(scope="session")
def toy(tmp_path_factory):
    config = DataConfig(dataset="toy-grammar", options={"size": 80}, valid=8, test=8)
    return prepare(config, tmp_path_factory.mktemp("cache"))


@pytest.mark.parametrize("names", ASKED, ids="/".join)
def test_member_of_a_stack_trains_as_the_run_with_its_seed_alone(names, toy):
    config = tiny_config(*names, decoder_layers=1, train={"batch_tokens": 128})
    # A style that reads one number of tokens gets sentences that have as many.
    data = toy if only_length(config) is None else None
    verdict = a_member_trains_as_it_would_alone(Subject(config, seeds=(3, 1, 2), data=data))
    assert verdict.state == "holds", str(verdict)


@pytest.mark.parametrize("optimizer", ["adam", "adamw"])
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
    # A key bias has no gradient under plain softmax, so that L2 makes Adam follow the sign of a
    # rounding error; it changes no output, but it is a weight.
    config = tiny_config(train=train, bias=optimizer == "adamw")
    verdict = a_member_trains_as_it_would_alone(Subject(config, seeds=(5, 9), data=toy))
    assert verdict.state == "holds", str(verdict)


def test_every_entry_is_trained_in_some_stack():
    for place, entries in enumerate((POSITIONALS, ATTENTIONS, MASKINGS)):
        assert {names[place] for names in ASKED} | {"fire"} >= set(entries)


@pytest.mark.parametrize("positional", [{"decoder": name} if name == "fire" else name for name in POSITIONALS], ids=str)
def test_causal_and_padding_causal_decoders_train_to_bit_equal_weights(positional):
    masks = {"encoder": "padding", "cross": "padding"}
    one, other = (
        tiny_config(positional, masking=masks | {"decoder": decoder}) for decoder in ("causal", "padding-causal")
    )
    assert same_training(one, other).state == "holds"


def test_masks_that_differ_where_they_are_read_train_to_other_weights():
    one, other = tiny_config(masking="causal"), tiny_config(masking="padding-causal")
    assert same_training(one, other).state == "broken"
