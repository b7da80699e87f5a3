"""slides-en-fr: the slides "Neural Machine Translation Using Transformer".

One English-French pair; the model is never trained. The second attention of the decoder attends to
the decoder, so the output does not depend on the source. Both vocabularies have the same size. The
translation is a single forward pass on a target of zeros.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead_notebooks.recipes.notebook_recipe import (
    MODEL,
    Checkpoint,
    NotebookRecipe,
    layer_modules,
)

MODULES = layer_modules(
    "encoder_layers.{layer}",
    "decoder_layers.{layer}",
    ("multihead_attn", "multihead_attn1", "multihead_attn2"),
    ("query", "key", "value", "fc"),
    ("feedforward", "fc1", "fc2"),
    joint_cross=True,
) | {"lm_head": "fc_out"}


class SlidesEnFr(NotebookRecipe):
    """Notebook 4: one English-French pair, a decoder that attends to itself only, no training."""

    config: ClassVar[Mapping[str, Any]] = {
        "data": {
            "dataset": "notebook-slides",
            "split": "nothing-held-out",
            "normalise": "none",
            "vocabulary": {"ids": "printed", "unknown": "refuse"},
            "source_boundaries": "none",
            "target_boundaries": "none",
        },
        "positional": "sinusoidal",
        "attention": "split-heads",
        "masking": {"encoder": "none", "decoder": "causal", "cross": "none"},
        "model": {
            **MODEL,
            "d_model": 128,
            "heads": 8,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "d_ff": 512,
            "dropout": 0.0,
            "embedding_scale": "one",
            "tie_embeddings": "embeddings",
            "mask_value": "-inf",
        },
        "train": {"epochs": 0, "batch_size": 1, "schedule": "inverse-sqrt", "warmup_steps": 0},
        "quirks": {"notebooks": {"cross_attention_memory": "decoder"}},
        "evaluate": {"decode": "non-autoregressive"},
    }

    # The state dict does not contain the sinusoidal table; headtohead computes it as the slides do.
    checkpoints = (
        Checkpoint(
            "model of the slides",
            MODULES,
            {"target_embedding.weight": "embedding.weight"},
            {"positional.arithmetic": "single-log"},
        ),
    )
