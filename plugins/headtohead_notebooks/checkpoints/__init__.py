"""Import of a notebook's checkpoint as a run of headtohead."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from headtohead.config.loading import read_override
from headtohead.config.project import runs_folder
from headtohead.planning.pitfalls import find_pitfalls
from headtohead.plugins.registry import current
from headtohead_notebooks.checkpoints.imported_run import check_name, refuse_existing, write_imported
from headtohead_notebooks.checkpoints.reading import read_checkpoint


def import_checkpoint(
    file: Path | str,
    *,
    recipe: str,
    name: str,
    data: Path | str | None = None,
    overrides: Sequence[str] = (),
    runs: Path | None = None,
    force: bool = False,
    log: Callable[[str], object] = lambda line: None,
) -> Path:
    """Import a notebook's state dict as a run directory and return its path.

    Args:
        file: File written by ``torch.save(model.state_dict(), file)``.
        recipe: Name of the notebook's recipe.
        name: Name of the run in ``runs/imported``.
        data: The notebook's file of sentence pairs, if it used one.
        overrides: Values that neither the checkpoint nor the recipe determines, for example ``"model.heads=2"``.
        runs: Folder of run directories.
        force: Replace an existing run of that name.
        log: Receives lines of text for the user.

    Raises:
        HeadToHeadError: If the file is not a state dict or does not match the recipe.
    """
    root = runs_folder(given=runs)
    check_name(name)
    if not force:
        refuse_existing(name, root)
    registry = current()
    settings = [read_override(text) for text in overrides]
    checkpoint = read_checkpoint(Path(file), recipe, registry, Path(data) if data else None, settings)
    log(checkpoint.summary())
    pitfalls = [pitfall.name for pitfall in find_pitfalls(checkpoint.config, registry)]
    if pitfalls:
        log(f"pitfalls: {', '.join(pitfalls)}")
    for note in checkpoint.vocabulary.notes:
        log(f"note: {note}")
    return write_imported(checkpoint, name, root, registry)
