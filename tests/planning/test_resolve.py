from typing import ClassVar

import pytest

from headtohead.config.builder import ConfigBuilder, resolve
from headtohead.errors import HeadToHeadError
from headtohead.plugins.registry import load_registry

TRAIN = {"train": {"epochs": 1}}


@pytest.fixture
def resolved(registry):
    def resolved(**raw):
        return resolve(TRAIN | raw, registry)

    return resolved


def names(per_role):
    return [per_role.role(role).name for role in ("encoder", "decoder", "cross")]


def failure(registry, **raw):
    with pytest.raises(HeadToHeadError) as caught:
        resolve(TRAIN | raw, registry)
    assert "\n" not in str(caught.value)
    return str(caught.value).removeprefix("configuration: ")


def test_the_default_configuration_is_the_standard_transformer(resolved):
    config = resolved()
    assert names(config.positional) == ["sinusoidal", "sinusoidal", "none"]
    assert names(config.attention) == ["split-heads"] * 3
    assert names(config.masking) == ["padding", "padding-causal", "padding"]


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        ({"positional": "rotary"}, ["rotary", "rotary", "none"]),
        ({"positional": {"name": "rotary"}}, ["rotary", "rotary", "none"]),
        ({"positional": {"encoder": "none"}}, ["none", "sinusoidal", "none"]),
        ({"positional": {"cross": "rotary"}}, ["sinusoidal", "sinusoidal", "rotary"]),
        ({"positional.decoder": "rotary"}, ["sinusoidal", "rotary", "none"]),
        ({"positional": {"encoder": "none"}, "data": {}, "model": {}}, ["none", "sinusoidal", "none"]),
        ({"positional.decoder": {"name": "rotary", "theta": 5}}, ["sinusoidal", "rotary", "none"]),
        ({"positional": {"decoder": {"name": "alibi"}}}, ["sinusoidal", "alibi", "none"]),
    ],
)
def test_every_notation_of_an_encoding_sets_its_roles(resolved, given, roles):
    assert names(resolved(**given).positional) == roles


@pytest.mark.parametrize(
    ("masking", "roles"),
    [
        ("causal", ["none", "causal", "none"]),
        ("padding", ["padding", "padding", "padding"]),
        ("none", ["none", "none", "none"]),
        ("padding-causal", ["padding", "padding-causal", "padding"]),
    ],
)
def test_a_plain_masking_name_sets_the_masks_of_the_catalogue(resolved, masking, roles):
    assert names(resolved(masking=masking).masking) == roles


def test_a_dotted_key_overrides_the_plain_name_in_any_order(resolved):
    config = resolved(**{"masking.decoder": "causal", "masking": "padding"})
    assert names(config.masking) == ["padding", "causal", "padding"]


def test_omitted_options_have_their_defaults(resolved):
    config = resolved(positional={"name": "learned", "max_length": 9})
    assert config.positional.encoder.options.max_length == 9
    assert resolved(positional="learned").positional.decoder.options.max_length == 128


def test_an_option_is_set_in_every_role_that_has_it(resolved):
    config = resolved(**{"positional": "rotary", "positional.theta": 7})
    assert config.positional.encoder.options.theta == config.positional.decoder.options.theta == 7.0


def test_a_new_name_resets_the_options(resolved):
    config = resolved(**{"positional": {"name": "rotary", "theta": 7}, "positional.decoder": "rotary"})
    assert config.positional.decoder.options.theta == 10000.0


def test_options_apply_to_the_named_dataset_in_any_order(resolved):
    data = resolved(**{"data.pair": "eng-fra", "data.dataset": "tatoeba"}).data
    assert data.options.pair == "eng-fra"


def test_another_dataset_resets_the_options(resolved):
    data = resolved(**{"data": {"size": 100}, "data.dataset": "tatoeba"}).data
    assert not hasattr(data.options, "size")


def test_defaults_that_depend_on_layers_dropout_and_norm_are_resolved(resolved):
    model = resolved(model={"layers": 3, "decoder_layers": 1, "dropout": 0.2, "dropout_ffn": 0, "norm": "post"}).model
    assert (model.encoder_layers, model.decoder_layers) == (3, 1)
    assert (model.dropout_ffn, model.dropout_residual) == (0.0, 0.2)
    assert model.final_norm is False
    assert resolved().model.final_norm is True


def test_early_stopping_is_completed_and_can_be_switched_off(resolved):
    on = resolved(train={"epochs": 1, "early_stopping": {"patience": 2}}).train.early_stopping
    assert (on.metric, on.patience) == ("valid/loss", 2)
    off = resolved(**{"train": {"epochs": 1, "early_stopping": {}}, "train.early_stopping": None})
    assert off.train.early_stopping is None


def test_an_unquoted_mask_value_is_parsed_as_its_name(resolved):
    assert resolved(model={"mask_value": -1e9}).model.mask_value == "-1e9"


def test_base_overrides_the_recipe():
    from headtohead.plugins.recipe import Recipe

    class Small(Recipe):
        """A small start."""

        config: ClassVar = {"model": {"d_model": 8, "heads": 4}, "positional": "rotary", "train": {"steps": 3}}

    registry = planted("register_recipes", {"small": Small})
    config = resolve({"recipe": "small", "model": {"heads": 2}}, registry)
    assert (config.model.d_model, config.model.heads) == (8, 2)
    assert names(config.positional) == ["rotary", "rotary", "none"]
    assert config.train.steps == 3


