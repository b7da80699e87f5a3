"""The fields of the recipes: their hashes were taken when every field had the value of its notebook."""

import pytest

from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash

HASHES = {
    "scratch-en-fr": "5ccb5f5c46808d2634c4412f78c8eadb3de65a5baf80e198841e0aa0fb863b87",
    "architecture-en-de": "c88520906bf967e41d95ff1bb52cfe15de53493144bb167d76ff810a54e20046",
    "tatoeba-en-es": "4415d0cd2a1c456b2d695ab62441ae49428838924494ac7e30b34eb7062a5f8a",
    "slides-en-fr": "503b24f77e50169242968d1d70efa252ebd2a3e62cb4f921e2360e03db265dff",
    "by-hand-en-fr": "9dbccc7d2c40cb55b6e75248d513a551b87079c14412fd1db0fe232697ce7b1c",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_recipe_has_the_values_of_its_notebook(name):
    assert run_hash(resolve({"recipe": name}), 1, "f" * 64) == HASHES[name]
