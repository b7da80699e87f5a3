"""The catalogue, computed once for all its tests."""

from __future__ import annotations

import pytest

from catalogue.__main__ import built_in_and
from catalogue.content import CatalogueEntry
from catalogue.pages import Files, catalogue_files


@pytest.fixture(scope="session")
def entries() -> list[CatalogueEntry]:
    """Every built-in entry."""
    return built_in_and([])


@pytest.fixture(scope="session")
def files(entries: list[CatalogueEntry]) -> Files:
    """Every file of the catalogue by its path."""
    return catalogue_files(entries)
