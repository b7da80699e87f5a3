"""Resume points of a stack: files of tensors from which training continues after an interruption.

The name of a file contains its step and the sha256 of its content, so a file and its checksum are published in a single
rename. The two newest resume points are kept; if the newest is damaged, training continues from the other.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from headtohead import files

KEPT = 2
NAME = re.compile(r"resume-([0-9]{1,18})-([0-9a-f]{64})\.safetensors")


@dataclass(frozen=True)
class ResumePoint:
    """A resume point, with the step and the sha256 of its file name."""

    path: Path
    step: int
    sha256: str

    def is_intact(self) -> bool:
        """Return whether the file has the content that was written.

        Raises:
            OSError: If the file cannot be opened, which does not show that it is damaged.
        """
        try:
            with files.disk_errors():
                return files.sha256(self.path) == self.sha256
        except OSError as error:
            if error.errno != errno.EIO:
                raise
            return False


@dataclass(frozen=True)
class ResumePoints:
    """The resume points in a folder."""

    folder: Path

    def newest_first(self) -> list[ResumePoint]:
        """Return the resume points by descending step."""
        points = [
            ResumePoint(path, int(match[1]), match[2])
            for path in self.folder.glob("resume-*")
            if (match := NAME.fullmatch(path.name))
        ]
        return sorted(points, key=lambda point: point.step, reverse=True)

    def save(self, step: int, write: Callable[[Path], object]) -> None:
        """Write the resume point of a step, and remove all but the newest earlier resume point.

        Args:
            step: The step.
            write: Writes the file, atomically.
        """
        # The sha256 of a large file is not known before it is written.
        unnamed = self.folder / "resume-unnamed.safetensors"
        write(unnamed)
        named = self.folder / f"resume-{step}-{files.sha256(unnamed)}.safetensors"
        os.replace(unnamed, named)
        others = [point for point in self.newest_first() if point.path != named]
        earlier = [point for point in others if point.step < step][: KEPT - 1]
        for point in others:
            if point not in earlier:
                point.path.unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove all resume points."""
        for path in self.folder.glob("resume-*"):
            path.unlink(missing_ok=True)
