"""The catalogue: pages with pictures, made from the registry.

``python -m headtohead.tools.catalogue docs/reference/catalogue`` writes them, ``--check`` tells whether they are
current, ``--plugin FILE`` takes the entries of a plugin file in.
"""
