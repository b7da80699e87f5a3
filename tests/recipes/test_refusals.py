"""Files that cannot be imported: the error is one line with the problem and the next step."""

import pickle

import pytest
import torch

from headtohead.plugin import HeadToHeadError
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
            import_checkpoint(
                file,
                recipe=recipe,
                name=options.pop("name", "run"),
                runs=tmp_path / "runs",
                **options,
            )
        assert "\n" not in str(caught.value)
        assert not list((tmp_path / "runs").rglob("run.json"))
        return str(caught.value)

    return run


def test_a_pickle_is_refused_and_not_executed(h2h, tmp_path):
    for name, content in (("object", Harmful()), ("inside", {"fc.weight": Harmful()})):
        file = tmp_path / f"{name}.pt"
        torch.save(content, file)
        code, out, err = h2h(
            "import-checkpoint", file, "--recipe", "scratch-en-fr", "--name", "bad"
        )
        assert (code, out) == (2, "")
        assert err == (
            f"h2h: '{file}' contains a pickled 'print', which is not loaded because it could run code; {SAVE}\n"
        )
        assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "content", [[1.0], {}, {"epoch": 3, "model": {"fc.weight": torch.ones(2)}}]
)
def test_a_file_without_a_state_dict_is_refused(content, refused, tmp_path):
    file = tmp_path / "file.pt"
    torch.save(content, file)
    assert (
        refused(file) == f"'{file}' does not contain tensors by name, as a state dict does; {SAVE}"
    )


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


MISSING = "encoder_layers.1.self_attn.W_k.bias"
WRONG = {
    MISSING: torch.ones(9),
    "decoder_layers.0.norm2.weight": torch.ones(11),
    "fc.bias": torch.ones(40).long(),
}


@pytest.mark.parametrize(
    ("left_out", "changes", "message"),
    [
        (
            {MISSING},
            {"pooler.weight": torch.ones(2)},
            f" (split heads): missing: {MISSING}; unknown: pooler.weight; name the recipe of its notebook",
        ),
        (
            {},
            WRONG,
            f": wrong shape: {MISSING} [9] instead of [10], decoder_layers.0.norm2.weight [11] instead of [10], "
            "fc.bias has type int64; import a file that the notebook's own classes saved",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_named(
    left_out, changes, message, refused, notebooks, tmp_path
):
    state = notebooks.Scratch(layers=2).state_dict() | changes
    file = tmp_path / "altered.pt"
    torch.save({name: tensor for name, tensor in state.items() if name not in left_out}, file)
    assert refused(file) == f"'{file}' does not fit recipe 'scratch-en-fr'{message}"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        (
            "model.d_ff=20",
            "wrong shape: encoder_layers.0.feed_forward.fc1.weight [40, 10] instead of [20, 10], ",
        ),
        (
            "model.final_norm=true",
            "the configuration has 'encoder_norm.weight', which the checkpoint lacks",
        ),
        (
            "model.tie_embeddings=output",
            "the checkpoint has 'fc.weight', which the configuration does not use",
        ),
    ],
)
def test_a_setting_that_the_weights_contradict_is_refused(
    override, message, refused, saved, notebooks
):
    file = saved(notebooks.Scratch())
    error = refused(file, overrides=[override])
    assert error.startswith(f"'{file}' does not fit recipe 'scratch-en-fr': {message}")
    assert error.endswith("; change or leave out --set")


@pytest.mark.parametrize("name", ["a/b", "", ".."])
def test_an_invalid_name_of_a_run_is_refused(name, refused, saved, notebooks):
    assert refused(saved(notebooks.Scratch()), name=name).startswith(
        f"'{name}' is not a valid name of a run;"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "1\tHello\t2\tHola\n",
            "file '{}' has 5 source and 5 target words, the checkpoint 50 and 60: it was trained on another file",
        ),
        (
            "1\tHello\t2\tHola\n3\tBye\n",
            "file '{}': line 2 has 2 columns, expected id, text, id and text",
        ),
        ("", "file '{}' is empty"),
    ],
)
def test_data_with_other_vocabulary_sizes_is_refused(
    text, message, refused, saved, notebooks, tmp_path
):
    file = tmp_path / "pairs.tsv"
    file.write_text(text, encoding="utf-8")
    error = refused(saved(notebooks.Tatoeba()), "tatoeba-en-es", data=file)
    assert error == message.format(file)
