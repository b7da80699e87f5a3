"""The catalogue, computed once for all its tests."""

from __future__ import annotations

import pytest

from headtohead.tools.catalogue.__main__ import built_in_and
from headtohead.tools.catalogue.content import CatalogueEntry
from headtohead.tools.catalogue.pages import Files, catalogue_files


@pytest.fixture(scope="session")
def entries() -> list[CatalogueEntry]:
    """Every built-in entry."""
    return built_in_and([])


@pytest.fixture(scope="session")
def files(entries: list[CatalogueEntry]) -> Files:
    """Every file of the catalogue by its path."""
    return catalogue_files(entries)
