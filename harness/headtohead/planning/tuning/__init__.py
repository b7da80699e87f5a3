"""How the values of tuned fields are chosen: settings, sweep, widening, curve and choice."""
