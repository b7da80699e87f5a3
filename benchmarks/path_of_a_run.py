"""Count the changes of file between `headtohead.api.run` and the first training step.

``python benchmarks/path_of_a_run.py`` trains a small study of two variants in this process, with an empty cache, and
ends it at its first step. The path of a run is the list of files whose functions it calls:

- a *stop* is a call of a function in another file than its caller's,
- a *return* is a stop in a file that the path has entered before,
- a *pair* is a caller and a callee in different files, however often one calls the other.

Only functions of headtohead and its plugins count. A call through a library, such as that of a validator by pydantic,
counts as a call by the function that called the library. The import of a module does not count, nor does a generator
that continues, nor what torch calls for each of its operations (``__torch_function__``). The data are few, since
functions that are called for each sentence would hide the others.
"""

from __future__ import annotations

import argparse
import inspect
import os
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType

ROOT = Path(__file__).parents[1]
FOLDERS = (ROOT / "harness", ROOT / "plugins")
PER_OPERATION = "__torch_function__"
FIRST_STEP = "StackTraining._step"

EXPERIMENT = {
    "question": "Does rotary encoding beat sinusoidal encoding?",
    "base": {
        "data": {"dataset": "toy-grammar", "size": 50, "split": "iid"},
        "model": {"d_model": 32, "heads": 2, "layers": 1, "d_ff": 64, "dropout": 0.0},
        "train": {
            "epochs": 14,
            "batch_tokens": 512,
            "lr": 2e-2,
            "schedule": "cosine",
            "warmup_steps": 50,
        },
    },
    "baseline": {"positional": "sinusoidal"},
    "design": [{"one_at_a_time": {"positional": ["rotary"]}}],
    "seeds": 2,
    "metrics": {"primary": "test/exact_match", "report": ["valid/loss"]},
}
"""The quickstart with two variants and two seeds."""


class EndOfPath(BaseException):
    """Raised at the end of a path; no handler of errors catches it."""


@dataclass
class CallPath:
    """The calls of functions in other files.

    Args:
        folders: Functions of files in these folders count.
        end: Qualified name of the function that ends the path; its call is counted.
        calls: Numbers of calls by caller and callee, each ``<file>:<qualified name>``.
        files: The files in the order of the calls.
    """

    folders: tuple[Path, ...]
    end: str
    calls: Counter[tuple[str, str]] = field(default_factory=Counter)
    files: list[str] = field(default_factory=list)
    _relative: dict[str, str | None] = field(default_factory=dict)

    @property
    def returns(self) -> int:
        """The number of stops in files that were entered before."""
        return len(self.files) - len(set(self.files))

    def record(self, function: Callable[[], object]) -> None:
        """Call a function and record its calls until the end of the path.

        Raises:
            ValueError: If the function returns before the end of the path.
        """
        sys.setprofile(self._profile)
        try:
            function()
        except EndOfPath:
            return
        finally:
            sys.setprofile(None)
        raise ValueError(f"the path does not reach {self.end}")

    def _profile(self, frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        file = self._file(frame.f_code)
        if file is None or not _is_start(frame):
            return
        caller = self._caller(frame)
        if caller is None:
            return
        caller_file = self._file(caller)
        if caller_file != file:
            self.files.append(file)
            pair = (f"{caller_file}:{caller.co_qualname}", f"{file}:{frame.f_code.co_qualname}")
            self.calls[pair] += 1
        if frame.f_code.co_qualname == self.end:
            raise EndOfPath

    def _caller(self, frame: FrameType) -> CodeType | None:
        """Return the function of the folders that called a frame, or None while a module is imported."""
        caller = None
        below = frame.f_back
        while below is not None:
            if self._file(below.f_code) is not None:
                if not _is_function(below.f_code):
                    return None
                caller = caller or below.f_code
            below = below.f_back
        return caller

    def _file(self, code: CodeType) -> str | None:
        """Return the file of a function relative to its folder, or None if it is in no folder."""
        name = code.co_filename
        if name not in self._relative:
            self._relative[name] = None
            for folder in self.folders:
                if Path(name).is_relative_to(folder):
                    self._relative[name] = str(Path(name).relative_to(folder))
        return self._relative[name]


def _is_function(code: CodeType) -> bool:
    """Return whether code is a function's; the code of a module or of a class body is not."""
    return bool(code.co_flags & inspect.CO_OPTIMIZED)


def _is_start(frame: FrameType) -> bool:
    """Return whether a frame is a function at its start, and not a generator that continues."""
    if not _is_function(frame.f_code):
        return False
    is_generator = frame.f_code.co_flags & inspect.CO_GENERATOR
    if frame.f_code.co_name == PER_OPERATION:
        return False
    return not is_generator or frame.f_code.co_code[frame.f_lasti + 1] == 0  # `RESUME 0`


def path_of_a_run(folder: Path) -> CallPath:
    """Return the path of a study in an empty folder, with its cache in the folder too."""
    os.environ["H2H_CACHE"] = str(folder / "cache")
    from headtohead import api

    path = CallPath(FOLDERS, FIRST_STEP)
    path.record(
        lambda: api.run(
            EXPERIMENT,
            name="path-of-a-run",
            runs=folder / "runs",
            device="cpu",
            launcher="inline",
            tracking=False,
            log=lambda line: None,
        )
    )
    return path


def lines(path: CallPath, largest: int) -> Iterable[str]:
    """Yield the figures of a path, then its largest numbers of calls by files and by functions."""
    yield f"{len(path.files)} stops, {path.returns} returns, {len(path.calls)} pairs"
    by_file: Counter[tuple[str, str]] = Counter()
    for (caller, callee), number in path.calls.items():
        by_file[caller.partition(":")[0], callee.partition(":")[0]] += number
    for title, counts in (("Files", by_file), ("Functions", path.calls)):
        yield f"\n{title}:"
        for (caller, callee), number in counts.most_common(largest):
            yield f"{number:6}  {caller} -> {callee}"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--largest", type=int, default=0, help="number of pairs that are printed")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        for line in lines(path_of_a_run(Path(folder)), options.largest):
            print(line)


if __name__ == "__main__":
    main()
