"""Files that cannot be imported: one line each, which says what is wrong and what to do."""

import pickle
import re
from collections import OrderedDict

import pytest
import torch

import headtohead
from headtohead import Checkpoint, HeadToHeadError, Recipe, Tensors
from headtohead.plugins.registry import current

SAVE = "save the weights alone, with torch.save(model.state_dict(), 'weights.pt')"


class Harmful:
    """What a pickle may hold: a call of any function."""

    def __reduce__(self):
        return print, ("PICKLE WAS RUN",)


@pytest.fixture
def refused(tmp_path):
    """Import in this process what must be refused, and return the message."""

    def run(file, recipe="scratch-en-fr", **options):
        with pytest.raises(HeadToHeadError) as caught:
            headtohead.import_checkpoint(
                file, recipe=recipe, name=options.pop("name", "run"), runs=tmp_path / "runs", **options
            )
        assert "\n" not in str(caught.value)
        assert not list((tmp_path / "runs").rglob("run.json"))
        return str(caught.value)

    return run


def test_a_pickle_is_refused_and_not_run(h2h, tmp_path):
    for name, content in (("object", Harmful()), ("inside", {"fc.weight": Harmful()})):
        file = tmp_path / f"{name}.pt"
        torch.save(content, file)
        code, out, err = h2h("import", file, "--recipe", "scratch-en-fr", "--name", "bad")
        assert (code, out) == (2, "")
        assert err == (
            f"h2h: '{file}' holds a pickled 'print', which is not loaded because it could run code; {SAVE}\n"
        )
        assert not (tmp_path / "runs").exists()


def test_a_whole_model_is_refused_by_its_class(refused, notebooks, tmp_path):
    torch.save(notebooks.Scratch(), tmp_path / "model.pt")
    assert "holds a pickled 'headtohead_test_notebooks.Scratch'" in refused(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([1.0, 2.0], "holds a list, no state dict"),
        (torch.ones(2), "holds a Tensor, no state dict"),
        ({}, "holds an empty state dict"),
        (
            {"epoch": 3, "model": {"fc.weight": torch.ones(2)}},
            "is no state dict: its entry 'epoch' is of type int, not a tensor",
        ),
        (
            OrderedDict({"model": OrderedDict({"fc.weight": torch.ones(2)})}),
            "is no state dict: its entry 'model' is of type OrderedDict, not a tensor",
        ),
        ({3: torch.ones(2)}, "is no state dict: its entry 3 is of type Tensor, not a tensor"),
    ],
)
def test_what_is_no_state_dict_is_named(content, message, refused, tmp_path):
    file = tmp_path / "file.pt"
    torch.save(content, file)
    assert refused(file) == f"'{file}' {message}; {SAVE}"


