"""The pictures of a run: its curves, where it looked, how that came about."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ips.config import Config
from ips.explain import (
    Highest,
    Moment,
    append_moment,
    draw_attention,
    draw_curves,
    draw_evolution,
    draw_gallery,
    read_highest,
    read_moments,
)
from ips.models import Net, Output
from ips.patches import PatchSource
from ips.predictor import Predictor
from ips.selection import Selection
from ips.training import RunFolder
from ips.training.build import Data
from ips.training.module import BatchObserver

_SHOWN = 4  # test images in the picture of attention


def watcher(run: Path, data: Data) -> Callable[[int, Net], None]:
    """Writes down after every epoch where the model looks on the first test image."""
    path = RunFolder(run).figures / "evolution.jsonl"

    def look(epoch: int, net: Net) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        source, _ = data.test[0]
        if len(source.shape) == 3:  # there is no picture of features
            append_moment(path, Moment.of(net.predict(source), epoch=epoch))

    return look


def collector(highest: Highest) -> BatchObserver:
    """Puts the patches of highest attention of all tested images into ``highest``."""
    count = 0

    def see(sources: Sequence[PatchSource], output: Output, selection: Selection) -> None:
        nonlocal count
        assert output.attention is not None
        attention = output.attention.mean(dim=(1, 2))  # (B, K)
        for b, source in enumerate(sources):
            there = selection.mask[b]
            highest.add(
                source.name,
                count,
                indices=selection.indices[b][there].cpu(),
                attention=attention[b][there].cpu(),
            )
            count += 1

    return see


def draw_run(run: Path, net: Net, config: Config, data: Data, highest: Highest) -> None:
    """All pictures of a tested run into its folder."""
    predictor, folder = Predictor(net, config), RunFolder(run)
    figures = folder.figures
    figures.mkdir(exist_ok=True)
    draw_curves(folder.metrics, figures / "training.png")
    sources, predictions, titles = [], [], []
    for number in range(min(_SHOWN, len(data.test))):
        source, labels = data.test[number]
        prediction = predictor.predict(source)
        sources.append(source)
        predictions.append(prediction)
        titles.append(predictor.title(prediction, labels))
    draw_attention(
        figures / "attention.png",
        predictions=predictions,
        sources=sources,
        titles=titles,
        names=predictor.readout_names,
    )
    if len(sources[0].shape) == 3:
        moments = read_moments(figures / "evolution.jsonl")
        if moments:
            draw_evolution(
                figures / "evolution.png", source=sources[0], moments=moments, title=titles[0]
            )
        patches = read_highest(highest.places, source=lambda number: data.test[number][0])
        title = f"Patches with the highest attention of {len(data.test):,} test images"
        draw_gallery(figures / "gallery.png", patches=patches, title=title)
