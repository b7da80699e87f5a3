"""The fields of the recipes: their hashes were taken when every field had the value of its notebook."""

import pytest

from headtohead.config.builder import resolve
from headtohead.config.identity import run_hash

HASHES = {
    "scratch-en-fr": "8fd52cd9a58d0a0523565d72adfc30db2cef4e8ac91ff640b5af94c49b9d01ef",
    "architecture-en-de": "f940edfcd86b401c9d9480c5526f5dff362464bf2d95b981fcdb0d0355b1e865",
    "tatoeba-en-es": "0e0038a664035ecd9757b2ae7da59e5dbdd42ec240df509b8653c9eeac3aaae3",
    "slides-en-fr": "fd14a4746435a652c378c6674016e55d65c53a8efcf453f6cbe710342837d11a",
    "by-hand-en-fr": "0f432ec79cf4a13f1910dba1aace15c62ebb1438c0153c6ab19c61b94caf443c",
}


@pytest.mark.parametrize("name", HASHES)
def test_a_recipe_has_the_values_of_its_notebook(name):
    assert run_hash(resolve({"recipe": name}), 1, "f" * 64) == HASHES[name]
