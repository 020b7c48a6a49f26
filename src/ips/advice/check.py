"""All problems of the data of a config, and what its training will cost."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import fmean, median

import torch
from rich.progress import Progress
from torch import Tensor

from ips.advice.cost import available_bytes, measure
from ips.advice.examine import Examined, compare, examine, look_alikes
from ips.advice.problems import Report
from ips.config import Config, TableConfig, TaskConfig
from ips.data.bags import labels_of_groups
from ips.data.cells import encoding_note
from ips.data.labels import CheckedLabels, check_labels, similar_labels
from ips.data.split import Split
from ips.data.table import NO_GROUP, Row
from ips.errors import DataError, IPSError, listed
from ips.patches.tissue import NEARLY_ALL
from ips.progress import rough_duration
from ips.tasks import build_tasks
from ips.training.checks import check_files, each_file, missing_classes, missing_labels
from ips.training.data import build_data, file_name, open_source
from ips.training.leaks import divided_names, equal_images
from ips.training.model import resolve
from ips.training.objects import table_objects
from ips.training.skipping import scan
from ips.training.splitting import split_rows

_FEW_IMAGES = 30  # for training
_FEW_OF_CLASS = 10
_GB = 2**30


def check_config(config: Config, progress: Progress) -> Report:
    """Open every file of a config once, and report all problems of files, labels and splits."""
    report = Report()
    if not isinstance(config.data, TableConfig):
        return _check_built(config, report, progress)
    try:
        scanned = scan(config, config.data)
    except DataError as error:  # not the table that the config describes
        report.add("error", error)
        return report
    table, root = config.data.csv, config.data.root or config.data.csv.parent
    report.add("error", *scanned.errors)
    if note := encoding_note(table):
        report.add("note", note)
    report.add(
        "error",
        *(
            f"{table}, line {row.line}: {file_name(row, root=root)} does not exist: correct the "
            "path, set data.root, or remove the line"
            for row in scanned.missing
        ),
    )
    labels = check_labels(scanned.rows, config.tasks, source=table)
    report.add("error", *labels.errors)
    _check_groups(config, config.data, labels, report)
    missing = {row.path for row in scanned.missing}
    rows = [row for row in scanned.rows if row.path not in missing]
    names = [file_name(row, root=root) for row in rows]
    files = _examine(config, rows, names, report, progress)
    if files:
        compare(files, config.patches, report)
    _check_objects(
        config, config.data, scanned.rows, dict(zip(names, rows, strict=True)), files, report
    )
    splits = _check_splits(config, config.data, labels, report, root=root)
    _check_copies(config.data, rows, names, files, splits, report)
    _add_facts(config, files, dict(zip(names, rows, strict=True)), splits, report)
    return report


def _check_groups(config: Config, data: TableConfig, labels: CheckedLabels, report: Report) -> None:
    """Report patients whose images have different labels, if they have one prediction."""
    if data.bags == "image":
        return
    specs, encoded = build_tasks(config.tasks), labels.encoded.labels
    try:
        found = labels_of_groups(labels.rows, encoded, specs, table=data.csv, bags=data.bags)
        report.facts["patients or groups"] = f"{len(found)} with {len(labels.rows)} images"
    except DataError as error:
        report.add("error", error)


def _check_built(config: Config, report: Report, progress: Progress) -> Report:
    """Check data that is no table: it is built, and its files are opened, as before a training."""
    try:
        data = build_data(config)
        resolve(config, data)
        if data.stored:
            check_files(data, progress)
    except IPSError as error:
        report.add("error", error)
        return report
    report.facts["images"] = f"{len(data.train)} to train, {len(data.test)} to test"
    return report


def _examine(
    config: Config, rows: Sequence[Row], names: Sequence[str], report: Report, progress: Progress
) -> dict[str, Examined]:
    """Open all files; report those that cannot be used, and return the others by name."""
    results = each_file(rows, lambda row: examine(row.path, config.patches), progress)
    bad = [result for result in results if isinstance(result, IPSError)]
    report.add("error", *(f"{error} (or train with --skip-errors)" for error in bad))
    return {
        name: result
        for name, result in zip(names, results, strict=True)
        if not isinstance(result, IPSError)
    }


def _check_objects(
    config: Config,
    data: TableConfig,
    rows: Sequence[Row],
    row_of: Mapping[str, Row],
    files: Mapping[str, Examined],
    report: Report,
) -> None:
    """Report mistakes in ``data.objects``; ``files`` are the images that can be opened."""
    open = partial(open_source, patches=config.patches)
    try:
        located = table_objects(data, rows, list(config.tasks), open)
    except DataError as error:
        report.add("error", error)
        return
    if located is None:
        return
    report.add("error", *located.errors)
    report.add("note", *located.notes)
    counts = []
    for name, file in files.items():
        problems = located.problems(row_of[name].path, file.size)
        report.add("error", *problems)
        if not problems:
            found = [located.regions(row_of[name].path, task) or [] for task in config.tasks]
            counts.append(max(map(len, found)))
    with_objects = sum(count > 0 for count in counts)
    report.facts["objects"] = f"{sum(counts):,} on {with_objects:,} of {len(counts):,} images"


def _check_splits(
    config: Config, data: TableConfig, labels: CheckedLabels, report: Report, *, root: Path
) -> dict[str, Split]:
    """Report what the splits lack; return the split of each file."""
    try:
        numbers = split_rows(labels.rows, labels.encoded.labels, data, config.tasks)
    except DataError as error:
        report.add("error", error)
        return {}
    tasks = build_tasks(
        {
            name: task.model_copy(update=_classes(labels.encoded.names.get(name)))
            for name, task in config.tasks.items()
        }
    )
    for split, some in numbers.items():
        encoded = [labels.encoded.labels[i] for i in some]
        if not encoded:
            continue
        report.add("note", *missing_labels({split: encoded}, tasks))
        try:
            missing = missing_classes({split: encoded}, tasks)
            report.add("error" if split == "train" else "warning", *missing)
        except DataError as error:
            report.add("error", error)
    if len(numbers["train"]) < _FEW_IMAGES:
        report.add(
            "warning",
            f"{data.csv}: only {len(numbers['train'])} training images: add some, since a model "
            f"rarely learns from fewer than {_FEW_IMAGES}",
        )
    for name, task in config.tasks.items():
        if task.has_classes:
            _check_classes(name, task, [labels.rows[i] for i in numbers["train"]], data, report)
        elif numbers["train"]:
            found = [labels.encoded.labels[i][name] for i in numbers["train"]]
            _check_numbers(name, task, found, report)
    report.facts["images"] = ", ".join(
        f"{len(some)} {split}" for split, some in numbers.items() if some
    )
    return {
        file_name(labels.rows[i], root=root): split for split, some in numbers.items() for i in some
    }


def _classes(names: Sequence[str] | None) -> dict[str, object]:
    """The settings of a task with these classes; None if it has no classes."""
    return {} if names is None else {"classes": len(names), "names": names}


def _check_numbers(name: str, task: TaskConfig, labels: Sequence[Tensor], report: Report) -> None:
    """Report the range of a regression, or the events of a survival task."""
    values = torch.stack(list(labels)).double()
    known = values[build_tasks({name: task})[name].known(values)]
    if not len(known):
        return
    times = known[:, 0] if task.kind == "survival" else known
    text = f"{float(times.min()):g} to {float(times.max()):g}, mean {float(times.mean()):.4g}"
    if task.kind == "survival":
        events = int(known[:, 1].sum())
        text = f"{events} events, {len(known) - events} censored; times {text}"
        if events < _FEW_OF_CLASS:
            report.add(
                "warning",
                f"only {events} training images have the event of {name!r}: add some, since only "
                "events teach",
            )
    report.facts[f"training images by {name}"] = text


def _check_classes(
    name: str, task: TaskConfig, rows: Sequence[Row], data: TableConfig, report: Report
) -> None:
    """Report classes with few training images, and labels that may be typing errors."""
    if task.kind == "multilabel":
        return
    counts = Counter(row.labels[name] for row in rows if row.labels[name])
    report.facts[f"training images by {name}"] = ", ".join(
        f"{label} {count}" for label, count in counts.most_common(10)
    )
    similar = similar_labels(counts)
    typos = {label: similar[label] for label in similar if label not in (task.names or ())}
    for label, meant in typos.items():
        row = next(row for row in rows if row.labels[name] == label)
        report.add(
            "warning",
            f"{data.csv}, line {row.line}: label {label!r} may be meant as {meant!r}: correct it, "
            "or ignore this if both exist",
        )
    for label, count in counts.items():
        if count < _FEW_OF_CLASS and label not in typos:
            report.add(
                "warning",
                f"{data.csv}: only {count} training images have the label {label!r} of {name!r}: "
                "add some, or merge it with another class",
            )


def _check_copies(
    data: TableConfig,
    rows: Sequence[Row],
    names: Sequence[str],
    files: Mapping[str, Examined],
    splits: Mapping[str, Split],
    report: Report,
) -> None:
    """Report equal and similar images, above all those in two splits or with two labels."""
    row_of = dict(zip(names, rows, strict=True))
    equal = [[names[i] for i in same] for same in equal_images([row.path for row in rows])]
    for same in equal:
        places = " and ".join(
            f"{name} (line {row_of[name].line}, {splits.get(name, 'no split')})" for name in same
        )
        if len({tuple(row_of[name].labels.values()) for name in same}) > 1:
            labels = " and ".join(", ".join(row_of[name].labels.values()) for name in same)
            report.add(
                "error",
                f"{places} have the same content but the labels {labels}: keep the right one",
            )
        elif len({splits.get(name) for name in same}) > 1:
            report.add(
                "error",
                f"{places} have the same content, so scores would be too good: keep one",
            )
        else:
            report.add("warning", f"{places} have the same content: keep one")
    known = {frozenset(pair) for same in equal for pair in combinations(same, 2)}
    pairs = [
        (a, b)
        for a, b in look_alikes(names, files)
        if splits.get(a) != splits.get(b) and frozenset((a, b)) not in known
    ]
    if pairs:
        a, b = pairs[0]
        more = f", and so do {len(pairs) - 1} more pairs" if len(pairs) > 1 else ""
        report.add(
            "warning",
            f"{a} ({splits.get(a)}) and {b} ({splits.get(b)}) look the same{more}: if they show "
            "the same scene, add a column `group`",
        )
    grouped = data.group == NO_GROUP or any(row.group for row in rows)
    placed = [name for name in names if name in splits]
    if not grouped and (text := divided_names(placed, [splits[name] for name in placed])):
        report.add("warning", text)


def _add_facts(
    config: Config,
    files: Mapping[str, Examined],
    rows: Mapping[str, Row],
    splits: Mapping[str, Split],
    report: Report,
) -> None:
    """Add sizes, N, the share of blank patches, and the expected time and memory."""
    if not files:
        return
    counts = sorted(file.patches for file in files.values())
    n, mean = median(counts), fmean(counts)
    report.facts["patches per image"] = f"{n:,.0f} (from {counts[0]:,} to {counts[-1]:,})"
    if config.patches.tissue is not None:
        kept = {name: 1 - file.left_out for name, file in files.items()}
        least, most = min(kept.values()), max(kept.values())
        share = f"{fmean(kept.values()):.0%} (from {least:.0%} to {most:.0%})"
        report.facts["patches with tissue"] = share
        if full := [name for name, share in kept.items() if share >= NEARLY_ALL]:
            report.add(
                "note",
                f"{listed(full)}: nearly all patches count as tissue: look at the thumbnails of "
                "`ips slides tissue`",
            )
    blank = fmean(file.blank for file in files.values())
    if next(iter(files.values())).look is not None:
        sizes = [(file.facts.width, file.facts.height) for file in files.values()]
        (a, b), (c, d) = min(sizes, key=math.prod), max(sizes, key=math.prod)
        same = (a, b) == (c, d)
        report.facts["sizes"] = f"{a} x {b} px" + ("" if same else f" to {c} x {d} px")
        report.facts["blank patches"] = f"{blank:.0%}"
    keep = config.select.keep
    if keep is not None and n <= keep:
        report.add(
            "note",
            f"select.keep={keep}, but half of the images have at most {n:,.0f} patches, so there "
            "is nothing to select: use smaller patches, or a smaller select.keep",
        )
    if blank > 0.3 and not config.select.skip_blank:
        report.add(
            "note",
            f"{blank:.0%} of the patches have a single colour: set select.skip_blank: true to "
            "save their time",
        )
    if config.method in ("cnn", "dps"):
        return
    typical = min(files, key=lambda name: abs(files[name].patches - n))
    try:
        cost = measure(config, rows[typical].path)
    except IPSError as error:
        report.add("error", error)
        return
    count = Counter(splits.values())
    seconds = cost.epoch_seconds(
        train=count["train"],
        validation=count["validation"],
        patches=mean,
        keep=min(keep or mean, mean),
        refresh=config.select.refresh,
    )
    peak = cost.peak_bytes(
        batch=config.train.batch,
        patches=counts[-1],
        keep=min(keep or counts[-1], counts[-1]),
        load=config.select.load,
    )
    start = cost.start_seconds(train=count["train"], patches=mean)
    total = rough_duration(start + seconds * config.train.epochs)
    report.facts["expected time"] = f"{rough_duration(seconds)} per epoch, {total} in all"
    report.facts["expected memory"] = f"{peak / _GB:.1f} GB"
    memory = available_bytes()
    if memory is not None and peak > 0.9 * memory:
        report.add(
            "warning",
            f"about {peak / _GB:.1f} GB of memory are needed and this machine has "
            f"{memory / _GB:.1f} GB: reduce train.batch, or set select.load: lazy",
        )