DAMAGES = {
    "empty": lambda raw: b"",
    "cut": lambda raw: raw[: len(raw) // 2],
    "text": lambda raw: b"these are no weights\n" * 50,
    "a pickle of its own": lambda raw: pickle.dumps({"fc.weight": [1.0]}),
    "changed inside": lambda raw: raw[: len(raw) // 2] + b"\xff" * 40 + raw[len(raw) // 2 + 40 :],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_file_is_refused(damage, refused, saved, notebooks):
    file = saved(notebooks.Scratch())
    file.write_bytes(DAMAGES[damage](file.read_bytes()))
    assert refused(file).startswith(f"checkpoint '{file}' is damaged")


def test_a_file_that_is_not_there_or_is_a_folder_is_named(refused, tmp_path):
    assert refused(tmp_path / "no.pt") == f"checkpoint '{tmp_path / 'no.pt'}' does not exist"
    assert refused(tmp_path) == f"checkpoint '{tmp_path}' is a folder"


def test_files_of_the_older_format_are_read(notebooks, tmp_path):
    file = tmp_path / "old.pt"
    torch.save(notebooks.Scratch().state_dict(), file, _use_new_zipfile_serialization=False)
    path = headtohead.import_checkpoint(file, recipe="scratch-en-fr", name="old", runs=tmp_path / "runs")
    assert headtohead.load(path).config.model.d_model == 10


@pytest.fixture
def altered(tmp_path):
    """Save a model's state dict after a change of it."""

    def save(model, change):
        state = OrderedDict(model.state_dict())
        change(state)
        torch.save(state, tmp_path / "altered.pt")
        return tmp_path / "altered.pt"

    return save


def test_missing_extra_and_wrong_tensors_are_named(refused, altered, notebooks):
    def change(state):
        del state["encoder_layers.1.self_attn.W_k.bias"]
        state["pooler.weight"] = torch.ones(2)
        state["decoder_layers.0.norm2.weight"] = torch.ones(11)
        state["fc.bias"] = torch.ones(40).long()

    file = altered(notebooks.Scratch(layers=2), change)
    assert refused(file) == (
        f"'{file}' does not fit recipe 'scratch-en-fr' (split heads): "
        "missing: encoder_layers.1.self_attn.W_k.bias; unknown: pooler.weight; "
        "wrong shape: decoder_layers.0.norm2.weight [11] for [10], fc.bias of int64; "
        "no other recipe fits it either"
    )


def test_a_tensor_with_a_dimension_too_many_is_wrong(refused, altered, notebooks):
    def change(state):
        state["fc.weight"] = state["fc.weight"][None]

    file = altered(notebooks.Scratch(words=(40, 41)), change)
    assert "wrong shape: fc.weight [1, 41, 10] for [41, 10];" in refused(file)


def test_a_layer_that_is_left_out_is_missed(refused, altered, notebooks):
    def change(state):
        for name in [name for name in state if name.startswith("decoder_layers.1.")]:
            del state[name]

    message = refused(altered(notebooks.Scratch(layers=3), change))
    assert "missing: decoder_layers.1." in message
    assert "unknown: decoder_layers.2." in message


def test_a_number_of_a_layer_that_no_file_has_is_no_trap(refused, altered, notebooks):
    def change(state):
        state["encoder_layers.4000000000.norm1.weight"] = torch.ones(10)

    assert "unknown: encoder_layers.4000000000.norm1.weight" in refused(altered(notebooks.Scratch(), change))


def test_long_lists_are_cut(refused, altered, notebooks):
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
        "no checkpoint of 'by-hand-en-fr' can be imported: its notebook has no model class, so no "
        "state dict of it can be saved"
    )


def test_an_unknown_recipe_gets_the_nearest(refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), "tatoeba-en-sp") == (
        "unknown recipe 'tatoeba-en-sp'; did you mean 'tatoeba-en-es'?"
    )


def test_heads_that_do_not_divide_the_width_are_asked_for(refused, saved, notebooks):
    file = saved(notebooks.Tatoeba(width=12, heads=4))
    assert refused(file, "tatoeba-en-es") == (
        "split-heads needs d_model to be a multiple of heads, got 12 and 8; a checkpoint does not "
        "show its heads, type --set model.heads=N"
    )


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("model.d_model=20", "'source_embedding.weight' is [40, 10] in the checkpoint, [40, 20] in the configuration"),
        ("model.final_norm=true", "the configuration has 'encoder_norm.weight', which the checkpoint lacks"),
        (
            "model.tie_embeddings=output",
            "the checkpoint has 'lm_head.weight', which the configuration has no place for",
        ),
    ],
)
def test_a_setting_that_the_weights_contradict_is_refused(override, message, refused, saved, notebooks):
    file = saved(notebooks.Scratch())
    assert refused(file, overrides=[override]) == (f"'{file}' does not fit what --set asks for: {message}")


def test_a_misspelt_setting_gets_the_nearest(refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), overrides=["model.hedas=2"]) == (
        "--set model.hedas=2: unknown field 'hedas'; did you mean 'heads'?"
    )


@pytest.mark.parametrize("name", ["a/b", "", ".hidden", "..", "two words"])
def test_a_name_that_is_no_folders_is_refused(name, refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), name=name).startswith(f"'{name}' cannot name a run;")


def test_data_of_a_recipe_that_brings_its_own_is_refused(refused, saved, notebooks, tmp_path):
    assert refused(saved(notebooks.Scratch()), data=tmp_path / "x.tsv") == (
        "recipe 'scratch-en-fr' brings its sentences with it; leave out --data"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\tHello\t2\tHola\n",
            "file '{}' has 5 source and 5 target words, the checkpoint 50 and 60: it was trained on another file",
        ),
        ("1\tHello\t2\tHola\n3\tBye\n", "file '{}': line 2 has 2 columns; expected id, text, id and text"),
        ("", "file '{}' is empty"),
    ],
)
def test_data_that_cannot_be_the_notebooks_is_refused(text, message, refused, saved, notebooks, tmp_path):
    file = tmp_path / "pairs.tsv"
    file.write_text(text, encoding="utf-8")
    found = refused(saved(notebooks.Tatoeba()), "tatoeba-en-es", data=file)
    assert found == message.format(file)


def test_data_that_does_not_exist_is_named(refused, saved, notebooks, tmp_path):
    missing = tmp_path / "no.tsv"
    assert refused(saved(notebooks.Tatoeba()), "tatoeba-en-es", data=missing) == (f"file '{missing}' does not exist")


class Outside(Recipe):
    """A recipe of somebody else, with names that no other has."""

    config = current().recipe("scratch-en-fr").config
    checkpoints = (Checkpoint("mine", (Tensors("table", "embedding", "embedding", "words d_model"),)),)


def test_a_recipe_that_forgets_parts_of_the_model_is_refused_by_name(refused, tmp_path, monkeypatch):
    registry = current()
    entry = type(registry.find("recipe", "scratch-en-fr"))("recipe", "outside", Outside, "tests", "tests", "0", "0")
    monkeypatch.setitem(registry.entries["recipe"], "outside", entry)
    torch.save({"table.weight": torch.ones(7, 10)}, tmp_path / "table.pt")
    message = refused(tmp_path / "table.pt", "outside")
    assert "the configuration has 'encoder.0.attention" in message
