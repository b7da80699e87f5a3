"""Hand-written pages stay short, and every how-to opens with its command."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]
MAX_WORDS = 34_000
"""Words of all hand-written pages."""

MAX_WORDS_BEFORE_COMMAND = 40
HOW_TO = sorted((ROOT / "docs" / "how-to").glob("*.md"))


@pytest.fixture(scope="module")
def counter() -> ModuleType:
    spec = importlib.util.spec_from_file_location("words", ROOT / "docs" / "generator" / "words.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_hand_written_pages_have_at_most_the_permitted_words(counter: ModuleType) -> None:
    counted = counter.hand_written(["."])
    assert {"README.md", "docs/tutorial.md", "harness/headtohead/SKILL.md"} <= counted.keys()
    assert not {"CHANGELOG.md", "docs/reference/cli.md", "benchmarks/results.md"} & counted.keys()
    assert sum(counted.values()) <= MAX_WORDS


def test_a_folder_has_the_pages_below_it(counter: ModuleType) -> None:
    counted = counter.hand_written(["docs/how-to", "docs/results"])
    assert {Path(name).parent.as_posix() for name in counted} == {"docs/how-to", "docs/results"}


def test_code_blocks_and_generated_regions_do_not_count(counter: ModuleType) -> None:
    text = """# Two words
<!-- table: data -->
| generated |
<!-- end of table -->
- three more words

  ```sh
  not counted
  ```
"""
    assert counter.words(text) == 7


@pytest.mark.parametrize("path", HOW_TO, ids=lambda path: path.stem)
def test_a_how_to_opens_with_its_command(path: Path) -> None:
    opening, _, rest = path.read_text(encoding="utf-8").partition("\n```")
    assert re.match(r"(sh|console)\n", rest)
    _, *sentences = opening.strip().splitlines()
    assert 0 < len(" ".join(sentences).split()) <= MAX_WORDS_BEFORE_COMMAND
