"""``h2h trace`` of recipes at initialisation, of runs, and of checkpoints without vocabularies."""

import numpy as np
import pytest
import torch

import headtohead

SMALL = ["--set", "model.d_model=8", "--set", "model.heads=2", "--set", "model.d_ff=12"]
STUDY = """
question: Is it traced?
base:
  data: {dataset: toy-grammar, size: 60}
  model: {d_model: 8, heads: 2, layers: 1, d_ff: 8, dropout: 0}
  train: {steps: 3, batch_tokens: 128}
baseline: {positional: rotary}
seeds: 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, h2h_here):
    """A folder where a small study was run once."""
    folder = tmp_path_factory.mktemp("study")
    (folder / "traced.yaml").write_text(STUDY)
    done = h2h_here(folder, "run", "traced.yaml", "--no-tracking", H2H_CACHE=str(folder / "cache"))
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture
def h2h(folder, h2h_here):
    """Return a function that calls ``h2h trace`` there, and returns the exit code and what it printed."""

    def h2h(*arguments):
        done = h2h_here(folder, "trace", *map(str, arguments), H2H_CACHE=str(folder / "cache"))
        return done.returncode, done.stdout + done.stderr

    return h2h


def test_a_recipe_is_traced_at_initialisation(h2h):
    code, output = h2h("slides-en-fr", "I love AI .", *SMALL)
    lines = output.splitlines()
    assert code == 0
    assert lines[0] == "slides-en-fr, seed 1: at initialisation, not trained"
    assert lines[1:3] == [
        "source: I love AI .",
        "target: J' adore l'IA (its translation in the corpus)",
    ]
    assert any(
        line.startswith("pitfall: source ignored (quirks.notebooks.cross_attention_memory): ")
        for line in lines
    )
    start = lines.index("encoder.ids  [4]  the number of each token in the vocabulary")
    assert [line.split() for line in lines[start + 1 : start + 5]] == [
        ["I", "1"],
        ["love", "2"],
        ["AI", "3"],
        [".", "4"],
    ]
    assert "decoder.1.cross.head.1.weights  [3×3]" in output
    assert lines[-4].startswith("chosen  [3]  argmax(logits)")
    assert h2h("recipe/slides-en-fr", "I love AI .", *SMALL)[1] == output
    assert h2h("slides-en-fr", "I love AI .", *SMALL, "--seed", "2")[1] != output


def test_arrays_of_a_run_end_with_its_logits(h2h, folder):
    (path,) = (folder / "runs/traced").glob("*-s1-*")
    code, output = h2h(
        path.name, "the cat", "--target", "le chat", "--format", "npz", "--out", "a.npz"
    )
    assert (code, output) == (0, "a.npz\n")
    run = headtohead.load(path)
    source, target = run.data.tokenise("the cat", "source"), run.data.tokenise("le chat", "target")
    with np.load(folder / "a.npz") as arrays:
        expected = run.logits(torch.tensor([source]), torch.tensor([target[:-1]]))[0]
        np.testing.assert_allclose(arrays["logits"], expected, rtol=0, atol=1e-5)
        assert arrays["encoder.ids"].tolist() == source
        assert arrays["encoder.0.self.head.1.plain-keys"].shape == (len(source), 4)


def test_without_target_a_run_uses_the_corpus_or_its_own_translation(h2h, folder):
    (path,) = (folder / "runs/traced").glob("*-s1-*")
    run = headtohead.load(path)
    sentence = run.data.splits["train"].source_text[0]
    first = h2h(path, sentence, "--only", "chosen")[1].splitlines()
    assert first[0] == f"run {path.name}"
    target = run.data.splits["train"].target_text[0]
    assert first[2] == f"target: <sos> {target} (its translation in the corpus)"
    without_target = h2h(path, "zzz", "--only", "chosen")[1].splitlines()
    written = [
        run.data.target_vocabulary.label(i)
        for i in run.generate(run.data.tokenise("zzz", "source"))
    ]
    assert (
        without_target[2]
        == f"target: {' '.join(['<sos>', *written])} (the model's own translation)"
    )
    assert without_target[3] == "words of the source without an id become <unk>: 'zzz'"


@pytest.mark.parametrize(
    "arguments",
    [
        ["tatoeba-en-se", "x"],
        ["slides-en-fr", "I love AI .", "--only", "encoder.0.slef"],
        ["slides-en-fr", "I love AI .", "--format", "npz"],
        ["slides-en-fr", "I hate AI ."],
        ["by-hand-en-fr", "this is a fat cat", "--set", "model.d_model=8"],
        ["traced", "x", "--set", "model.d_model=8"],
    ],
)
def test_invalid_input_is_an_error_in_one_line(arguments, h2h):
    code, printed = h2h(*arguments)
    assert code == 2
    assert printed.startswith("h2h: ")
    assert printed.count("\n") == 1
