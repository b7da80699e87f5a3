"""architecture-en-de: the notebook "Transformer Architecture".

50 English-German pairs without boundary tokens, padded to 100 tokens, in a model of the paper's
base size. It has no decoding: without <sos> and <eos> generation has no start and no stop. Its two
positional encodings are two forms of checkpoint.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead import Checkpoint, Recipe, Tensors, hookimpl

ENCODER, DECODER = "encoder_layers.{layer}", "decoder_layers.{layer}"
PROJECTIONS = {"query": "W_q", "key": "W_k", "value": "W_v", "output": "W_o"}
MAPS = ("linear1", "linear2")
TABLES = {"positional.arithmetic": ("single", "exact", "single-log")}

AROUND = (
    Tensors("encoder_embedding", "source_embedding", "embedding", "source_words d_model"),
    Tensors("decoder_embedding", "target_embedding", "embedding", "target_words d_model"),
    *Tensors.attention(f"{ENCODER}.self_attention", "encoder.{layer}.attention", PROJECTIONS),
    *Tensors.feed_forward(f"{ENCODER}.feed_forward", "encoder.{layer}.feed_forward", *MAPS),
    *Tensors.norms(ENCODER, "encoder.{layer}", {"attention": "norm1", "feed_forward": "norm2"}),
    *Tensors.attention(f"{DECODER}.self_attention", "decoder.{layer}.attention", PROJECTIONS),
    *Tensors.attention(f"{DECODER}.cross_attention", "decoder.{layer}.cross", PROJECTIONS),
    *Tensors.feed_forward(f"{DECODER}.feed_forward", "decoder.{layer}.feed_forward", *MAPS),
    *Tensors.norms(DECODER, "decoder.{layer}", {"attention": "norm1", "cross": "norm2", "feed_forward": "norm3"}),
    Tensors("final_layer", "words", "linear", "target_words d_model"),
)


class ArchitectureEnDe(Recipe):
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
            "d_model": 512,
            "heads": 8,
            "layers": 6,
            "d_ff": 2048,
            "dropout": 0.1,
            "embedding_scale": "one",
            "norm": "post",
            "final_norm": False,
            "activation": "relu",
            "init": "torch",
            "mask_value": "-inf",
        },
        "train": {
            "epochs": 10,
            "batch_size": 32,
            "optimizer": "adam",
            "lr": 1e-4,
            "betas": [0.9, 0.98],
            "eps": 1e-9,
            "weight_decay": 0.0,
            "schedule": "constant",
            "clip_norm": None,
        },
        "quirks": {"pad_to": 100},
        "evaluate": {"decode": "none"},
    }

    checkpoints = (
        Checkpoint(
            "sinusoidal positions",
            (*AROUND, Tensors("positional_encoding.pe", "positions", "fixed", "1 positions d_model")),
            tables=TABLES,
        ),
        # One table serves both sides; each of ours gets a copy.
        Checkpoint(
            "learned positions",
            (*AROUND, Tensors("positional_encoding.positional_embedding", "positions", "table", "positions d_model")),
            {"positional": {"name": "learned", "std": 1.0}},
            {"positional.max_length": "positions"},
        ),
    )


@hookimpl
def register_recipes() -> dict[str, type[Recipe]]:
    """Register ``architecture-en-de``."""
    return {"architecture-en-de": ArchitectureEnDe}
