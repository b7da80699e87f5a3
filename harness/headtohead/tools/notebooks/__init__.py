"""The five notebooks on one page: their choices, their experiments, and measurements of their pitfalls.

The facts about the notebooks (titles, printed digits, texts of the page) are in YAML files beside the code.
No notebook is named in the code. Importing this package imports torch.
"""

from __future__ import annotations

from headtohead.tools.notebooks.content import is_complete
from headtohead.tools.notebooks.descriptions import EXPERIMENTS
from headtohead.tools.notebooks.editions import Edition, editions
from headtohead.tools.notebooks.page import write_page

__all__ = ["EXPERIMENTS", "Edition", "editions", "is_complete", "write_page"]
