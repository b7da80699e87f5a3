"""The five notebooks on one page: their experiments, their pitfalls and what these did.

What is known of the notebooks (titles, printed digits, the words of the page) stands in YAML files
beside the code, which knows none of them by name. Importing this package imports torch.
"""

from __future__ import annotations

from headtohead.tools.notebooks.content import is_done
from headtohead.tools.notebooks.editions import Edition, editions
from headtohead.tools.notebooks.known import EXPERIMENTS
from headtohead.tools.notebooks.writing import write_page

__all__ = ["EXPERIMENTS", "Edition", "editions", "is_done", "write_page"]
