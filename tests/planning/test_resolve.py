import pytest

from headtohead.config.builder import resolve
from headtohead.config.labels import value_at
from headtohead.plugins.recipe import Recipe
from headtohead.plugins.registry import register
from made import plugin_of, refused

TRAIN = {"train": {"epochs": 1}}


@pytest.fixture
def resolved():
    def resolved(**raw):
        return resolve(TRAIN | raw)

    return resolved


def names(per_role):
    return [getattr(per_role, role).name for role in ("encoder", "decoder", "cross")]


def failure(**raw):
    return refused(resolve, TRAIN | raw).removeprefix("configuration: ")


@pytest.mark.parametrize(
    ("given", "roles"),
    [
        ({"positional": "rotary"}, ["rotary", "rotary", "none"]),
        ({"positional": {"encoder": "none"}}, ["none", "sinusoidal", "none"]),
        ({"positional.decoder": "rotary"}, ["sinusoidal", "rotary", "none"]),
        ({"positional.decoder": {"name": "rotary", "theta": 5}}, ["sinusoidal", "rotary", "none"]),
        ({"positional": {"decoder": {"name": "alibi"}}}, ["sinusoidal", "alibi", "none"]),
    ],
)
def test_every_notation_of_an_encoding_sets_its_roles(resolved, given, roles):
    assert names(resolved(**given).positional) == roles


def test_a_dotted_key_overrides_the_plain_name_in_any_order(resolved):
    config = resolved(**{"masking.decoder": "causal", "masking": "padding"})
    assert names(config.masking) == ["padding", "causal", "padding"]


ROTARY = {"positional": {"name": "rotary", "theta": 7}}
STOPPING = {"train": {"epochs": 1, "early_stopping": {"patience": 2}}}


@pytest.mark.parametrize(
    ("raw", "values"),
    [
        (
            {"positional": {"name": "learned", "max_length": 9}},
            {"positional.encoder.max_length": 9},
        ),
        (
            {"positional": "rotary", "positional.theta": 7},
            {"positional.encoder.theta": 7, "positional.decoder.theta": 7},
        ),
        (
            ROTARY | {"positional.decoder": "rotary"},
            {"positional.encoder.theta": 7, "positional.decoder.theta": 10000},
        ),
        (
            {"data": {"size": 100}, "data.dataset": "tatoeba"},
            {"data.size": None, "data.pair": "eng-spa"},
        ),
        (
            {"data": {"dataset": "toy-grammar", "size": 100, "limit": 50}},
            {"data.size": 100, "data.limit": 50},
        ),
        (
            {"model": {"layers": 3, "decoder_layers": 1}},
            {"model.encoder_layers": 3, "model.decoder_layers": 1},
        ),
        (
            {"model": {"dropout": 0.2, "dropout_ffn": 0}},
            {"model.dropout_ffn": 0, "model.dropout_residual": 0.2},
        ),
        ({"model": {"norm": "post"}}, {"model.final_norm": False}),
        ({"model": {"mask_value": -1e9}}, {"model.mask_value": "-1e9"}),
        (STOPPING, {"train.early_stopping": {"metric": "valid/loss", "patience": 2}}),
        (STOPPING | {"train.early_stopping": None}, {"train.early_stopping": None}),
        ({"train": {"epochs": 2}, "train.steps": 9}, {"train.steps": 9, "train.epochs": None}),
        ({"train": {"epochs": 2}, "train.steps": None}, {"train.steps": None, "train.epochs": 2}),
        (
            {"train": {"epochs": 1, "batch_tokens": 8}, "train.batch_size": 8},
            {"train.batch_size": 8},
        ),
        (
            {"train": {"epochs": 1, "batch_size": 8}, "train.batch_tokens": 9},
            {"train.batch_size": None},
        ),
    ],
)
def test_later_values_override_and_defaults_follow(resolved, raw, values):
    config = resolved(**raw)
    assert {path: value_at(config, tuple(path.split("."))) for path in values} == values


@pytest.mark.usefixtures("own_registry")
def test_base_overrides_the_recipe():
    config = {
        "model": {"d_model": 8, "heads": 4, "encoder_layers": 6, "decoder_layers": 5},
        "positional": "rotary",
        "train": {"steps": 3},
    }
    small = type("Small", (Recipe,), {"config": config})
    register(plugin_of(recipe={"small": small}))
    config = resolve({"recipe": "small", "model": {"heads": 2, "layers": 3}})
    assert (config.model.d_model, config.model.heads) == (8, 2)
    assert (config.model.encoder_layers, config.model.decoder_layers) == (3, 3)
    assert names(config.positional) == ["rotary", "rotary", "none"]
    assert config.train.steps == 3


