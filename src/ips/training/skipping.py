"""Train without the files of a table that cannot be read (``--skip-errors``)."""

from __future__ import annotations

from rich.progress import Progress

from ips.config import Config, TableConfig, label_columns
from ips.config_io import parse_saved_config, read_yaml
from ips.data.table import ScannedTable, scan_table, write_csv
from ips.errors import ConfigError, DataError, IPSError
from ips.training.checks import each_file, usable
from ips.training.data import file_name, open_source
from ips.training.folder import RunFolder
from ips.training.processes import Processes


def skip_bad_files(config: Config, folder: RunFolder, progress: Progress) -> Config:
    """A copy of the config whose ``data.exclude`` has all files that cannot be used.

    They are listed in ``skipped.csv`` of the run folder, with the reason. A run or cross-validation
    that was started already leaves out the same files as before.
    """
    if not isinstance(config.data, TableConfig):
        raise ConfigError(
            f"--skip-errors with data.kind={config.data.kind}: only files of a table can be left "
            "out, so leave out the option"
        )
    if (started := _started(folder)) is not None:
        saved = parse_saved_config(read_yaml(started.config), source=str(started.config)).data
        return _excluding(config, saved.exclude if isinstance(saved, TableConfig) else [])
    found = bad_files(config, config.data, progress)
    if not found:
        return config
    if Processes.of(config).is_first:
        write_csv(folder.skipped, ("path", "reason"), list(found.items()))
    listed = "; ".join(list(found.values())[:3]) + ("; ..." if len(found) > 3 else "")
    progress.console.print(
        f"left out {len(found)} files that cannot be used ({listed}): all are in {folder.skipped}",
        markup=False,
        highlight=False,
        soft_wrap=True,
    )
    return _excluding(config, [*config.data.exclude, *found])


def scan(config: Config, data: TableConfig) -> ScannedTable:
    """Read the table of a config, with all mistakes in it."""
    return scan_table(
        data.csv,
        root=data.root,
        path=data.path,
        tasks=label_columns(config.tasks),
        group=data.group,
        exclude=data.exclude,
    )


def bad_files(config: Config, data: TableConfig, progress: Progress) -> dict[str, str]:
    """Name of each file of a table that is missing or cannot be used, and the reason."""
    scanned = scan(config, data)
    if scanned.errors:
        raise scanned.errors[0]
    root = data.root or data.csv.parent
    names = [file_name(row, root=root) for row in scanned.rows]
    paths = [row.path for row in scanned.rows]
    results = each_file(paths, lambda path: usable(open_source(path, config.patches)), progress)
    found = {
        name: str(result)
        for name, result in zip(names, results, strict=True)
        if isinstance(result, IPSError)
    }
    if len(found) == len(names):
        raise DataError(f"{data.csv}: no file can be used: {next(iter(found.values()))}")
    return found


def _started(folder: RunFolder) -> RunFolder | None:
    """The run that was started in the folder, or in that of one of its folds; None if none was."""
    folds = sorted(folder.path.glob("*fold-*"))
    for run in (folder, *map(RunFolder, folds)):
        if run.has_run(resume=True) and run.config.is_file():
            return run
    return None


def _excluding(config: Config, names: list[str]) -> Config:
    data = config.data.model_copy(update={"exclude": names})
    return config.model_copy(update={"data": data})
