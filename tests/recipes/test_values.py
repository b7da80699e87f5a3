"""The fields of the recipes: their hashes were taken when every field had the value of its notebook."""

import pytest

from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash

HASHES = {
    "scratch-en-fr": "b98c284534d6672fd7fcf2ce5adc3fce26f4827eb0f11d6c198d61bda730916c",
    "architecture-en-de": "887d98733f02b6c99c115131a3632260819dfd882f5f931006940bc412cbdc0a",
    "tatoeba-en-es": "547441422fa2831e2145932dd12257f0f4ec86e2f69d3812904b3dd9c9c1f9b5",
    "slides-en-fr": "40196764c29de8aece7f7003770eb8e3feba2eedb9f4e2641f140c89079f3631",
    "by-hand-en-fr": "7e8674217d21ee442b8482374754224042629ee2016c3ef2ae68db35aefd0a1a",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_recipe_has_the_values_of_its_notebook(name):
    assert run_hash(resolve({"recipe": name}), 1, "f" * 64) == HASHES[name]
