"""Fixtures: corpora by name, and a server of files."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from headtohead.data import PreparedData, prepare, read_corpus
from headtohead.plugins.dataset import Corpus
from made import serving
from made.data_section import data_config

Prepare = Callable[..., PreparedData]
Read = Callable[..., Corpus]


@pytest.fixture(scope="session")
def prepared(cache: Path) -> Prepare:
    """Prepare a dataset; keywords are fields of ``data``, ``options`` the dataset's options."""
    return lambda dataset, **fields: prepare(data_config(dataset=dataset, **fields), cache)


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Load the corpus of a dataset with options."""

    def run(dataset: str, split: str | None = None, **options: Any) -> Corpus:
        config = data_config(
            dataset=dataset, options=options, **({"split": split} if split else {})
        )
        return read_corpus(config, tmp_path / "cache")

    return run


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Path, str]]:
    """A folder served on the loopback interface, and its URL."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    folder = tmp_path / "site"
    folder.mkdir()
    answer = b"HTTP/1.1 200 OK\r\n\r\n"
    with serving(
        lambda request: request.wfile.write(answer + (folder / request.path[1:]).read_bytes())
    ) as address:
        yield folder, address
