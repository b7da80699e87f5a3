"""Logits of imported checkpoints, compared with the models of the notebooks in plain torch."""

from itertools import product

import pytest
import torch

import headtohead
from headtohead import HeadToHeadError
from made import case_table

FORMS = {
    "1 split": (
        "scratch-en-fr",
        "Scratch",
        {"words": (45, 53), "width": 12, "heads": 3, "layers": 2},
    ),
    "1 independent": (
        "scratch-en-fr",
        "Scratch",
        {"words": (45, 53), "heads": 2, "style": "IndependentHeads"},
    ),
    "2 sinusoidal": ("architecture-en-de", "Architecture", {}),
    "2 learned": ("architecture-en-de", "Architecture", {"learned": True, "layers": 3}),
    "3": ("tatoeba-en-es", "Tatoeba", {"width": 24, "words": (11, 13)}),
    "4": ("slides-en-fr", "Slides", {"words": 9, "width": 72, "inner": 48, "layers": (1, 3)}),
}

EXACT = {torch.float32: 1e-4, torch.float64: 1e-9}


def build(notebooks, form, seed=0, **changes):
    recipe, name, sizes = FORMS[form]
    sizes = dict(sizes) | changes
    if isinstance(sizes.get("style"), str):
        sizes["style"] = getattr(notebooks, sizes["style"])
    torch.manual_seed(seed)
    model = getattr(notebooks, name)(**sizes).eval()
    with torch.no_grad():  # freshly initialised LayerNorms are all equal
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    heads = sizes.get("heads", {"Scratch": 1}.get(name, 8))
    return recipe, model, f"model.heads={heads}"


def ids(words, rows, time, seed, dead=False):
    """Return ids with padding inside and on the right, and optionally a row of padding only."""
    chosen = torch.randint(
        0, min(words, 30), (rows, time), generator=torch.Generator().manual_seed(seed)
    )
    chosen[chosen == 3] = 0
    chosen[:, 0] = 1
    chosen[0, time // 2 :] = 0
    if dead:
        chosen[1] = 0
        chosen[2, 0] = 0
    return chosen


def batch(model, form, seed=0, rows=5, time=5):
    dead = not form.startswith("2")  # notebook 2 computes NaN for a row whose keys are all masked
    tables = ("embedding",) * 2 if form == "4" else ("encoder_embedding", "decoder_embedding")
    first, second = (getattr(model, name).num_embeddings for name in tables)
    return ids(first, rows, time, seed, dead), ids(second, rows, time - 1, seed + 1, dead)


def assert_equal(logits, expected):
    assert logits.dtype == expected.dtype
    torch.testing.assert_close(logits, expected, rtol=0, atol=EXACT[expected.dtype])


@case_table(("form", "dtype"), product(FORMS, EXACT), default=4)
def test_logits_of_an_imported_checkpoint_equal_the_notebooks(
    form, dtype, notebooks, saved, h2h, tmp_path
):
    recipe, model, heads = build(notebooks, form)
    model = model.to(dtype)
    code, out, err = h2h(
        "import-checkpoint", saved(model), "--recipe", recipe, "--name", "mine", "--set", heads
    )
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == "runs/imported/mine"
    source, target = batch(model, form)
    with torch.no_grad():
        expected = model(source, target)
    assert_equal(headtohead.load(tmp_path / "runs/imported/mine").logits(source, target), expected)


def test_the_number_of_split_heads_comes_from_the_recipe_unless_set(notebooks, imported):
    recipe, model, _ = build(notebooks, "3", heads=4)
    source, target = batch(model, "3")
    with torch.no_grad():
        expected = model(source, target)
    assert_equal(imported(recipe, model, "model.heads=4").logits(source, target), expected)
    by_recipe = imported(recipe, model)
    assert by_recipe.config.model.heads == 8
    assert float((by_recipe.logits(source, target) - expected).abs().max()) > 1e-3


@pytest.mark.slow
def test_a_sentence_of_notebook_3_depends_on_its_row(notebooks, imported):
    recipe, model, _ = build(notebooks, "3")
    loaded = imported(recipe, model)
    source, target = (ids[3:4].expand(128, -1) for ids in batch(model, "3"))
    with torch.no_grad():
        expected = model(source, target)
    logits = loaded.logits(source, target)
    assert_equal(logits, expected)
    assert float((logits[0] - logits[100]).abs().max()) > 1e-2
    assert_equal(loaded.logits(source[:1], target[:1]), expected[:1])


def test_masking_none_gives_notebook_4_without_the_mask_of_its_translate(notebooks, imported):
    recipe, model, heads = build(notebooks, "4", causal=False)
    source, target = batch(model, "4")
    with torch.no_grad():
        expected = model(source, target)
    assert_equal(imported(recipe, model, heads, "masking=none").logits(source, target), expected)
    assert float((imported(recipe, model, heads).logits(source, target) - expected).abs().max()) > 0


def test_the_stored_positional_table_decides_the_arithmetic(notebooks, imported, saved, tmp_path):
    recipe, model, heads = build(notebooks, "2 sinusoidal", width=18, heads=2)
    assert imported(recipe, model, heads).config.positional.encoder.options.arithmetic == "single"
    exact = [[p / 10000 ** (2 * (i // 2) / 18) for i in range(18)] for p in range(120)]
    angles = torch.tensor(exact, dtype=torch.float64)
    even = torch.arange(18) % 2 == 0
    model = model.double()
    model.positional_encoding.pe = torch.where(even, angles.sin(), angles.cos())[None]
    loaded = imported(recipe, model, heads)
    assert loaded.config.positional.encoder.options.arithmetic == "exact"
    source, target = batch(model, "2 sinusoidal")
    with torch.no_grad():
        assert_equal(loaded.logits(source, target), model(source, target))
    model.positional_encoding.pe += 0.5
    with pytest.raises(HeadToHeadError, match=r"'positional_encoding.pe' .* differ by 0.5"):
        imported(recipe, model, heads)
