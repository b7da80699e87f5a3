"""The fields of the recipes: their hashes were taken when every field had the value of its notebook."""

import pytest

from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash

HASHES = {
    "scratch-en-fr": "34061ae3b190e86b90ced150d0bf84956695b59fa2cde65ade1acff189317385",
    "architecture-en-de": "5aa045a12d7495ed36a49ebf40d4e5272f0b9debdf96b82aec1efbae9c0ea6eb",
    "tatoeba-en-es": "4251b48f30d7c1c4a75122c984845d9716719a4398a3d47c5014191e498bd9a9",
    "slides-en-fr": "98be8b243038034721789b8fe35793119ce0b1a2eb3fc0b191f8a7e7e4d4c5cb",
    "by-hand-en-fr": "275dd84196a406e7c6b6de60f5d5ecd46a184d2b3c819c7ff0e0407a5668299c",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_recipe_has_the_values_of_its_notebook(name):
    assert run_hash(resolve({"recipe": name}), 1, "f" * 64) == HASHES[name]
