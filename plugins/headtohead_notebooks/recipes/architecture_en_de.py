"""architecture-en-de: the notebook "Transformer Architecture".

50 English-German pairs without boundary tokens, padded to 100 tokens, in a model of the base size of
Vaswani et al. 2017. The notebook does not decode: without <sos> and <eos> generation has no start and
no end. Its two positional encodings are two forms of checkpoint.
"""

from headtohead_notebooks.recipes.notebook_recipe import (
    EMBEDDINGS,
    Checkpoint,
    NotebookRecipe,
    layer_modules,
    read_config,
)

TABLES = {"positional.arithmetic": ("single", "exact", "single-log")}

ENCODER = "encoder_layers.{layer}"
DECODER = "decoder_layers.{layer}"
ATTENTIONS = ("self_attention", "self_attention", "cross_attention")
PROJECTIONS = ("W_q", "W_k", "W_v", "W_o")
FEED_FORWARD = ("feed_forward", "linear1", "linear2")
MODULES = layer_modules(ENCODER, DECODER, ATTENTIONS, PROJECTIONS, FEED_FORWARD)
MODULES["lm_head"] = "final_layer"
TABLE = "positional_encoding.positional_embedding"
LEARNED = {"positionals.encoder.table": TABLE, "positionals.decoder.table": TABLE}
"""The notebook's one table becomes the table of each stack."""


class ArchitectureEnDe(NotebookRecipe):
    """Notebook 2: 50 English-German pairs, no boundary tokens, padded to 100, base size."""

    phrase = "notebook 2"
    config = read_config("architecture_en_de.yaml")

    checkpoints = (
        Checkpoint(
            "sinusoidal positions",
            MODULES,
            EMBEDDINGS,
            positions="positional_encoding.pe",
            positions_computed=TABLES,
        ),
        Checkpoint(
            "learned positions",
            MODULES,
            {**EMBEDDINGS, **LEARNED},
            {"positional": {"name": "learned", "std": 1.0}},
            positions=TABLE,
            positions_field="positional.max_length",
        ),
    )
