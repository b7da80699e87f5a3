"""The choice of tuned values: settings, sweep, widening and curve."""
