"""The catalogue, made once for all tests of it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from headtohead.tools.catalogue.__main__ import built_in_and
from headtohead.tools.catalogue.content import Section
from headtohead.tools.catalogue.writing import files_of


@pytest.fixture(scope="session")
def made() -> list[Section]:
    """Every section of the built-in entries."""
    return built_in_and([])


@pytest.fixture(scope="session")
def files(made: list[Section]) -> Mapping[str, str]:
    """Every file of the catalogue by its path."""
    return files_of(made)
