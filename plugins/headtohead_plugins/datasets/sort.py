"""sort: the target is the symbols of the source in ascending order.

Paper: Graves et al. 2014, Neural Turing Machines, arXiv:1410.5401, section 4.5, without its
priorities: symbols are numbers sorted by value. The target does not depend on the order of the
source, so the encoder needs no positions. All orders of a multiset are the same example.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from headtohead.data import SymbolOptions, symbol_corpus
from headtohead.plugin import Corpus, Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

CITATION = "Graves et al. 2014, Neural Turing Machines, section 4.5"


class Sort(Dataset):
    """Generated sequences of numbers that the model must sort."""

    Options: ClassVar[type[BaseOptions]] = SymbolOptions
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate multisets of symbols in random order; the target is the sorted multiset."""
        assert isinstance(options, SymbolOptions)
        return symbol_corpus("sort", options, split, sorted, citation=CITATION, ordered=False)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``sort``."""
    return {"sort": Sort}
