"""Jinja2 environments for pages."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined


@cache
def environment(package: str, *, html: bool = False) -> Environment:
    """Return the environment of a package with a folder ``templates``.

    Args:
        package: Import name of the package.
        html: Whether values are escaped for HTML; in Markdown the templates escape with filters.
    """
    return Environment(
        loader=PackageLoader(package),
        autoescape=html,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


def tidy_markdown(text: str) -> str:
    """Return Markdown with at most one empty line between blocks."""
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
