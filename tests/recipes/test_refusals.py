"""Files that cannot be imported: the error is one line with the problem and the next step."""

import pickle
import re
from collections import OrderedDict

import pytest
import torch

import headtohead
from headtohead.plugin import Checkpoint, HeadToHeadError, Recipe
from headtohead.plugins.registry import current
from headtohead_notebooks import import_checkpoint

SAVE = "save the weights only, with torch.save(model.state_dict(), 'weights.pt')"


class Harmful:
    """A pickled object that calls a function when it is loaded."""

    def __reduce__(self):
        return print, ("PICKLE WAS RUN",)


@pytest.fixture
def refused(tmp_path):
    """Import a file that must be refused, and return the error message."""

    def run(file, recipe="scratch-en-fr", **options):
        with pytest.raises(HeadToHeadError) as caught:
            import_checkpoint(file, recipe=recipe, name=options.pop("name", "run"), runs=tmp_path / "runs", **options)
        assert "\n" not in str(caught.value)
        assert not list((tmp_path / "runs").rglob("run.json"))
        return str(caught.value)

    return run


def test_a_pickle_is_refused_and_not_executed(h2h, tmp_path):
    for name, content in (("object", Harmful()), ("inside", {"fc.weight": Harmful()})):
        file = tmp_path / f"{name}.pt"
        torch.save(content, file)
        code, out, err = h2h("import-checkpoint", file, "--recipe", "scratch-en-fr", "--name", "bad")
        assert (code, out) == (2, "")
        assert err == (
            f"h2h: '{file}' contains a pickled 'print', which is not loaded because it could run code; {SAVE}\n"
        )
        assert not (tmp_path / "runs").exists()


def test_a_whole_model_is_refused_by_its_class(refused, notebooks, tmp_path):
    torch.save(notebooks.Scratch(), tmp_path / "model.pt")
    assert "contains a pickled 'headtohead_test_notebooks.Scratch'" in refused(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1.0, 2.0], "contains a list instead of a state dict"),
        (torch.ones(2), "contains a Tensor instead of a state dict"),
        ({}, "contains an empty state dict"),
        ({"epoch": 3, "model": {"fc.weight": torch.ones(2)}}, "is not a state dict: entry 'epoch' has type int"),
        (
            OrderedDict({"model": OrderedDict({"fc.weight": torch.ones(2)})}),
            "is not a state dict: entry 'model' has type OrderedDict",
        ),
        ({3: torch.ones(2)}, "is not a state dict: entry 3 has a name that is not text"),
    ],
)
def test_a_file_without_a_state_dict_is_refused(content, message, refused, tmp_path):
    file = tmp_path / "file.pt"
    torch.save(content, file)
    assert refused(file) == f"'{file}' {message}; {SAVE}"


