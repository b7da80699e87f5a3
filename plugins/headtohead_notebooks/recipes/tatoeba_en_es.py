"""tatoeba-en-es: the notebook "Activity 4: Implementing a Translator".

266,338 English-Spanish pairs of Tatoeba in a model of the base size of Vaswani et al. 2017. The
sinusoidal table is indexed by the sentence's row in the batch instead of the token's position: every
token of sentence b gets P[b], and a batch of more than 128 sentences is an error. Nothing is held out.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from headtohead.plugin import HeadToHeadError
from headtohead_notebooks.recipes.notebook_recipe import (
    MODEL,
    TRAIN,
    Checkpoint,
    NotebookRecipe,
    layer_modules,
)

MODULES = layer_modules(
    "encoder.layers.{layer}",
    "decoder.layers.{layer}",
    ("self_attn", "self_attn", "cross_attn"),
    ("W_q", "W_k", "W_v", "W_o"),
    ("ffn", "linear1", "linear2"),
    decoder_feed_forward="feed_forward",
) | {"encoder_norm": "encoder.norm", "decoder_norm": "decoder.norm", "lm_head": "output_layer"}
EMBEDDINGS = {
    "source_embedding.weight": "encoder_embedding.weight",
    "target_embedding.weight": "decoder_embedding.weight",
}


class TatoebaEnEs(NotebookRecipe):
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
        "positional": {"name": "sinusoidal-by-row", "max_len": 128},
        "attention": "split-heads",
        "masking": "padding-causal",
        "model": {
            **MODEL,
            "d_model": 512,
            "heads": 8,
            "layers": 6,
            "d_ff": 2048,
            "dropout": 0.0,
            "dropout_residual": 0.1,
            "embedding_scale": "sqrt-d_model",
            "final_norm": True,
            "mask_value": "-1e9",
        },
        "train": {
            **TRAIN,
            "epochs": 10,
            "batch_size": 64,
            "lr": 1e-4,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
        },
        "evaluate": {"decode": "greedy", "max_length": 128},
    }

    # The state dict does not contain the sinusoidal table; headtohead computes it as the notebook does.
    checkpoints = (
        Checkpoint(
            "model of the notebook", MODULES, EMBEDDINGS, {"positional.arithmetic": "single"}
        ),
    )

    needs_file = True

    @classmethod
    def read(cls, lines: Sequence[str]) -> list[tuple[str, str]]:
        """Return columns 2 and 4 of a "Sentence pairs" export; lines without a tab are skipped.

        In files of two or three columns, which the notebook cannot read, the sentences are columns 1 and 2.
        """
        rows = ((number, line.strip().split("\t")) for number, line in enumerate(lines, 1))
        return [_sentences(number, fields) for number, fields in rows if len(fields) > 1]


def _sentences(number: int, fields: Sequence[str]) -> tuple[str, str]:
    if len(fields) >= 4:
        return fields[1], fields[3]
    if fields[0].lstrip("\ufeff").isdigit():
        raise HeadToHeadError(
            f"line {number} has {len(fields)} columns, expected id, text, id and text"
        )
    return fields[0], fields[1]
