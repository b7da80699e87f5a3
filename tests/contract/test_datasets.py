"""The contract suite on every built-in dataset that needs no file."""

import pytest

from headtohead.plugins.registry import current
from headtohead.testing.datasets import DatasetContract

REGISTRY = current()
COMPUTED = sorted(
    name for name, entry in REGISTRY.entries["dataset"].items() if "file" not in entry.entry.Options.model_fields
)


class TestComputedDatasets(DatasetContract):
    """With 600 pairs where the number of pairs is an option."""

    @pytest.fixture(params=COMPUTED)
    def name(self, request):
        return request.param

    @pytest.fixture
    def options(self, name):
        fields = REGISTRY.dataset(name).Options.model_fields
        return {"size": 600} if "size" in fields else {}


@pytest.mark.slow
class TestComputedDatasetsWithDefaults(DatasetContract):
    @pytest.fixture(params=COMPUTED)
    def name(self, request):
        return request.param


def test_the_built_in_datasets_are_among_them():
    assert {"toy-grammar", "copy", "reverse", "sort", "lookup", "addition"} <= set(COMPUTED)
