"""Readers of the results of other programs; a reader is a module here and an entry of one of the lists.

`TABLES` are tables that are recognised by their columns, `FOLDERS` are folders that are recognised by the names of
their files, `DATABASES` are SQLite files that are recognised by their tables. The first format that recognises a file
or finds results is used. `headtohead_judge.readers.stores` has the list of stores with an address, and
`headtohead_judge.readers.formats` describes the four kinds.
"""

from headtohead_judge.readers.autoresearch import AUTORESEARCH
from headtohead_judge.readers.formats import (
    DatabaseFormat,
    FolderFormat,
    TableFormat,
)
from headtohead_judge.readers.metrics_files import METRICS_FILES
from headtohead_judge.readers.modded_nanogpt import MODDED_NANOGPT
from headtohead_judge.readers.nanochat import NANOCHAT, NANOCHAT_SERIES
from headtohead_judge.readers.parameter_golf import PARAMETER_GOLF
from headtohead_judge.readers.pi_autoresearch import PI_AUTORESEARCH
from headtohead_judge.readers.trackio import TRACKIO_DATABASE, TRACKIO_TABLE
from headtohead_judge.readers.wandb import WANDB_API_TABLE, WANDB_HISTORIES, WANDB_RUNS_TABLE

TABLES: tuple[TableFormat, ...] = (
    PI_AUTORESEARCH,
    AUTORESEARCH,
    NANOCHAT,
    WANDB_RUNS_TABLE,
    WANDB_API_TABLE,
    TRACKIO_TABLE,
)

FOLDERS: tuple[FolderFormat, ...] = (
    PARAMETER_GOLF,
    METRICS_FILES,
    NANOCHAT_SERIES,
    WANDB_HISTORIES,
    MODDED_NANOGPT,
)

DATABASES: tuple[DatabaseFormat, ...] = (TRACKIO_DATABASE,)
