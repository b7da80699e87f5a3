"""Logging of run directories to MLflow. Only this package imports mlflow, and only when it is used.

The run directories are the source of truth; the MLflow runs can be rebuilt from them at any time.
"""

from __future__ import annotations

from headtohead.tracking.environment import installed
from headtohead.tracking.retrieval import materialise
from headtohead.tracking.shipping import ShipReport, ship
from headtohead.tracking.store import default_uri

__all__ = ["ShipReport", "default_uri", "installed", "materialise", "ship"]
