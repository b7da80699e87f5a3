"""by-hand-en-fr: a notebook without title that computes one English-French pair step by step.

The decoder's self-attention has no projections: the mask is added to the embeddings, and their
softmax weighs them, so a target must have as many tokens as d_model. All layers share one
feed-forward network and one LayerNorm. Each target token predicts itself. One step trains some of
the modules.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead_notebooks.recipes.notebook_recipe import MODEL, TRAIN, NotebookRecipe


class ByHandEnFr(NotebookRecipe):
    """Notebook 5: one English-French pair computed step by step, one training step."""

    config: ClassVar[Mapping[str, Any]] = {
        "data": {
            "dataset": "notebook-by-hand",
            "split": "nothing-held-out",
            "normalise": "none",
            "vocabulary": {"ids": "printed", "unknown": "drop"},
            "source_boundaries": "none",
            "target_boundaries": "sos-eos",
        },
        "positional": "sinusoidal",
        "attention": {
            "encoder": "split-heads",
            "decoder": "embedding-softmax",
            "cross": "split-heads",
        },
        "masking": {"encoder": "none", "decoder": "causal", "cross": "none"},
        "model": {
            **MODEL,
            "d_model": 6,
            "heads": 2,
            "layers": 1,
            "d_ff": 24,
            "dropout": 0.0,
            "embedding_scale": "one",
            "mask_value": "-1e9",
            "shared_modules": ["norm", "feed-forward"],
        },
        "train": {
            **TRAIN,
            "steps": 1,
            "batch_size": 1,
            "trainable": ["feed-forward", "cross-attention", "lm-head"],
            "lr": 1e-3,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
        },
        "quirks": {"notebooks": {"decoder_feed_forward": "after-each", "shift_targets": False}},
        "evaluate": {"decode": "teacher-forced"},
    }

    no_checkpoint = "its notebook has no model class, so it cannot save a state dict"
