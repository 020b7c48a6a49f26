"""The figures in a run folder: training curves, attention, its evolution, and a gallery."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from ips.explain.figures.attention import draw_attention
from ips.explain.figures.gallery import TopPatches, draw_gallery, read_pixels
from ips.models import Net, Output
from ips.patches import PatchSource
from ips.predictor import Predictor
from ips.report.curves import draw_curves
from ips.report.evolution import draw_evolution
from ips.report.snapshots import Snapshot, append_snapshot, read_snapshots
from ips.selection import Selection
from ips.training import RunFolder
from ips.training.data import Data
from ips.training.folder import TrainedModel
from ips.training.module import BatchObserver

_IMAGES = 4  # test images in the figure of attention


def snapshot_writer(run: Path, data: Data) -> Callable[[int, Net], None]:
    """A callback that stores the attention over the first test image after every epoch."""
    path = RunFolder(run).figures / "evolution.jsonl"

    def write(epoch: int, net: Net) -> None:
        source, _ = data.test[0]
        if len(source.shape) == 3:  # features have no pixels to draw on
            append_snapshot(path, Snapshot.from_prediction(net.predict(source), epoch=epoch))

    return write


def top_patch_collector(top: TopPatches) -> BatchObserver:
    """A callback for the test that adds the selected patches of every image to ``top``."""
    count = 0

    def collect(sources: Sequence[PatchSource], output: Output, selection: Selection) -> None:
        nonlocal count
        assert output.attention is not None
        attention = output.attention.mean(dim=(1, 2))  # (B, K)
        for b, source in enumerate(sources):
            indices = selection.indices[b][selection.mask[b]].cpu()
            weights = attention[b][selection.mask[b]].cpu()
            top.add(source.name, count, indices=indices, attention=weights)
            count += 1

    return collect


def draw_run(run: Path, model: TrainedModel, data: Data, top: TopPatches) -> None:
    """Draw all figures of a tested run into its folder."""
    predictor, folder = Predictor(model.net, model.config), RunFolder(run)
    figures = folder.figures
    figures.mkdir(exist_ok=True)
    draw_curves(folder.metrics, figures / "training.png")
    explanations, titles = [], []
    for number in range(min(_IMAGES, len(data.test))):
        source, labels = data.test[number]
        explanations.append(predictor.predict(source))
        titles.append(predictor.title(explanations[-1], labels))
    draw_attention(figures / "attention.png", explanations, titles=titles)
    first = explanations[0].source
    if len(first.shape) == 3:
        snapshots = read_snapshots(figures / "evolution.jsonl")
        if snapshots:
            draw_evolution(
                figures / "evolution.png", source=first, snapshots=snapshots, title=titles[0]
            )
        pixels = read_pixels(top.patches, source=lambda number: data.test[number][0])
        title = f"Patches with the highest attention in {len(data.test):,} test images"
        draw_gallery(figures / "gallery.png", top.patches, pixels=pixels, title=title)
