"""slides-en-fr: the slides "Neural Machine Translation Using Transformer".

One English-French pair, never trained. The second attention of its decoder reads the decoder
itself, so the output does not depend on the source; one vocabulary size serves both sides; and the
translation is one pass over zeros.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead import Checkpoint, Recipe, Tensors, hookimpl

ENCODER, DECODER = "encoder_layers.{layer}", "decoder_layers.{layer}"
PROJECTIONS = {"query": "query", "key": "key", "value": "value", "output": "fc"}

TENSORS = (
    Tensors("embedding", "embedding", "embedding", "words d_model"),
    *Tensors.attention(f"{ENCODER}.multihead_attn", "encoder.{layer}.attention", PROJECTIONS),
    *Tensors.feed_forward(f"{ENCODER}.feedforward", "encoder.{layer}.feed_forward", "fc1", "fc2"),
    *Tensors.norms(ENCODER, "encoder.{layer}", {"attention": "norm1", "feed_forward": "norm2"}),
    *Tensors.attention(f"{DECODER}.multihead_attn1", "decoder.{layer}.attention", PROJECTIONS),
    *Tensors.attention(f"{DECODER}.multihead_attn2", "decoder.{layer}.cross", PROJECTIONS),
    *Tensors.feed_forward(f"{DECODER}.feedforward", "decoder.{layer}.feed_forward", "fc1", "fc2"),
    *Tensors.norms(DECODER, "decoder.{layer}", {"attention": "norm1", "cross": "norm2", "feed_forward": "norm3"}),
    Tensors("fc_out", "words", "linear", "words d_model"),
)


class SlidesEnFr(Recipe):
    """Notebook 4: one English-French pair, a decoder that reads only itself, never trained."""

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
            "d_model": 128,
            "heads": 8,
            "encoder_layers": 2,
            "decoder_layers": 2,
            "d_ff": 512,
            "dropout": 0.0,
            "embedding_scale": "one",
            "norm": "post",
            "final_norm": False,
            "activation": "relu",
            "tie_embeddings": "embeddings",
            "init": "torch",
            "mask_value": "-inf",
        },
        "train": {"epochs": 0, "batch_size": 1},
        "quirks": {"cross_attention_memory": "decoder"},
        "evaluate": {"decode": "non-autoregressive"},
    }

    # The table is no part of the state dict: it is computed again, as the slides compute it.
    checkpoints = (Checkpoint("its model", TENSORS, {"positional.arithmetic": "single-log"}),)


@hookimpl
def register_recipes() -> dict[str, type[Recipe]]:
    """Register ``slides-en-fr``."""
    return {"slides-en-fr": SlidesEnFr}
