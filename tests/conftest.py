"""What all tests share."""

from __future__ import annotations

import os

# Tests start hundreds of processes. Each compiled every module anew where this is set.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
