"""reverse: the target is the source in reverse order.

Paper: Grefenstette et al. 2015, Learning to Transduce with Unbounded Memory, arXiv:1506.02516,
section 4 (sequence reversal). With ``distinct`` and ``all_orders`` an order-invariant encoder reaches
at most 1/n! exact match on n symbols: it has the same output for all n! orders of a set.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from headtohead.data import SymbolOptions, symbol_corpus
from headtohead.plugin import Corpus, Dataset, hookimpl
from headtohead.plugin import Options as BaseOptions

CITATION = "Grefenstette et al. 2015, Learning to Transduce with Unbounded Memory"


class Reverse(Dataset):
    """Generated sequences of symbols that the model must reverse."""

    Options: ClassVar[type[BaseOptions]] = SymbolOptions
    splits: ClassVar[tuple[str, ...]] = ("iid", "length")
    normalise: ClassVar[str] = "none"

    @classmethod
    def load(cls, options: BaseOptions, split: str, cache: Path) -> Corpus:
        """Generate sequences; the target is the reversed sequence."""
        assert isinstance(options, SymbolOptions)
        return symbol_corpus("reverse", options, split, lambda symbols: symbols[::-1], citation=CITATION)


@hookimpl
def register_datasets() -> dict[str, type[Dataset]]:
    """Register ``reverse``."""
    return {"reverse": Reverse}
