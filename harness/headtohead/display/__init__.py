"""What Jupyter shows of plans, results, runs and attention maps: HTML, every text escaped.

Nothing is imported here: an object asks for its own page when a cell shows it.
"""
