"""The fields of the recipes, compared with a table of the notebooks."""

import pytest

from headtohead.config.builder import resolve
from headtohead.plugins.registry import current

NAMES = ("scratch-en-fr", "architecture-en-de", "tatoeba-en-es", "slides-en-fr", "by-hand-en-fr")

TABLE = {
    "data.dataset": ("notebook-en-fr", "notebook-en-de", "tatoeba", "notebook-slides", "notebook-by-hand"),
    "data.options.pair": (None, None, "eng-spa", None, None),
    "data.normalise": ("none", "none", "ascii-fold", "none", "none"),
    "data.split": ("nothing-held-out",) * 5,
    "data.vocabulary.ids": ("printed", "frequency", "frequency", "printed", "printed"),
    "data.vocabulary.unknown": ("drop", "refuse", "token", "refuse", "drop"),
    "data.vocabulary.min_count": (1, 1, 1, 1, 1),
    "data.vocabulary.max_size": (None,) * 5,
    "data.source_boundaries": ("eos", "none", "sos-eos", "none", "none"),
    "data.target_boundaries": ("sos-eos", "none", "sos-eos", "none", "sos-eos"),
    "quirks.pad_to": ("corpus", 100, "batch", "batch", "batch"),
    "data.truncate_tokens": (None, 100, 128, None, None),
    "model.embedding_scale": ("one", "one", "sqrt-d_model", "one", "one"),
    "model.init": ("torch",) * 5,
    "positional.encoder.name": ("sinusoidal", "sinusoidal", "sinusoidal-by-row", "sinusoidal", "sinusoidal"),
    "positional.decoder.name": ("sinusoidal", "sinusoidal", "sinusoidal-by-row", "sinusoidal", "sinusoidal"),
    "positional.cross.name": ("none",) * 5,
    "positional.encoder.options.max_len": (None, None, 128, None, None),
    "model.dropout_embedding": (0.1, 0.1, 0.0, 0.0, 0.0),
    "attention.encoder.name": ("split-heads",) * 5,
    "attention.decoder.name": ("split-heads",) * 4 + ("embedding-softmax",),
    "attention.cross.name": ("split-heads",) * 5,
    "model.dropout_attention": (0.0, 0.1, 0.0, 0.0, 0.0),
    "model.d_model": (10, 512, 512, 128, 6),
    "model.heads": (1, 8, 8, 8, 2),
    "model.encoder_layers": (1, 6, 6, 2, 1),
    "model.decoder_layers": (1, 6, 6, 2, 1),
    "model.d_ff": (4 * 10, 2048, 2048, 512, 4 * 6),
    "model.bias": (True,) * 5,
    "model.dropout_ffn": (0.0, 0.1, 0.0, 0.0, 0.0),
    "quirks.shared_modules": ((), (), (), (), ("norm", "feed-forward")),
    "quirks.decoder_feed_forward": ("after-cross",) * 4 + ("after-each",),
    "model.dropout_residual": (0.1, 0.1, 0.1, 0.0, 0.0),
    "model.norm": ("post",) * 5,
    "model.final_norm": (False, False, True, False, False),
    "model.norm_eps": (1e-5,) * 5,
    "masking.encoder.name": ("padding", "padding", "padding", "none", "none"),
    "masking.decoder.name": ("padding-causal",) * 3 + ("causal", "causal"),
    "masking.cross.name": ("padding", "padding", "padding", "none", "none"),
    "quirks.cross_attention_memory": ("encoder", "encoder", "encoder", "decoder", "encoder"),
    "model.mask_value": ("-1e9", "-inf", "-1e9", "-inf", "-1e9"),
    "quirks.min_vocab_size": (5000, None, None, None, None),
    "model.tie_embeddings": ("none", "none", "none", "embeddings", "none"),
    "data.vocabulary.shared": (False,) * 5,
    "quirks.shift_targets": (True, True, True, True, False),
    "train.label_smoothing": (0.0,) * 5,
    "train.optimizer": ("adam", "adam", "adam", "any", "adam"),
    "train.lr": (1e-3, 1e-4, 1e-4, "any", 1e-3),
    "train.betas": ((0.9, 0.98), (0.9, 0.98), (0.9, 0.999), "any", (0.9, 0.999)),
    "train.eps": (1e-9, 1e-9, 1e-8, "any", 1e-8),
    "train.weight_decay": (0.0, 0.0, 0.0, "any", 0.0),
    "train.schedule": ("constant", "constant", "constant", "any", "constant"),
    "train.warmup_steps": (0, 0, 0, "any", 0),
    "train.clip_norm": (None, None, None, "any", None),
    "quirks.trainable": (None, None, None, None, ("feed-forward", "cross-attention", "lm-head")),
    "train.epochs": (1, 10, 10, 0, None),
    "train.steps": (None, None, None, None, 1),
    "train.batch_size": (20, 32, 64, 1, 1),
    "evaluate.decode": ("greedy", "none", "greedy", "non-autoregressive", "teacher-forced"),
    "evaluate.max_length": (5, "any", 128, "any", "any"),
}
"""Values of notebooks 1 to 5 by field; notebook 4 does not train."""


@pytest.fixture(scope="module")
def resolved():
    return {name: resolve({"recipe": name}, current()) for name in NAMES}


def value(config, path):
    for part in path.split("."):
        config = config.get(part) if isinstance(config, dict) else getattr(config, part, None)
    return config


@pytest.mark.parametrize("index", range(5), ids=NAMES)
def test_a_recipe_has_the_values_of_its_notebook(index, resolved):
    found = {path: value(resolved[NAMES[index]], path) for path in TABLE}
    assert found == {path: found[path] if row[index] == "any" else row[index] for path, row in TABLE.items()}


def test_every_field_of_a_recipe_is_in_the_table(resolved):
    summarised = {"model.layers", "model.dropout", "data.pair", "positional.name", "positional.max_len"}
    for name in NAMES:
        for path in current().recipe(name).values():
            assert {path, f"{path}.name", f"{path}.encoder.name"} & (set(TABLE) | summarised), f"{name}: {path}"
