"""What is taken for granted of every dataset that needs no file."""

import pytest

from headtohead.plugins.registry import current
from headtohead.testing.contracts import DatasetContract

REGISTRY = current()
MADE = sorted(name for name, one in REGISTRY.entries["dataset"].items() if "file" not in one.entry.Options.model_fields)


class TestMadeDatasets(DatasetContract):
    """Of 600 pairs where the number of pairs is an option."""

    @pytest.fixture(params=MADE)
    def name(self, request):
        return request.param

    @pytest.fixture
    def options(self, name):
        fields = REGISTRY.dataset(name).Options.model_fields
        return {"size": 600} if "size" in fields else {}


@pytest.mark.slow
class TestMadeDatasetsAsTheyAre(DatasetContract):
    @pytest.fixture(params=MADE)
    def name(self, request):
        return request.param


def test_there_are_such_datasets():
    assert {"toy-grammar", "copy", "reverse", "sort", "lookup", "addition"} <= set(MADE)
