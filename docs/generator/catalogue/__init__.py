"""The catalogue: generated pages with pictures of every registered entry.

``python -m catalogue FOLDER`` writes the pages, ``--check`` reports files that are not
current, and ``--plugin FILE`` adds the entries of a plugin file.
"""
