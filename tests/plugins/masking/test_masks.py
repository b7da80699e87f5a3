"""Masks as loops over their definitions, and the one that notebook 1 printed."""

import pytest
import torch

from headtohead import plugins
from headtohead.testing.subject import full_keep

DEFINITIONS = {
    "none": lambda i, j, length: True,
    "padding": lambda i, j, length: j < length,
    "causal": lambda i, j, length: j <= i,
    "padding-causal": lambda i, j, length: j <= i and j < length,
}


def masking(name):
    entry = plugins.current().masking(name)
    return entry(entry.Options())


def test_every_registered_masking_is_defined_here():
    built_in = {
        one.name for one in plugins.current().all()
        if one.family == "masking" and one.distribution == "headtohead"
    }  # fmt: skip
    assert built_in == set(DEFINITIONS)


@pytest.mark.parametrize("role", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("name", DEFINITIONS)
def test_mask_equals_its_definition(name, role):
    lengths = [1, 3, 6]
    found = full_keep(masking(name), role, 5, 6, torch.tensor(lengths))
    expected = [
        [[DEFINITIONS[name](i, j, length) for j in range(6)] for i in range(5)]
        for length in lengths
    ]
    assert found.tolist() == expected


def test_decoder_mask_of_notebook_1():
    """Printed for target ids [3, 1, 2, 4, 0], where 0 is padding."""
    ids = torch.tensor([3, 1, 2, 4, 0])
    printed_masked = [
        [False, True, True, True, True],
        [False, False, True, True, True],
        [False, False, False, True, True],
        [False, False, False, False, True],
        [False, False, False, False, True],
    ]
    length = (ids != 0).sum().unsqueeze(0)
    keep = full_keep(masking("padding-causal"), "decoder", 5, 5, length)[0]
    assert (~keep).tolist() == printed_masked
