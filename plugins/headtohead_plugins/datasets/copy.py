"""copy: the target is the source.

Paper: Graves et al. 2014, Neural Turing Machines, arXiv:1410.5401, section 4.1, which trains on
lengths up to 20 and tests on longer ones.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from headtohead.data import SymbolOptions, symbol_corpus
from headtohead.plugin import Corpus, Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

CITATION = "Graves et al. 2014, Neural Turing Machines, section 4.1"


class Copy(Dataset):
    """Generated sequences of symbols that the model must repeat."""

    Options: ClassVar[type[BaseOptions]] = SymbolOptions
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate sequences; the target is the sequence."""
        assert isinstance(options, SymbolOptions)
        return symbol_corpus("copy", options, split, list, citation=CITATION)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``copy``."""
    return {"copy": Copy}
