"""The page that compares the five notebooks: their choices, their experiments, and measurements of their pitfalls.

The facts about the notebooks (titles, printed digits, texts of the page) are in YAML files beside the code.
No notebook is named in the code. Importing this package imports torch.
"""

from __future__ import annotations

from headtohead_notebooks.page.descriptions import EXPERIMENTS
from headtohead_notebooks.page.editions import Edition, editions
from headtohead_notebooks.page.page import write_page

__all__ = ["EXPERIMENTS", "Edition", "editions", "write_page"]
