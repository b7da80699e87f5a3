"""scratch-en-fr: the notebook "Understanding and Implementing Transformers from Scratch".

The recipe is the notebook's complete source code: 20 English-French pairs with given ids, one layer,
one head, d_model 10, trained for one epoch. Its two attention styles are two forms of checkpoint: the
split heads of the source code, and the independent heads that the text describes.
"""

from headtohead_notebooks.recipes.notebook_recipe import (
    EMBEDDINGS,
    Checkpoint,
    NotebookRecipe,
    layer_modules,
    read_config,
)

ENCODER = "encoder_layers.{layer}"
DECODER = "decoder_layers.{layer}"
ATTENTIONS = ("self_attn", "self_attn", "cross_attn")
FEED_FORWARD = ("feed_forward", "fc1", "fc2")
TABLES = {"positional.arithmetic": ("single", "exact", "single-log")}


def _checkpoint(name: str, attention: str, projections: tuple[str, ...]) -> Checkpoint:
    """Return the form of checkpoint of an attention style.

    The table has one position per token of the longest sentence; the notebook decodes as many tokens.
    """
    modules = layer_modules(ENCODER, DECODER, ATTENTIONS, projections, FEED_FORWARD)
    modules["lm_head"] = "fc"
    return Checkpoint(
        name,
        modules,
        EMBEDDINGS,
        {"attention": attention},
        positions="positional_encoding.pe",
        positions_field="evaluate.max_length",
        positions_computed=TABLES,
    )


class ScratchEnFr(NotebookRecipe):
    """Notebook 1: 20 English-French pairs, one layer of one head, one epoch."""

    phrase = "notebook 1"
    config = read_config("scratch_en_fr.yaml")

    checkpoints = (
        _checkpoint("split heads", "split-heads", ("W_q", "W_k", "W_v", "W_o")),
        _checkpoint(
            "independent heads",
            "independent-heads",
            ("W_q.{head}", "W_k.{head}", "W_v.{head}", "W_o"),
        ),
    )
