"""architecture-en-de: the notebook "Transformer Architecture".

50 English-German pairs without boundary tokens, padded to 100 tokens, in a model of the base size of
Vaswani et al. 2017. The notebook does not decode: without <sos> and <eos> generation has no start and
no end. Its two positional encodings are two forms of checkpoint.
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

TABLES = {"positional.arithmetic": ("single", "exact", "single-log")}

MODULES = layer_modules(
    "encoder_layers.{layer}",
    "decoder_layers.{layer}",
    ("self_attention", "self_attention", "cross_attention"),
    ("W_q", "W_k", "W_v", "W_o"),
    ("feed_forward", "linear1", "linear2"),
) | {"lm_head": "final_layer"}
EMBEDDINGS = {
    "source_embedding.weight": "encoder_embedding.weight",
    "target_embedding.weight": "decoder_embedding.weight",
}
TABLE = "positional_encoding.positional_embedding"
LEARNED = {"positionals.encoder.table": TABLE, "positionals.decoder.table": TABLE}
"""The notebook's one table becomes the table of each stack."""


class ArchitectureEnDe(NotebookRecipe):
    """Notebook 2: 50 English-German pairs, no boundary tokens, padded to 100, base size."""

    config: ClassVar[Mapping[str, Any]] = {
        "data": {
            "dataset": "notebook-en-de",
            "split": "nothing-held-out",
            "normalise": "none",
            "vocabulary": {"ids": "frequency", "unknown": "refuse"},
            "source_boundaries": "none",
            "target_boundaries": "none",
            "truncate_tokens": 100,
        },
        "positional": "sinusoidal",
        "attention": "split-heads",
        "masking": "padding-causal",
        "model": {
            **MODEL,
            "d_model": 512,
            "heads": 8,
            "layers": 6,
            "d_ff": 2048,
            "dropout": 0.1,
            "embedding_scale": "one",
            "mask_value": "-inf",
        },
        "train": {
            **TRAIN,
            "epochs": 10,
            "batch_size": 32,
            "pad_to": 100,
            "lr": 1e-4,
            "betas": [0.9, 0.98],
            "eps": 1e-9,
        },
        "evaluate": {"decode": "none"},
    }

    checkpoints = (
        Checkpoint(
            "sinusoidal positions",
            MODULES,
            EMBEDDINGS,
            positions="positional_encoding.pe",
            positions_computed=TABLES,
        ),
        Checkpoint(
            "learned positions",
            MODULES,
            {**EMBEDDINGS, **LEARNED},
            {"positional": {"name": "learned", "std": 1.0}},
            positions=TABLE,
            positions_field="positional.max_length",
        ),
    )
