"""The interval of a score or a difference as SVG."""

from __future__ import annotations

import math

from markupsafe import Markup

WIDTH, HEIGHT = 180, 16
"""Size of the drawing of an interval, in SVG units."""


def interval(low: float, mean: float, high: float, ends: tuple[float, float]) -> Markup:
    """Return an SVG of a mean and its interval on an axis, with a mark at 0.

    Args:
        low: Lower end of the interval; not finite if there is no interval.
        mean: The mean.
        high: Upper end of the interval.
        ends: Ends of the axis; numbers beyond them are clipped.
    """
    start, end = ends
    size = end - start or 1.0

    def x(value: float) -> float:
        return 4 + (WIDTH - 8) * min(1.0, max(0.0, (value - start) / size))

    middle = HEIGHT / 2
    parts = [f'<line x1="4" y1="{middle}" x2="{WIDTH - 4}" y2="{middle}" class="axis"/>']
    if start <= 0 <= end:
        parts.append(f'<line x1="{x(0):.1f}" y1="1" x2="{x(0):.1f}" y2="{HEIGHT - 1}" class="zero"/>')
    if math.isfinite(low) and math.isfinite(high):
        parts.append(f'<line x1="{x(low):.1f}" y1="{middle}" x2="{x(high):.1f}" y2="{middle}" class="bar"/>')
    if math.isfinite(mean):
        parts.append(f'<circle cx="{x(mean):.1f}" cy="{middle}" r="3.5" class="dot"/>')
    label = f"{mean:.3g}, from {low:.3g} to {high:.3g}"
    return Markup(
        f'<svg class="interval" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{label}">{"".join(parts)}</svg>'
    )
