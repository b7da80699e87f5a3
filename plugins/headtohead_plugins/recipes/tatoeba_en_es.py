"""tatoeba-en-es: the notebook "Activity 4: Implementing a Translator".

266,338 English-Spanish pairs of Tatoeba in a model of the paper's base size. Its sinusoidal table
is indexed by the sentence's row in the batch, not by the token's place: every token of sentence b
gets P[b], and a batch of more than 128 sentences is an error. Nothing is held out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headtohead import Checkpoint, HeadToHeadError, Recipe, Tensors, hookimpl

ENCODER, DECODER = "encoder.layers.{layer}", "decoder.layers.{layer}"
PROJECTIONS = {"query": "W_q", "key": "W_k", "value": "W_v", "output": "W_o"}
MAPS = ("linear1", "linear2")

TENSORS = (
    Tensors("encoder_embedding", "source_embedding", "embedding", "source_words d_model"),
    Tensors("decoder_embedding", "target_embedding", "embedding", "target_words d_model"),
    *Tensors.attention(f"{ENCODER}.self_attn", "encoder.{layer}.attention", PROJECTIONS),
    *Tensors.feed_forward(f"{ENCODER}.ffn", "encoder.{layer}.feed_forward", *MAPS),
    *Tensors.norms(ENCODER, "encoder.{layer}", {"attention": "norm1", "feed_forward": "norm2"}),
    Tensors("encoder.norm", "encoder.norm", "norm", "d_model"),
    *Tensors.attention(f"{DECODER}.self_attn", "decoder.{layer}.attention", PROJECTIONS),
    *Tensors.attention(f"{DECODER}.cross_attn", "decoder.{layer}.cross", PROJECTIONS),
    *Tensors.feed_forward(f"{DECODER}.feed_forward", "decoder.{layer}.feed_forward", *MAPS),
    *Tensors.norms(DECODER, "decoder.{layer}", {"attention": "norm1", "cross": "norm2", "feed_forward": "norm3"}),
    Tensors("decoder.norm", "decoder.norm", "norm", "d_model"),
    Tensors("output_layer", "words", "linear", "target_words d_model"),
)


class TatoebaEnEs(Recipe):
    """Notebook 3: Tatoeba English-Spanish at the base size, positions by row of the batch."""

    config: ClassVar[Mapping[str, Any]] = {
        "data": {
            "dataset": "tatoeba",
            "pair": "eng-spa",
            "split": "nothing-held-out",
            "normalise": "ascii-fold",
            "vocabulary": {"ids": "frequency", "unknown": "token"},
            "source_boundaries": "sos-eos",
            "target_boundaries": "sos-eos",
            "truncate_tokens": 128,
        },
        "positional": {"name": "sinusoidal", "index": "row", "max_len": 128},
        "attention": "split-heads",
        "masking": "padding-causal",
        "model": {
            "d_model": 512,
            "heads": 8,
            "layers": 6,
            "d_ff": 2048,
            "dropout": 0.0,
            "dropout_residual": 0.1,
            "embedding_scale": "sqrt-d_model",
            "norm": "post",
            "final_norm": True,
            "activation": "relu",
            "init": "torch",
            "mask_value": "-1e9",
        },
        "train": {
            "epochs": 10,
            "batch_size": 64,
            "optimizer": "adam",
            "lr": 1e-4,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "weight_decay": 0.0,
            "schedule": "constant",
            "clip_norm": None,
        },
        "evaluate": {"decode": "greedy", "max_length": 128},
    }

    # The table is no part of the state dict: it is computed again, as the notebook computes it.
    checkpoints = (Checkpoint("its model", TENSORS, {"positional.arithmetic": "single"}),)

    needs_file = True

    @classmethod
    def read(cls, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Return second and fourth column of a "Sentence pairs" export; a line needs a tab.

        Files of two or three columns, which the notebook cannot read, have the sentences first.
        """
        rows = ((number, line.strip().split("\t")) for number, line in enumerate(lines, 1))
        return [_sentences(number, fields) for number, fields in rows if len(fields) > 1]


@hookimpl
def register_recipes() -> dict[str, type[Recipe]]:
    """Register ``tatoeba-en-es``."""
    return {"tatoeba-en-es": TatoebaEnEs}


def _sentences(number: int, fields: Sequence[str]) -> tuple[str, str]:
    if len(fields) >= 4:
        return fields[1], fields[3]
    if fields[0].lstrip("\ufeff").isdigit():
        raise HeadToHeadError(f"line {number} has {len(fields)} columns; expected id, text, id and text")
    return fields[0], fields[1]
