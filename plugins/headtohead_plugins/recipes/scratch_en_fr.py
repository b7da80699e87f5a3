"""scratch-en-fr: the notebook "Understanding and Implementing Transformers from Scratch".

Its full source code: 20 English-French pairs with given ids, one layer, one head, d_model 10,
trained for one epoch. Its two attention styles are two forms of checkpoint: split heads, as its
full code has them, and the independent heads that it describes beside them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from headtohead import Checkpoint, Recipe, Tensors, hookimpl

ENCODER, DECODER = "encoder_layers.{layer}", "decoder_layers.{layer}"
PLACES = (
    (f"{ENCODER}.self_attn", "encoder.{layer}.attention"),
    (f"{DECODER}.self_attn", "decoder.{layer}.attention"),
    (f"{DECODER}.cross_attn", "decoder.{layer}.cross"),
)
PROJECTIONS = {"query": "W_q", "key": "W_k", "value": "W_v"}
TABLES = {"positional.arithmetic": ("single", "exact", "single-log")}

AROUND = (
    Tensors("encoder_embedding", "source_embedding", "embedding", "source_words d_model"),
    Tensors("decoder_embedding", "target_embedding", "embedding", "target_words d_model"),
    Tensors("positional_encoding.pe", "positions", "fixed", "1 positions d_model"),
    *Tensors.feed_forward(f"{ENCODER}.feed_forward", "encoder.{layer}.feed_forward", "fc1", "fc2"),
    *Tensors.norms(ENCODER, "encoder.{layer}", {"attention": "norm1", "feed_forward": "norm2"}),
    *Tensors.feed_forward(f"{DECODER}.feed_forward", "decoder.{layer}.feed_forward", "fc1", "fc2"),
    *Tensors.norms(DECODER, "decoder.{layer}", {"attention": "norm1", "cross": "norm2", "feed_forward": "norm3"}),
    Tensors("fc", "words", "linear", "target_words d_model"),
)

SPLIT = tuple(
    one for theirs, ours in PLACES for one in Tensors.attention(theirs, ours, {**PROJECTIONS, "output": "W_o"})
)

INDEPENDENT = tuple(
    one
    for theirs, ours in PLACES
    for one in (
        *(
            Tensors(f"{theirs}.{name}.{{head}}", f"{ours}.{part}.{{head}}", "linear", "d_model d_model")
            for part, name in PROJECTIONS.items()
        ),
        Tensors(f"{theirs}.W_o", f"{ours}.output", "linear", "d_model heads*d_model"),
    )
)


class ScratchEnFr(Recipe):
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
            "d_model": 10,
            "heads": 1,
            "layers": 1,
            "d_ff": 40,
            "dropout": 0.1,
            "dropout_attention": 0.0,
            "dropout_ffn": 0.0,
            "embedding_scale": "one",
            "norm": "post",
            "final_norm": False,
            "activation": "relu",
            "init": "torch",
            "mask_value": "-1e9",
        },
        "train": {
            "epochs": 1,
            "batch_size": 20,
            "optimizer": "adam",
            "lr": 1e-3,
            "betas": [0.9, 0.98],
            "eps": 1e-9,
            "weight_decay": 0.0,
            "schedule": "constant",
            "clip_norm": None,
        },
        "quirks": {"min_vocab_size": 5000, "pad_to": "corpus"},
        "evaluate": {"decode": "greedy", "max_length": 5},
    }

    # The table has as many rows as the longest sentence of its data has tokens, and a translation
    # at most as many words.
    checkpoints = tuple(
        Checkpoint(name, (*AROUND, *tensors), sets, {"evaluate.max_length": "positions"}, TABLES)
        for name, tensors, sets in (
            ("split heads", SPLIT, {"attention": "split-heads"}),
            ("independent heads", INDEPENDENT, {"attention": "independent-heads"}),
        )
    )


@hookimpl
def register_recipes() -> dict[str, type[Recipe]]:
    """Register ``scratch-en-fr``."""
    return {"scratch-en-fr": ScratchEnFr}
