"""Logging of run directories to MLflow and other loggers.

The run directories are the source of truth; what a tracker has can be rebuilt from them at any time. A tracker that
cannot be used raises a HeadToHeadError, and nothing is changed.
"""

from headtohead.tracking.shipping import ShipReport as ShipReport
from headtohead.tracking.shipping import ship as ship
