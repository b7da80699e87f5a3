"""Lines of files with unusual beginnings, line ends and compressions."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headtohead.data import read_lines
from made.texts import random_texts


@given(
    lines=st.lists(random_texts("aé日🙂 \t\v\f\x1c\x85\u2028")),
    end=st.sampled_from(["\n", "\r\n"]),
    mark=st.booleans(),
    last=st.booleans(),
)
def test_lines_have_no_byte_order_mark_and_no_line_ends(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], end: str, mark: bool, last: bool
) -> None:
    lines = [*lines, "x"]
    path = tmp_path_factory.mktemp("lines") / "file.txt"
    text = ("\ufeff" if mark else "") + end.join(lines) + (end if last else "")
    path.write_bytes(text.encode())
    assert read_lines(path) == lines


def test_the_content_decides_the_compression_not_the_name(tmp_path: Path) -> None:
    import gzip

    path = tmp_path / "plain.txt"
    path.write_bytes(gzip.compress(b"one\ntwo\n"))
    assert read_lines(path) == ["one", "two"]
