"""What the forkserver loads once for all workers."""

import headtohead.plugins
import headtohead.runs.worker

headtohead.plugins.current()

__all__: list[str] = []
