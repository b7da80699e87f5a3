"""The catalogue: pages with pictures, made from the registry.

``python -m headtohead.catalogue docs/reference/catalogue`` writes them, ``--check`` exits with 1 if
they are not current, ``--plugin FILE`` adds the entries of a plugin file.
"""
