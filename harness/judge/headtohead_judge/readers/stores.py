"""Stores with an address; a separate list, since reading from a network takes time to import."""

from headtohead_judge.readers.formats import StoreFormat
from headtohead_judge.readers.mlflow import MLFLOW_SERVER, MLFLOW_SQLITE

STORES: tuple[StoreFormat, ...] = (MLFLOW_SQLITE, MLFLOW_SERVER)
