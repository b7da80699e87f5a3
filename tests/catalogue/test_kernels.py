"""The page of attention kernels on CUDA is current."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalogue.kernels import kernels_page
from headtohead.plugins.registry import load_registry

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "catalogue" / "kernels.md"


@pytest.mark.slow
def test_the_page_of_attention_kernels_is_current() -> None:
    names = {
        family: sorted(
            entry.name
            for entry in load_registry().all()
            if (entry.family, entry.distribution) == (family, "headtohead")
        )
        for family in ("attention", "positional")
    }
    page = kernels_page(names["attention"], names["positional"])
    assert page == PAGE.read_text(encoding="utf-8"), "run make docs"
    assert {"efficient", "math", "explicit", "fast path"} >= {line.split(" | ")[2] for line in rows(page)} - {"–"}


def rows(page: str) -> list[str]:
    return [line for line in page.splitlines() if line.startswith("| ")][1:]