def test_an_error_in_a_recipe_names_the_recipe():
    from headtohead.plugins.recipe import Recipe

    class Broken(Recipe):
        """A misspelt start."""

        config: ClassVar = {"model": {"d_modle": 8}}

    registry = planted("register_recipes", {"broken": Broken})
    with pytest.raises(HeadToHeadError) as caught:
        resolve({"recipe": "broken"}, registry)
    assert str(caught.value) == ("recipe 'broken': model.d_modle: unknown field 'd_modle'; did you mean 'd_model'?")


@pytest.mark.parametrize(
    ("raw", "location", "word"),
    [
        ({"modl": {}}, "modl:", "did you mean 'model'"),
        ({"positional": "rotery"}, "positional:", "did you mean 'rotary'"),
        ({"positional": {"name": "rotary", "thta": 3}}, "positional.thta:", "did you mean 'theta'"),
        ({"positional": {"name": "rotary", "theta": "big"}}, "positional.theta:", "expected a valid number, got 'big'"),
        ({"positional.encodr": "rotary"}, "positional.encodr:", "did you mean 'encoder'"),
        ({"positional.encoder.theta": 3}, "positional.encoder.theta:", "unknown field 'theta'"),
        ({"positional": None}, "positional:", "expected a name"),
        ({"positional": {"encoder": None}}, "positional.encoder:", "expected a name, or a"),
        ({"model": {"d_modle": 3}}, "model.d_modle:", "did you mean 'd_model'"),
        ({"model": {"d_model": "abc"}}, "model.d_model:", "expected a valid integer, got"),
        ({"model": {"d_model": True}}, "model.d_model:", "expected a valid integer, got"),
        ({"model": {"d_model": 0}}, "model.d_model:", "must be greater than or equal to 1,"),
        ({"model": {"d_model": None}}, "model.d_model:", "expected a valid integer, got"),
        ({"model": {"dropout": 1.0}}, "model.dropout:", "must be less than 1,"),
        ({"model": {"norm": "pst"}}, "model.norm:", "did you mean 'post'"),
        ({"model.d_model.x": 3}, "model.d_model.x:", "expected a valid integer"),
        ({"train": {"lr": float("inf")}}, "train.lr:", "expected a finite number, got"),
        ({"train": {"betas": [0.9]}}, "train.betas:", "item 1 is missing"),
        ({"train": {"epochs": 1, "steps": 2}}, "train:", "epochs and steps are both"),
        (
            {"train": {"epochs": 1, "batch_tokens": 512, "batch_size": 8}},
            "train:",
            "batch_size and batch_tokens are both",
        ),
        ({"train": {}}, "train:", "give epochs or steps"),
        (
            {"train": {"epochs": 1, "early_stopping": {"metric": "val_loss"}}},
            "train.early_stopping.metric:",
            "did you mean 'valid/loss'",
        ),
        ({"train": {"epochs": 1, "early_stopping": 5}}, "train.early_stopping:", "expected a mapping, got 5"),
        ({"model": {"tie_embeddings": "all"}}, "model.tie_embeddings:", "tie_embeddings 'all' requires one vocabulary"),
        ({"data": {"dataset": "toy-gramar"}}, "data.dataset:", "did you mean 'toy-grammar'"),
        ({"data": {"sise": 3}}, "data.sise:", "did you mean 'size'"),
        ({"data": {"split": "ii"}}, "data.split:", "did you mean 'iid'"),
        ({"data": {"test": 10.5}}, "data.test:", "expected a fraction below 1"),
        ({"evaluate": {"beam": {"size": 3}}}, "evaluate.beam.size:", "beam search requires evaluate.decode: beam,"),
        (
            {"evaluate": {"decode": "beam", "beam": {"size": 0}}},
            "evaluate.beam.size:",
            "must be greater than or equal to 1,",
        ),
        ({"recipe": "unheard-of"}, "recipe:", "unknown recipe 'unheard-of'"),
    ],
)
def test_every_wrong_value_is_one_line_with_its_field(registry, raw, location, word):
    message = failure(registry, **raw)
    assert message.startswith(location)
    assert word in message


def planted(hook, entries):
    """Return a registry with one more plugin of a single hook."""
    from types import ModuleType

    from headtohead.plugins.hookspecs import hookimpl

    module = ModuleType("planted")

    def implementation():
        return entries

    implementation.__name__ = hook
    setattr(module, hook, hookimpl(implementation))
    return load_registry(objects=[module])


@pytest.mark.parametrize(
    ("first", "second", "kept"),
    [("batch_size", "batch_tokens", (None, 8)), ("batch_tokens", "batch_size", (8, 2048)), ("steps", "epochs", None)],
)
def test_the_later_of_two_fields_that_replace_each_other_is_kept(registry, first, second, kept):
    builder = ConfigBuilder(registry)
    builder.merge({"train": TRAIN["train"] | {"steps": None}}, builder.root)
    for field in (first, second):
        builder.merge({f"train.{field}": 8}, builder.root)
    train = builder.build().train
    assert (train.epochs, train.steps) == (8, None) if kept is None else (train.batch_size, train.batch_tokens) == kept
