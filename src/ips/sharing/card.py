"""The model card of a run: what the model does, its scores, its data, its limits."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from ips._version import __version__
from ips.config import TableConfig
from ips.errors import RunError
from ips.localisation import CAVEAT
from ips.predictions import PURPOSE
from ips.predictor import Predictor
from ips.report.facts import data_name, setup
from ips.tasks import Task

_FEW = 12  # class names that are listed


@dataclass(frozen=True)
class Picture:
    """A picture beside the card."""

    file: str
    text: str


def model_card(
    predictor: Predictor,
    *,
    test: Path,
    pictures: Sequence[Picture] = (),
    licence: str | None = None,
) -> str:
    """The card of a trained model, as Markdown.

    Args:
        predictor: the model.
        test: ``test.json`` of its run, which may be missing.
        pictures: pictures beside the card.
        licence: identifier of the licence of the weights, such as ``apache-2.0``.
    """
    config = predictor.config
    results = _results(test)
    facts = setup(
        config,
        model=predictor.net.describe(),
        parameters=sum(weight.numel() for weight in predictor.net.parameters()),
        train=None,
        test=0,
    )
    facts = {"data": data_name(config), "method": config.method, **facts}
    facts["epochs"] = f"{config.train.epochs}"
    return _template().render(
        title=f"{', '.join(predictor.tasks)} ({data_name(config)})",
        licence=licence,
        version=__version__,
        tasks={name: _in_words(task) for name, task in predictor.tasks.items()},
        purpose=PURPOSE,
        caveat=f"{CAVEAT[:1].upper()}{CAVEAT[1:]}.",
        scores=list(_rows(results)),
        verdicts={
            name: found["verdict"] for name, found in results.items() if found.get("verdict")
        },
        facts=facts,
        pictures=pictures,
        groups=not isinstance(config.data, TableConfig) or config.data.group is not None,
    )


def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("ips.sharing"),
        autoescape=False,  # Markdown; `cell` escapes what comes from files
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["cell"] = cell
    return environment.get_template("card.md.j2")


def cell(value: object) -> str:
    """Text for a table or a line of Markdown, in which nothing is markup.

    >>> cell("a|b <script> *c*")
    'a\\\\|b &lt;script&gt; \\\\*c\\\\*'
    """
    text = " ".join(str(value).split()).replace("\\", "\\\\")
    for sign in "|*_`[]#":
        text = text.replace(sign, f"\\{sign}")
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _in_words(task: Task) -> str:
    names = task.class_names
    if not names:
        return "a number"
    more = f" and {len(names) - _FEW} more" if len(names) > _FEW else ""
    return ", ".join(names[:_FEW]) + more


def _results(test: Path) -> dict[str, Any]:
    """The scores of each task; empty if the model was not scored."""
    if not test.is_file():
        return {}
    try:
        values = json.loads(test.read_text(encoding="utf-8"))
        return {str(name): dict(found) for name, found in values.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise RunError(f"{test}: damaged: score the model again with `ips evaluate`") from error


def _rows(results: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    for task, found in results.items():
        for metric, score in found.get("scores", {}).items():
            yield {
                "task": task,
                "metric": metric,
                "images": f"{found['images']:,}",
                "score": _number(score["score"]),
                "interval": f"{_number(score['low'])} to {_number(score['high'])}",
                "majority": _number(score.get("majority")),
            }


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
