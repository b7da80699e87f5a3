"""Links of the package page: addresses of the project, and a README with links that work outside of the repository."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

CODE_BLOCK = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
IMAGE = re.compile(r"!\[([^\]]*)\]\(([^)\s]+)\)")
LINK = re.compile(r"(?<!!)\[((?:!\[[^\]]*\]\([^)\s]+\)|[^\[\]])*)\]\(([^)\s]+)\)")
ABSOLUTE = re.compile(r"[a-z]+:")


class PackagePage(MetadataHookInterface):
    """Sets ``readme`` and ``urls`` from the addresses in pyproject.toml."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the README with absolute links, and the addresses that are not empty."""
        readme = Path(self.root, "README.md").read_text(encoding="utf-8")
        repository = self.config["repository"]
        text = with_absolute_links(readme, repository, metadata["version"])
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = addresses(repository, self.config["site"])


def addresses(repository: str, site: str) -> dict[str, str]:
    """Return the links beside the package page by their labels."""
    urls = {}
    if repository:
        urls["Repository"] = repository
        urls["Changelog"] = f"{repository}/blob/HEAD/CHANGELOG.md"
    if site:
        urls["Documentation"] = site
    return urls


def with_absolute_links(readme: str, repository: str, version: str) -> str:
    """Return a README whose links lead to the files of a version in the repository.

    Without a repository, a link to a file becomes its text, and an image of a file is left out. Code blocks stay.
    """

    def image(match: re.Match[str]) -> str:
        text, target = match.groups()
        if ABSOLUTE.match(target):
            return match[0]
        return f"![{text}]({repository}/raw/v{version}/{target})" if repository else ""

    def link(match: re.Match[str]) -> str:
        text, target = match.groups()
        if ABSOLUTE.match(target):
            return match[0]
        return f"[{text}]({repository}/blob/v{version}/{target})" if repository else text

    parts = CODE_BLOCK.split(readme)
    for index in range(0, len(parts), 2):  # the odd parts are code blocks
        parts[index] = IMAGE.sub(image, LINK.sub(link, parts[index]))
    return "".join(parts)
