"""scratch-en-fr: the notebook "Understanding and Implementing Transformers from Scratch".

The recipe is the notebook's complete source code: 20 English-French pairs with given ids, one layer,
one head, d_model 10, trained for one epoch. Its two attention styles are two forms of checkpoint: the
split heads of the source code, and the independent heads that the text describes.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead_notebooks.recipes.notebook_recipe import (
    MODEL,
    TRAIN,
    Checkpoint,
    NotebookRecipe,
    layer_modules,
)


class ScratchEnFr(NotebookRecipe):
    """Notebook 1: 20 English-French pairs, one layer of one head, one epoch."""

    config: ClassVar[Mapping[str, Any]] = {
        "data": {
            "dataset": "notebook-en-fr",
            "split": "nothing-held-out",
            "normalise": "none",
            "vocabulary": {"ids": "printed", "unknown": "drop"},
            "source_boundaries": "eos",
            "target_boundaries": "sos-eos",
        },
        "positional": "sinusoidal",
        "attention": "split-heads",
        "masking": "padding-causal",
        "model": {
            **MODEL,
            "d_model": 10,
            "heads": 1,
            "layers": 1,
            "d_ff": 40,
            "dropout": 0.1,
            "dropout_attention": 0.0,
            "dropout_ffn": 0.0,
            "embedding_scale": "one",
            "mask_value": "-1e9",
            "min_vocab_size": 5000,
        },
        "train": {
            **TRAIN,
            "epochs": 1,
            "batch_size": 20,
            "pad_to": "corpus",
            "lr": 1e-3,
            "betas": [0.9, 0.98],
            "eps": 1e-9,
        },
        "evaluate": {"decode": "greedy", "max_length": 5},
    }

    # The table has one position per token of the longest sentence; the notebook decodes as many tokens.
    checkpoints = tuple(
        Checkpoint(
            name,
            layer_modules(
                "encoder_layers.{layer}",
                "decoder_layers.{layer}",
                ("self_attn", "self_attn", "cross_attn"),
                (*(f"W_{part}{head}" for part in "qkv"), "W_o"),
                ("feed_forward", "fc1", "fc2"),
            )
            | {"lm_head": "fc"},
            {
                "source_embedding.weight": "encoder_embedding.weight",
                "target_embedding.weight": "decoder_embedding.weight",
            },
            {"attention": attention},
            positions="positional_encoding.pe",
            positions_field="evaluate.max_length",
            positions_computed={"positional.arithmetic": ("single", "exact", "single-log")},
        )
        for name, head, attention in (
            ("split heads", "", "split-heads"),
            ("independent heads", ".{head}", "independent-heads"),
        )
    )
