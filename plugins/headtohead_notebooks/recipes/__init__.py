"""The recipes of the five notebooks: a YAML file with the configuration, and a module with the checkpoints."""

from headtohead.plugin import Recipe, hookimpl
from headtohead_notebooks.recipes.architecture_en_de import ArchitectureEnDe
from headtohead_notebooks.recipes.by_hand_en_fr import ByHandEnFr
from headtohead_notebooks.recipes.scratch_en_fr import ScratchEnFr
from headtohead_notebooks.recipes.slides_en_fr import SlidesEnFr
from headtohead_notebooks.recipes.tatoeba_en_es import TatoebaEnEs


@hookimpl
def register_recipes() -> dict[str, type[Recipe]]:
    return {
        "scratch-en-fr": ScratchEnFr,
        "architecture-en-de": ArchitectureEnDe,
        "tatoeba-en-es": TatoebaEnEs,
        "slides-en-fr": SlidesEnFr,
        "by-hand-en-fr": ByHandEnFr,
    }
