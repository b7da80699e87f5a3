"""The catalogue, computed once for all its tests."""

from __future__ import annotations

import pytest

from headtohead.tools.catalogue.__main__ import built_in_and
from headtohead.tools.catalogue.content import Section
from headtohead.tools.catalogue.writing import Files, files_of


@pytest.fixture(scope="session")
def sections() -> list[Section]:
    """Every section of the built-in entries."""
    return built_in_and([])


@pytest.fixture(scope="session")
def files(sections: list[Section]) -> Files:
    """Every file of the catalogue by its path."""
    return files_of(sections)
