"""The fields of the recipes: their hashes were taken when every field had the value of its notebook."""

import pytest

from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash

HASHES = {
    "scratch-en-fr": "03a0be28415eb1548d8df9127728a9131241c63b7a78962e15278c083c934065",
    "architecture-en-de": "73ee6be146a3d151a0ea19e663f2fef62ef34d8420a99c6b1de3febf6d4d4999",
    "tatoeba-en-es": "e349f2f53fd4fa1cad95b6e53b8f02157226582ea76e0e4be66839d66ee0c570",
    "slides-en-fr": "28d1296c047a89bb60a3a56510ae0a0cf634f5b2c990f19329814b49a39c5149",
    "by-hand-en-fr": "e0748e95b51720d8b3750b488ee3a5cae12c0d11cbc213b719a05533c1f222f9",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_recipe_has_the_values_of_its_notebook(name):
    assert run_hash(resolve({"recipe": name}), 1, "f" * 64) == HASHES[name]
