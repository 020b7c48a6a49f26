"""What the commands that look at images share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from ips.cli.app import err

if TYPE_CHECKING:
    from ips.explain import Explanation
    from ips.predictor import Predictor


def look(predictor: Predictor, path: str) -> Explanation:
    """What the model says of a file; a bar shows how far it is."""
    from ips.progress import progress_bar

    total = len(predictor.open(path))
    with progress_bar(err, transient=True) as bar:
        task = bar.add_task(Path(path).name, total=total, note="patches")
        try:
            return predictor.predict(path, progress=lambda done: bar.update(task, completed=done))
        except KeyboardInterrupt:
            kept = predictor.unfinished(path)
            if kept is None:
                raise
            raise KeyboardInterrupt(
                f"scores so far are kept in {kept.parent}, the same command goes on"
            ) from None


def make_folder(folder: Path, option: str) -> None:
    """The folder of an option, which may be there already."""
    from ips.errors import ConfigError

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise ConfigError(f"{option} {folder}: that is a file: give a folder") from error
