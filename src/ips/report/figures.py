"""The figures in a run folder: training curves, attention, its evolution, and a gallery."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from torch import Tensor

from ips.explain.figures.attention import draw_attention
from ips.explain.figures.gallery import TopPatches, draw_gallery, read_pixels
from ips.models import Net, Output
from ips.predictor import Predictor
from ips.report.curves import draw_curves
from ips.report.evolution import draw_evolution
from ips.report.snapshots import Snapshot, append_snapshot, read_snapshots
from ips.selection import Selection
from ips.tasks import Task
from ips.training import RunFolder
from ips.training.data import Data
from ips.training.folder import TrainedModel
from ips.training.module import BatchObserver

_IMAGES = 4  # test images in the figure of attention


def image_to_follow(data: Data, tasks: Mapping[str, Task]) -> int:
    """Number of the first test image with something to find; 0 if there is none.

    That is a positive image of a binary task, an image with a label of a multilabel task, or one
    of another class than the background class of the data. Other tasks find something in every
    image.
    """
    background = {name: 0 for name, task in tasks.items() if task.kind == "binary"}
    background |= data.background
    searches = [name for name in tasks if name in background or tasks[name].kind == "multilabel"]

    def found(labels: Mapping[str, Tensor], name: str) -> bool:
        classes = tasks[name].targets(labels[name][None])[0].nonzero().flatten().tolist()
        return any(number != background.get(name) for number in classes)

    for number in range(len(data.test)):
        _, labels = data.test[number]
        if not searches or any(found(labels, name) for name in searches):
            return number
    return 0


def snapshot_writer(run: Path, data: Data, tasks: Mapping[str, Task]) -> Callable[[int, Net], None]:
    """A callback that stores the attention over `image_to_follow` after every epoch."""
    path = RunFolder(run).figures / "evolution.jsonl"
    number = image_to_follow(data, tasks)

    def write(epoch: int, net: Net) -> None:
        source, _ = data.test[number]
        if len(source.shape) == 3:  # features have no pixels to draw on
            append_snapshot(path, Snapshot.from_prediction(net.predict(source), epoch=epoch))

    return write


def top_patch_collector(top: TopPatches) -> BatchObserver:
    """A callback for the test that adds the selected patches of every image to ``top``."""
    count = 0

    def collect(names: Sequence[str], output: Output, selection: Selection) -> None:
        nonlocal count
        assert output.attention is not None
        attention = output.attention.mean(dim=(1, 2))  # (B, K)
        for b, name in enumerate(names):
            indices = selection.indices[b][selection.mask[b]].cpu()
            weights = attention[b][selection.mask[b]].cpu()
            top.add(name, count, indices=indices, attention=weights)
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
    if len(explanations[0].source.shape) == 3:
        followed, labels = data.test[image_to_follow(data, predictor.tasks)]
        snapshots = read_snapshots(figures / "evolution.jsonl", image=followed.name)
        if snapshots:
            explained = predictor.predict(followed)
            draw_evolution(
                figures / "evolution.png",
                source=explained.source,
                snapshots=snapshots,
                title=predictor.title(explained, labels),
            )
        pixels = read_pixels(
            top.patches, source=lambda number: model.net.own_patches(data.test[number][0])
        )
        title = f"Patches with the highest attention in {top.images:,} test images"
        if top.uniform:
            title += "\nAttention to the selected patches is nearly uniform in "
            title += f"{top.uniform:,} of them"
        draw_gallery(figures / "gallery.png", top.patches, pixels=pixels, title=title)
