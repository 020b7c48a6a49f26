"""The page of a report: one HTML file with its style and pictures inside, and no scripts."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.colors import to_hex

from ips._version import __version__
from ips.config import Config
from ips.config_io import describe
from ips.explain.colours import class_colours, class_name, ink_on, rgb, shortened
from ips.explain.spread import times
from ips.files import atomic_write
from ips.localisation import CAVEAT, CHANCE, Localisation, notes
from ips.predictions import PURPOSE, TestPredictions
from ips.report.charts import epoch_chart, froc_chart, tick_texts
from ips.report.curves import losses, read_log, score_curves
from ips.report.examples import Picture
from ips.report.facts import costs, counted, data_name, setup
from ips.report.results import task_results


@dataclass(frozen=True)
class ReportContent:
    """What a report shows.

    Attributes:
        model: description of the model, see `ips.models.Net.describe`.
        parameters: number of trainable parameters.
        train_images: number of training images; None for a report that is not about the training.
        log: path of ``metrics.csv``, which need not exist.
        best: numbers of correct images to show.
        worst: numbers of wrong images to show.
        pictures: pictures of these images by number; none for images that consist of features.
        patch_classes: names of the classes of patches; None without a patch-level head.
        data: name of the data; None for that of the config.
        localisation: by task, how well attention agrees with the objects; empty if unknown.
        resampled: what intervals come from a bootstrap over, such as a number of patients; None if
            they take the images as independent.
        notes: sentences to read before the scores.
    """

    name: str
    config: Config
    model: Mapping[str, str]
    parameters: int
    train_images: int | None
    log: Path
    predictions: TestPredictions
    best: Sequence[int]
    worst: Sequence[int]
    pictures: Mapping[int, Picture]
    patch_classes: Sequence[str] | None
    data: str | None = None
    localisation: Mapping[str, Localisation] = field(default_factory=dict)
    resampled: str | None = None
    notes: Sequence[str] = ()


def write_page(path: Path, content: ReportContent) -> None:
    """Write the page of a report, atomically."""
    config, log = content.config, read_log(content.log)
    css = files("ips.report").joinpath("templates/report.css").read_text(encoding="utf-8")
    pictures = content.pictures.values()
    palette = class_colours([(p.labels, p.strength.tolist()) for p in pictures if p.labels])
    charts = {}
    if log:
        charts["Loss"] = epoch_chart(log["epoch"], losses(log), name="Loss", unit=False)
        for name, scores in score_curves(log).items():
            unit = all(np.nanmin(values, initial=0) >= 0 for values in scores.values())
            charts[name] = epoch_chart(log["epoch"], scores, name=name, unit=unit)
    page = (
        _environment()
        .get_template("report.html.j2")
        .render(
            content=content,
            data=content.data or data_name(config),
            setup=setup(
                config,
                model=content.model,
                parameters=content.parameters,
                train=content.train_images,
                test=len(content.predictions.images),
            ),
            charts=charts,
            results=[task_results(task) for task in content.predictions.tasks],
            froc=froc_chart(content.localisation) if content.localisation else None,
            caveat=CAVEAT,
            purpose=PURPOSE,
            object_notes=notes(content.localisation),
            chance_names=CHANCE,
            palette=palette,
            costs=costs(log, images=content.train_images or 0),
            settings=None if content.train_images is None else describe(config),
            version=__version__,
            css=Markup(css),
            css_hash=base64.b64encode(hashlib.sha256(css.encode()).digest()).decode(),
        )
    )
    with atomic_write(path) as stream:
        # A file name may hold bytes that are not valid Unicode.
        stream.write(page.encode("utf-8", errors="replace"))


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("ips.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "counted": counted,
        "class_name": lambda label, names: class_name(names, label),
        "num": lambda value: f"{value:.5g}",
        "shortened": shortened,
        "tick_texts": tick_texts,
        "times": times,
        "shade": lambda share: f"s{max(1, round(8 * share))}" if share else "z",
        "hex": to_hex,
        "ink": lambda colour: ink_on(rgb(colour)),
    }
    return environment
