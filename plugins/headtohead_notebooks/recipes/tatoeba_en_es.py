"""tatoeba-en-es: the notebook "Activity 4: Implementing a Translator".

266,338 English-Spanish pairs of Tatoeba in a model of the base size of Vaswani et al. 2017. The
sinusoidal table is indexed by the sentence's row in the batch instead of the token's position: every
token of sentence b gets P[b], and a batch of more than 128 sentences is an error. Nothing is held out.
"""

from collections.abc import Sequence

from headtohead.plugin import HeadToHeadError
from headtohead_notebooks.recipes.notebook_recipe import (
    EMBEDDINGS,
    Checkpoint,
    NotebookRecipe,
    layer_modules,
    read_config,
)

ENCODER = "encoder.layers.{layer}"
DECODER = "decoder.layers.{layer}"
ATTENTIONS = ("self_attn", "self_attn", "cross_attn")
PROJECTIONS = ("W_q", "W_k", "W_v", "W_o")
FEED_FORWARD = ("ffn", "linear1", "linear2")
MODULES = layer_modules(
    ENCODER,
    DECODER,
    ATTENTIONS,
    PROJECTIONS,
    FEED_FORWARD,
    decoder_feed_forward="feed_forward",
)
MODULES["encoder_norm"] = "encoder.norm"
MODULES["decoder_norm"] = "decoder.norm"
MODULES["lm_head"] = "output_layer"


class TatoebaEnEs(NotebookRecipe):
    """Notebook 3: Tatoeba English-Spanish at the base size, positions by row of the batch."""

    phrase = "notebook 3"
    config = read_config("tatoeba_en_es.yaml")

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
        pairs = []
        for number, line in enumerate(lines, 1):
            fields = line.strip().split("\t")
            if len(fields) > 1:
                pairs.append(_sentences(number, fields))
        return pairs


def _sentences(number: int, fields: Sequence[str]) -> tuple[str, str]:
    if len(fields) >= 4:
        return fields[1], fields[3]
    if fields[0].lstrip("\ufeff").isdigit():
        raise HeadToHeadError(
            f"line {number} has {len(fields)} columns, expected id, text, id and text"
        )
    return fields[0], fields[1]
