"""The catalogue: generated pages with pictures of every built-in entry.

``python -m catalogue FOLDER`` writes the pages.
"""
