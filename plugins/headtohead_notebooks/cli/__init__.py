"""The commands of the notebooks: ``h2h notebooks``, ``h2h trace`` and ``h2h import-checkpoint``."""
