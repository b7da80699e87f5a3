"""The folder of a report: the names of its files, and which of them may be replaced."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from headtohead import files, ownership
from headtohead.errors import HeadToHeadError
from headtohead.storage.paths import checked_path

PAGE = "index.html"
MARKDOWN = "report.md"
ANSWER = "answer.json"
TABLE = "results.csv"
CHECKSUMS = "SHA256SUMS"
"""File with the sha256 of every other file of a report except its page; ``sha256sum -c SHA256SUMS`` tests them."""
FILES = (PAGE, MARKDOWN, ANSWER, TABLE, CHECKSUMS)
FIGURES = "figures"

ANSWER_FORMAT = "headtohead-answer/"
"""Beginning of the ``format`` of `ANSWER`."""

ADVICE = "move it away, or choose another folder with --reports"


def checked_report_folder(reports_root: Path, name: str) -> Path:
    """Return the folder of an experiment's report, which need not exist, after a check that it may be written.

    If the folder has the answer of a report, and its list of the files of headtohead lacks the answer, as in a fresh
    clone, the present files of the report are added to this list.

    Raises:
        HeadToHeadError: If a file of a report in it was changed after headtohead wrote it, or was not written by
            headtohead; if the folder is or contains a symbolic link, or cannot be written.
    """
    folder = checked_path(reports_root, name, tree=True)
    if not folder.exists():
        return folder
    with files.writing(folder, "choose another folder with --reports"):
        if ANSWER not in ownership.names_in_manifest(folder) and _is_answer(folder / ANSWER):
            figures = (path.relative_to(folder).as_posix() for path in folder.glob(f"{FIGURES}/*"))
            ownership.adopt(folder, [*FILES, *figures])
        names = {*FILES, *ownership.names_in_manifest(folder)}
        ownership.refuse_foreign(folder, names, ADVICE)
    return folder


def _is_answer(path: Path) -> bool:
    """Return whether a file is the answer of a report; False for a missing file, and for one that is no JSON."""
    with suppress(FileNotFoundError, HeadToHeadError):
        answer = files.read_json(path)
        return isinstance(answer, dict) and str(answer.get("format")).startswith(ANSWER_FORMAT)
    return False
