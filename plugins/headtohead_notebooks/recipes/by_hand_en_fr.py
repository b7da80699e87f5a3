"""by-hand-en-fr: a notebook without title that computes one English-French pair step by step.

The decoder's self-attention has no projections: the mask is added to the embeddings, and their
softmax weighs them, so a target must have as many tokens as d_model. All layers share one
feed-forward network and one LayerNorm. Each target token predicts itself. One step trains some of
the modules.
"""

from headtohead_notebooks.recipes.notebook_recipe import NotebookRecipe, read_config


class ByHandEnFr(NotebookRecipe):
    """Notebook 5: one English-French pair computed step by step, one training step."""

    phrase = "notebook 5"
    config = read_config("by_hand_en_fr.yaml")

    no_checkpoint = "its notebook has no model class, so it cannot save a state dict"