DAMAGES = {
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "text": lambda raw: b"not a checkpoint\n" * 50,
    "a pickle of its own": lambda raw: pickle.dumps({"fc.weight": [1.0]}),
    "changed inside": lambda raw: raw[: len(raw) // 2] + b"\xff" * 40 + raw[len(raw) // 2 + 40 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(damage, refused, saved, notebooks):
    file = saved(notebooks.Scratch())
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    assert refused(file).startswith(f"checkpoint '{file}' is damaged")


def test_a_missing_file_and_a_folder_are_named(refused, tmp_path):
    assert refused(tmp_path / "no.pt") == f"checkpoint '{tmp_path / 'no.pt'}' does not exist"
    assert refused(tmp_path) == f"checkpoint '{tmp_path}' is a folder"


def test_files_of_the_older_format_are_read(notebooks, tmp_path):
    file = tmp_path / "old.pt"
    torch.save(notebooks.Scratch().state_dict(), file, _use_new_zipfile_serialization=False)
    path = import_checkpoint(file, recipe="scratch-en-fr", name="old", runs=tmp_path / "runs")
    assert headtohead.load(path).config.model.d_model == 10


@pytest.fixture
def altered(tmp_path):
    """Save the state dict of a model after a change."""

    def save(model, change):
        state = OrderedDict(model.state_dict())
        change(state)
        torch.save(state, tmp_path / "altered.pt")
        return tmp_path / "altered.pt"

    return save


def test_missing_and_unknown_tensors_are_named(refused, altered, notebooks):
    def change(state):
        del state["encoder_layers.1.self_attn.W_k.bias"]
        state["pooler.weight"] = torch.ones(2)

    file = altered(notebooks.Scratch(layers=2), change)
    assert refused(file) == (
        f"'{file}' does not fit recipe 'scratch-en-fr' (split heads): "
        "missing: encoder_layers.1.self_attn.W_k.bias; unknown: pooler.weight; no other recipe fits it either"
    )


def test_tensors_of_a_wrong_shape_or_type_are_named(refused, altered, notebooks):
    def change(state):
        state["decoder_layers.0.norm2.weight"] = torch.ones(11)
        state["encoder_layers.1.self_attn.W_k.bias"] = torch.ones(9)
        state["fc.bias"] = torch.ones(40).long()

    file = altered(notebooks.Scratch(layers=2), change)
    assert refused(file) == (
        f"'{file}' does not fit recipe 'scratch-en-fr': wrong shape: encoder_layers.1.self_attn.W_k.bias [9] instead "
        "of [10], decoder_layers.0.norm2.weight [11] instead of [10], fc.bias has type int64; "
        "import a file that the notebook's own classes saved"
    )


def test_a_tensor_with_a_dimension_too_many_is_wrong(refused, altered, notebooks):
    def change(state):
        state["fc.weight"] = state["fc.weight"][None]

    file = altered(notebooks.Scratch(words=(40, 41)), change)
    assert "wrong shape: fc.weight [1, 41, 10] instead of [41, 10];" in refused(file)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("decoder_embedding.weight", "decoder_embedding.weight [40] instead of a matrix"),
        ("positional_encoding.pe", "positional_encoding.pe [40] instead of [..., positions, d_model]"),
    ],
)
def test_a_table_of_one_axis_is_wrong(name, message, refused, altered, notebooks):
    file = altered(notebooks.Scratch(), lambda state: state.update({name: torch.ones(40)}))
    assert f"wrong shape: {message};" in refused(file)


def test_a_missing_layer_is_named(refused, altered, notebooks):
    def change(state):
        for name in [name for name in state if name.startswith("decoder_layers.1.")]:
            del state[name]

    message = refused(altered(notebooks.Scratch(layers=3), change))
    assert "missing: decoder_layers.1." in message
    assert "unknown: decoder_layers.2." in message


def test_a_huge_layer_number_is_an_unknown_tensor(refused, altered, notebooks):
    def change(state):
        state["encoder_layers.4000000000.norm1.weight"] = torch.ones(10)

    assert "unknown: encoder_layers.4000000000.norm1.weight" in refused(altered(notebooks.Scratch(), change))


def test_long_lists_are_truncated(refused, altered, notebooks):
    file = altered(notebooks.Scratch(), lambda state: [state.pop(name) for name in list(state)[:9]])
    message = refused(file)
    assert re.search(r"missing: (\S+, ){4}\S+ and 4 more", message)


def test_the_recipe_that_would_fit_is_named(refused, notebooks, saved):
    models = {
        "scratch-en-fr": notebooks.Scratch(style=notebooks.IndependentHeads),
        "architecture-en-de": notebooks.Architecture(learned=True),
        "tatoeba-en-es": notebooks.Tatoeba(),
        "slides-en-fr": notebooks.Slides(),
    }
    for recipe, model in models.items():
        other = next(name for name in models if name != recipe)
        assert refused(saved(model), other).endswith(f"type --recipe {recipe}, which fits")


