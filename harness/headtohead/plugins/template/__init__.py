"""``h2h new-plugin``: write an installable package with a working plugin and its test."""

from __future__ import annotations

from headtohead.plugins.template.names import PluginNames
from headtohead.plugins.template.package import TEMPLATE_FAMILIES, write_package

__all__ = ["TEMPLATE_FAMILIES", "PluginNames", "write_package"]
