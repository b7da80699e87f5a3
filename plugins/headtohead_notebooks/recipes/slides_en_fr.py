"""slides-en-fr: the slides "Neural Machine Translation Using Transformer".

One English-French pair; the model is never trained. The second attention of the decoder attends to
the decoder, so the output does not depend on the source. Both vocabularies have the same size. The
translation is a single forward pass on a target of zeros.
"""

from headtohead_notebooks.recipes.notebook_recipe import (
    Checkpoint,
    NotebookRecipe,
    layer_modules,
    read_config,
)

ENCODER = "encoder_layers.{layer}"
DECODER = "decoder_layers.{layer}"
ATTENTIONS = ("multihead_attn", "multihead_attn1", "multihead_attn2")
PROJECTIONS = ("query", "key", "value", "fc")
FEED_FORWARD = ("feedforward", "fc1", "fc2")
MODULES = layer_modules(ENCODER, DECODER, ATTENTIONS, PROJECTIONS, FEED_FORWARD, joint_cross=True)
MODULES["lm_head"] = "fc_out"


class SlidesEnFr(NotebookRecipe):
    """Notebook 4: one English-French pair, a decoder that attends to itself only, no training."""

    phrase = "notebook 4"
    config = read_config("slides_en_fr.yaml")

    # The state dict does not contain the sinusoidal table; headtohead computes it as the slides do.
    checkpoints = (
        Checkpoint(
            "model of the slides",
            MODULES,
            {"target_embedding.weight": "embedding.weight"},
            {"positional.arithmetic": "single-log"},
        ),
    )
