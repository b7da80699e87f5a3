"""Exit with 1 unless a tag matches the version in all files: ``python .ci/tag.py v0.1.0``."""

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def problems(tag: str, root: Path = ROOT) -> list[str]:
    """Return what differs from a tag, a line per file; empty if the version can be released."""
    version = tag.removeprefix("v")
    found = []
    for name in ("pyproject.toml", "harness/judge/pyproject.toml"):
        project = tomllib.loads((root / name).read_text(encoding="utf-8"))["project"]
        if tag != f"v{project['version']}":
            found.append(f"{name} has version {project['version']}, not that of tag {tag}")
    if f"\nversion: {version}\n" not in (root / "CITATION.cff").read_text(encoding="utf-8"):
        found.append(f"CITATION.cff lacks version {version}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    if not re.search(rf"^## {re.escape(version)}, \d{{4}}-\d\d-\d\d$", changelog, re.MULTILINE):
        found.append(f"CHANGELOG.md lacks the heading '## {version}, YYYY-MM-DD'")
    return found


if __name__ == "__main__":
    lines = problems(sys.argv[1])
    for line in lines:
        print(line, file=sys.stderr)
    sys.exit(1 if lines else 0)
