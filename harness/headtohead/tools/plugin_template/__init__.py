"""``h2h new-plugin``: a package that registers one variant, with its test, ready to be changed."""

from __future__ import annotations

from headtohead.tools.plugin_template.names import Names
from headtohead.tools.plugin_template.package import FAMILIES, write_package

__all__ = ["FAMILIES", "Names", "write_package"]