@pytest.mark.usefixtures("own_registry")
def test_an_error_in_a_recipe_names_the_recipe():
    broken = type("Broken", (Recipe,), {"config": {"model": {"d_modle": 8}}})
    register(plugin_of(recipe={"broken": broken}))
    message = "recipe 'broken': model.d_modle: unknown field 'd_modle'; did you mean 'd_model'?"
    assert refused(resolve, {"recipe": "broken"}) == message


@pytest.mark.parametrize(
    ("raw", "location", "word"),
    [
        ({"positional": "rotery"}, "positional:", "did you mean 'rotary'"),
        ({"positional": {"name": "rotary", "thta": 3}}, "positional.thta:", "did you mean 'theta'"),
        (
            {"positional": {"name": "rotary", "theta": "big"}},
            "positional.theta:",
            "expected a valid number, got 'big'",
        ),
        ({"positional.encoder.theta": 3}, "positional.encoder.theta:", "unknown field 'theta'"),
        ({"positional": {"encoder": None}}, "positional.encoder:", "expected a name, or a"),
        ({"model": {"d_model": "abc"}}, "model.d_model:", "expected a valid integer, got"),
        ({"data": {"seed": "per-run"}}, "data.seed:", "expected a valid integer, got 'per-run'"),
        ({"model": {"dropout": 1.0}}, "model.dropout:", "must be less than 1,"),
        (
            {"model": {"layers": [1, 2]}},
            "model.layers:",
            "type design: [{product: {model.layers: [...]}}]",
        ),
        (
            {"model": {"dropout_ffn": 0}, "model.dropout": 0.2},
            "model.dropout would override model.dropout_ffn;",
            "",
        ),
        ({"model": {"layers": 3}, "model.layers": 1}, "model.layers is given twice; keep one", ""),
        (
            {"data": {"dataset": "copy", "seed": 2, "options": {"seed": 3}}},
            "data.seed is given twice",
            "",
        ),
        (
            {"data": {"dataset": "mqar", "test_levels": ["64x4"]}},
            "data.test_levels:",
            "no effect with split: iid; set",
        ),
        (
            {"data": {"dataset": "copy", "test_lengths": [1, 4]}},
            "data.test_lengths:",
            "set data.split: length",
        ),
        (
            {"data.longest_train": 9},
            "data.longest_train:",
            "longest_train has no effect with split: iid",
        ),
        (
            {"data.vocabulary.special_tokens.pad": "x"},
            "data.vocabulary.special",
            "requires data.vocabulary.file",
        ),
        ({"model.d_model.x": 3}, "model.d_model.x:", "expected a valid integer"),
        ({"train": {"betas": [0.9]}}, "train.betas:", "item 1 is missing"),
        ({"train": {"epochs": 1, "steps": 2}}, "train:", "epochs and steps are both"),
        ({"train": {}}, "train:", "give epochs, steps or tokens"),
        (
            {"train": {"epochs": 1, "early_stopping": {"metric": "val_loss"}}},
            "train.early_stopping.metric:",
            "did you mean 'valid/loss'",
        ),
        (
            {"train": {"epochs": 1, "early_stopping": 5}},
            "train.early_stopping:",
            "expected a mapping, got 5",
        ),
        (
            {"model": {"tie_embeddings": "all"}},
            "model.tie_embeddings:",
            "tie_embeddings 'all' requires one vocabulary",
        ),
        ({"data": {"limt": 3}, "data.dataset": "addition"}, "data.limt:", "unknown field 'limt'"),
        ({"data": {"test": 10.5}}, "data.test:", "expected a fraction below 1"),
    ],
)
def test_every_wrong_value_is_one_line_with_its_field(raw, location, word):
    message = failure(**raw)
    assert message.startswith(location)
    assert word in message


def test_options_of_a_dataset_can_be_a_mapping_and_a_later_mapping_replaces_it():
    data = {"dataset": "tatoeba", "sha256": {"eng_sentences.tsv.bz2": "a" * 64}}
    assert resolve(TRAIN | {"data": data}).data.options.sha256 == data["sha256"]
    later = TRAIN | {"data": data, "data.sha256": {"spa_sentences.tsv.bz2": "b" * 64}}
    assert resolve(later).data.options.sha256 == {"spa_sentences.tsv.bz2": "b" * 64}
    assert (
        resolve(TRAIN | {"data": {"dataset": "copy", "options": {"seed": 2}}}).data.options.seed
        == 2
    )