def test_notebook_5_has_no_checkpoint_and_says_why(refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), "by-hand-en-fr") == (
        "no checkpoint of 'by-hand-en-fr' can be imported: its notebook has no model class, so it "
        "cannot save a state dict"
    )


def test_an_unknown_recipe_gets_the_nearest(refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), "tatoeba-en-sp") == (
        "unknown recipe 'tatoeba-en-sp'; did you mean 'tatoeba-en-es'?"
    )


def test_the_error_for_heads_that_do_not_divide_d_model_names_the_option(refused, saved, notebooks):
    file = saved(notebooks.Tatoeba(width=12, heads=4))
    assert refused(file, "tatoeba-en-es") == (
        "split-heads needs d_model to be a multiple of heads, got 12 and 8; a checkpoint does not "
        "store the number of heads, type --set model.heads=N"
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_ff=20", "wrong shape: encoder_layers.0.feed_forward.fc1.weight [40, 10] instead of [20, 10], "),
        ("model.final_norm=true", "the configuration has 'encoder_norm.weight', which the checkpoint lacks"),
        ("model.tie_embeddings=output", "the checkpoint has 'fc.weight', which the configuration does not use"),
    ],
)
def test_a_setting_that_the_weights_contradict_is_refused(override, message, refused, saved, notebooks):
    file = saved(notebooks.Scratch())
    error = refused(file, overrides=[override])
    assert error.startswith(f"'{file}' does not fit recipe 'scratch-en-fr': {message}")
    assert error.endswith("; change or leave out --set")


def test_a_misspelt_setting_gets_the_nearest(refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), overrides=["model.hedas=2"]) == (
        "--set model.hedas=2: unknown field 'hedas'; did you mean 'heads'?"
    )


@pytest.mark.parametrize("name", ["a/b", "", ".hidden", "..", "two words"])
def test_an_invalid_name_of_a_run_is_refused(name, refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), name=name).startswith(f"'{name}' is not a valid name of a run;")


def test_data_for_a_recipe_with_its_own_sentences_is_refused(refused, saved, notebooks, tmp_path):
    assert refused(saved(notebooks.Scratch()), data=tmp_path / "x.tsv") == (
        "recipe 'scratch-en-fr' has its own sentences; leave out --data"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\tHello\t2\tHola\n",
            "file '{}' has 5 source and 5 target words, the checkpoint 50 and 60: it was trained on another file",
        ),
        ("1\tHello\t2\tHola\n3\tBye\n", "file '{}': line 2 has 2 columns, expected id, text, id and text"),
        ("", "file '{}' is empty"),
    ],
)
def test_data_with_other_vocabulary_sizes_is_refused(text, message, refused, saved, notebooks, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(text, encoding="utf-8")
    error = refused(saved(notebooks.Tatoeba()), "tatoeba-en-es", data=file)
    assert error == message.format(file)


def test_data_that_does_not_exist_is_named(refused, saved, notebooks, tmp_path):
    missing = tmp_path / "no.tsv"
    assert refused(saved(notebooks.Tatoeba()), "tatoeba-en-es", data=missing) == (f"file '{missing}' does not exist")


class Outside(Recipe):
    """A recipe of a plugin that maps only the target embedding."""

    config = current().recipe("scratch-en-fr").config
    checkpoints = (Checkpoint("mine", {}, {"target_embedding.weight": "table.weight"}),)


def test_a_recipe_that_omits_parts_of_the_model_is_refused(refused, tmp_path, monkeypatch):
    registry = current()
    entry = type(registry.find("recipe", "scratch-en-fr"))("recipe", "outside", Outside, "tests", "tests", "0", "0")
    monkeypatch.setitem(registry.entries["recipe"], "outside", entry)
    torch.save({"table.weight": torch.ones(7, 10)}, tmp_path / "table.pt")
    message = refused(tmp_path / "table.pt", "outside")
    assert "the configuration has 'source_embedding.weight', which the checkpoint lacks" in message
