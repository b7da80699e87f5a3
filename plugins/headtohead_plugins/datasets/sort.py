"""sort: the target holds the symbols of the source in ascending order.

Source: Graves et al. 2014, Neural Turing Machines, arXiv:1410.5401, section 4.5, without its
priorities: symbols are numbers and sorted by value. The answer is the same for every order of the
source, so that it needs no positions in the encoder, and no bag of symbols is on two sides of a
split.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from headtohead import Corpus, Dataset, hookimpl
from headtohead import Options as BaseOptions
from headtohead.data import SymbolOptions, symbol_corpus

CITATION = "Graves et al. 2014, Neural Turing Machines, section 4.5"


class Sort(Dataset):
    """Seeded sequences of numbers, to be sorted."""

    Options: ClassVar[type[BaseOptions]] = SymbolOptions
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Draw bags of symbols in a random order; the answer is the bag in ascending order."""
        assert isinstance(options, SymbolOptions)
        return symbol_corpus("sort", options, split, sorted, citation=CITATION, ordered=False)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``sort``."""
    return {"sort": Sort}
