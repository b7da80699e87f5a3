"""The MLflow logger: the store, the pages of studies and runs, their saved views, and ``h2h ui``.

Only this package imports mlflow, and only when it is used.
"""
