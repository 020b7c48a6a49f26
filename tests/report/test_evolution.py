"""The file of snapshots, and the figure of the evolution."""

from __future__ import annotations

from itertools import combinations
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from matplotlib import colormaps
from matplotlib.collections import PatchCollection
from matplotlib.text import Text
from PIL import Image as PILImage

from ips.errors import PatchError, RunError
from ips.explain.figures.page import Page
from ips.models import Prediction
from ips.patches import Grid, MemoryPatches, PatchSource
from ips.report.evolution import draw_evolution, evenly_spaced
from ips.report.snapshots import Snapshot, append_snapshot, read_snapshots

NAME = "street/1.png"


def image(
    width: int = 240, height: int = 160, *, patch: int = 20, channels: int = 3
) -> PatchSource:
    grid = Grid(width, height, patch=patch, stride=patch)
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (len(grid), channels, patch, patch), dtype=np.uint8)
    return MemoryPatches(torch.from_numpy(pixels), coords=grid.coords, name=NAME)


def snapshot(source: PatchSource, epoch: int, *, keep: int = 8, sharpness: float = 1.0) -> Snapshot:
    rng = np.random.default_rng(epoch)
    indices = rng.permutation(len(source))[:keep]
    attention = np.exp(sharpness * rng.normal(size=len(indices)))
    return Snapshot(
        NAME, epoch, indices, source.coords[indices], source.extent, attention / attention.sum()
    )


def with_attention(*attention: float, epoch: int = 1) -> Snapshot:
    kept = np.arange(len(attention))
    return Snapshot(
        NAME, epoch, kept, np.stack([20 * kept, 0 * kept], axis=1), 20, np.array(attention)
    )


def same(a: Snapshot, b: Snapshot) -> bool:
    return (
        (a.image, a.epoch, a.extent) == (b.image, b.epoch, b.extent)
        and np.array_equal(a.indices, b.indices)
        and np.array_equal(a.coords, b.coords)
        and np.allclose(a.attention, b.attention, rtol=1e-5)
    )


@pytest.fixture
def pages(monkeypatch: pytest.MonkeyPatch) -> list[Page]:
    """What would have been saved."""
    saved: list[Page] = []
    monkeypatch.setattr(Page, "save", lambda page, path: saved.append(page))
    return saved


# A snapshot


@pytest.mark.parametrize(
    ("attention", "expected"),
    [
        ((0.25, 0.25, 0.25, 0.25), log(4)),
        ((0.5, 0.25, 0.25), 1.5 * log(2)),
        ((1.0, 0.0, 0.0), 0.0),
        ((1.0,), 0.0),
        ((2.0, 2.0), log(2)),
    ],
)
def test_entropy_of_the_attention(attention: tuple[float, ...], expected: float) -> None:
    found = with_attention(*attention)
    assert found.entropy == pytest.approx(expected)


def test_snapshot_from_a_prediction() -> None:
    prediction = Prediction(
        name=NAME,
        logits={},
        probabilities={},
        indices=torch.tensor([7, 3]),
        coords=np.array([[140, 0], [60, 0]]),
        extent=20,
        attention=torch.tensor([0.75, 0.25], requires_grad=True),
        task_attention={},
        patch_probabilities=None,
        patches=12,
    )
    expected = Snapshot(NAME, 4, np.array([7, 3]), prediction.coords, 20, np.array([0.75, 0.25]))
    assert same(Snapshot.from_prediction(prediction, epoch=4), expected)


def test_different_lengths_are_refused() -> None:
    with pytest.raises(ValueError, match="epoch 3"):
        Snapshot(NAME, 3, np.arange(2), np.zeros((3, 2), dtype=np.int64), 20, np.ones(2))


# The file


def test_appended_snapshots_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "figures" / "evolution.jsonl"
    assert read_snapshots(path, image=NAME) == []
    snapshots = [snapshot(image(), epoch) for epoch in (1, 2, 5)]
    for one in snapshots:
        append_snapshot(path, one)
    assert len(path.read_text().splitlines()) == 3
    assert all(map(same, read_snapshots(path, image=NAME), snapshots))
    assert list(path.parent.iterdir()) == [path]


def test_an_unknown_extent_is_stored(tmp_path: Path) -> None:
    one = Snapshot(NAME, 1, np.array([0]), np.array([[0, 0]]), None, np.array([1.0]))
    append_snapshot(tmp_path / "a.jsonl", one)
    assert read_snapshots(tmp_path / "a.jsonl", image=NAME)[0].extent is None


def test_a_repeated_epoch_replaces_itself_and_later_epochs(tmp_path: Path) -> None:
    path = tmp_path / "evolution.jsonl"
    first = [snapshot(image(), epoch) for epoch in range(1, 6)]
    for one in first:
        append_snapshot(path, one)
    again = snapshot(image(), 3, keep=4)
    append_snapshot(path, again)
    found = read_snapshots(path, image=NAME)
    assert [one.epoch for one in found] == [1, 2, 3]
    assert all(map(same, found, [*first[:2], again]))


def test_an_incomplete_last_line_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "evolution.jsonl"
    for epoch in (1, 2):
        append_snapshot(path, snapshot(image(), epoch, keep=2))
    whole = path.read_bytes()
    start = whole.index(b"\n") + 1
    for stop in range(start, len(whole) - 1):
        path.write_bytes(whole[:stop])
        assert [one.epoch for one in read_snapshots(path, image=NAME)] == [1]
    path.write_bytes(whole[: start + 9] + b"\0\0\xff")
    append_snapshot(path, snapshot(image(), 2, keep=2))
    assert path.read_bytes() == whole


def test_snapshots_of_another_image_are_left_out_and_replaced(tmp_path: Path) -> None:
    path = tmp_path / "evolution.jsonl"
    without_image = '{"epoch":1,"extent":1,"indices":[1],"coords":[[0,0]],"attention":[1]}\n'
    path.write_text(without_image)  # as version 0.2.0 wrote it
    assert read_snapshots(path, image=NAME) == []
    append_snapshot(path, snapshot(image(), 2))
    assert [one.epoch for one in read_snapshots(path, image=NAME)] == [2]
    assert len(path.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ('{"epoch":1,"ind\n{"epoch":2}\n', 1),
        ('{"epoch":1}\n', 1),
        ("[1, 2]\n", 1),
        ("[" * 100_000 + "\n", 1),
        ('{"epoch":1,"extent":1,"indices":[1e99],"coords":[[0,0]],"attention":[1]}\n', 1),
        ('{"epoch":1,"extent":1,"indices":[1,2],"coords":[[0,0]],"attention":[1]}\n', 1),
        ('{"epoch":1,"extent":1,"indices":[1e400],"coords":[[0,0]],"attention":[1]}\n', 1),
        ('{"epoch":1,"extent":"x","indices":[1],"coords":[[0,0]],"attention":[1]}\n', 1),
        ('{"epoch":1e400,"extent":1,"indices":[1],"coords":[[0,0]],"attention":[1]}\n', 1),
        ("[" * 20_000 + "\n", 1),
    ],
)
def test_an_invalid_line_is_an_error(tmp_path: Path, text: str, line: int) -> None:
    path = tmp_path / "evolution.jsonl"
    path.write_text(text)
    with pytest.raises(RunError, match=rf"evolution.jsonl: line {line} .* delete the file"):
        read_snapshots(path, image=NAME)


# The choice


@pytest.mark.parametrize("count", [1, 2, 5, 6, 7, 11, 30, 150])
def test_maps_are_evenly_spaced(count: int) -> None:
    snapshots = [with_attention(1.0, epoch=epoch) for epoch in range(1, count + 1)]
    epochs = [one.epoch for one in evenly_spaced(snapshots, 6)]
    assert len(epochs) == min(6, count)
    assert (epochs[0], epochs[-1]) == (1, count)
    if count > 6:
        steps = np.diff(epochs)
        assert steps.min() >= 1
        assert steps.max() - steps.min() <= 1


# The picture


@pytest.mark.parametrize(
    ("size", "patch", "channels"),
    [((240, 160), 20, 3), ((50, 500), 25, 1), ((1600, 400), 400, 3), ((30, 30), 30, 1)],
    ids=["photo", "tall", "large patches", "one patch"],
)
def test_every_kind_of_image_can_be_drawn(
    tmp_path: Path, size: tuple[int, int], patch: int, channels: int
) -> None:
    source = image(*size, patch=patch, channels=channels)
    path = tmp_path / "figures" / "evolution.png"
    snapshots = [snapshot(source, epoch) for epoch in range(1, 4)]
    draw_evolution(path, source=source, snapshots=snapshots, title="costs $5, true $7")
    with PILImage.open(path) as picture:
        assert picture.width == 1425
        assert np.asarray(picture.convert("L")).min() < 100
    assert list(path.parent.iterdir()) == [path]


@pytest.mark.parametrize(("count", "top"), [(1, 4), (2, 1), (4, 8), (150, 4)])
def test_texts_do_not_overlap_and_stay_on_the_page(pages: list[Page], count: int, top: int) -> None:
    source = image()
    snapshots = [snapshot(source, epoch) for epoch in range(1, count + 1)]
    title = "street/1.png: sign 80 (80), " + "a long list of answers, " * 8
    draw_evolution(Path("a.png"), source=source, snapshots=snapshots, title=title, top=top)
    figure = pages[0].figure
    figure.draw_without_rendering()
    curve = next(axes for axes in figure.axes if axes.get_xlabel() == "epoch")
    heading = [text for text in curve.findobj(Text) if text.get_text().startswith("Entropy")]
    boxes = [text.get_window_extent() for text in [*figure.texts, *heading, curve.xaxis.label]]
    with_ticks = curve.get_tightbbox()
    assert heading
    assert with_ticks is not None
    for box in [*boxes, with_ticks]:
        assert figure.bbox.containsx(box.x0)
        assert figure.bbox.containsx(box.x1)
        assert figure.bbox.containsy(box.y0)
        assert figure.bbox.containsy(box.y1)
    assert not [(a, b) for a, b in combinations(boxes, 2) if a.overlaps(b)]


def test_maps_share_one_scale_and_the_curve_has_every_epoch(pages: list[Page]) -> None:
    source = image()
    snapshots = [
        with_attention(0.25, 0.25, 0.25, 0.25, epoch=1),
        *(with_attention(0.4, 0.2, 0.2, 0.2, epoch=epoch) for epoch in range(2, 12)),
        with_attention(0.0, 1.0, 0.0, 0.0, epoch=12),
    ]
    draw_evolution(Path("a.png"), source=source, snapshots=snapshots, title="a")
    figure = pages[0].figure
    tints = [
        np.asarray(drawn.get_facecolor())
        for axes in figure.axes
        for drawn in axes.collections
        if isinstance(drawn, PatchCollection)
    ]
    colours = colormaps["viridis"]
    assert [len(faces) for faces in tints] == [4] * 6
    np.testing.assert_allclose(tints[0][-1, :3], colours(0.5)[:3])  # the square root of 0.25
    np.testing.assert_allclose(tints[-1][-1, :3], colours(1.0)[:3])
    np.testing.assert_allclose(tints[-1][0, :3], colours(0.0)[:3])
    words = [text.get_text() for text in figure.texts]
    assert [w for w in words if w.startswith("epoch")] == [
        f"epoch {epoch}" for epoch in (1, 3, 5, 8, 10, 12)
    ]
    curve = next(axes for axes in figure.axes if axes.get_xlabel() == "epoch").lines[0]
    assert np.asarray(curve.get_xdata()).tolist() == list(range(1, 13))
    np.testing.assert_allclose(np.asarray(curve.get_ydata()), [one.entropy for one in snapshots])
    assert "at most ln 4 = 1.39" in words
    assert [w for w in words if w.startswith("entropy")] == [
        "entropy 1.39",
        *["entropy 1.33"] * 4,
        "entropy 0.00",
    ]


@pytest.mark.parametrize("last", [(0.3, 0.2, 0.3, 0.2), (0.7, 0.1, 0.1, 0.1)])
def test_attention_that_stays_uniform_is_called_so(
    pages: list[Page], last: tuple[float, ...]
) -> None:
    snapshots = [with_attention(1, 0, 0, 0, epoch=1), with_attention(*last, epoch=2)]
    draw_evolution(Path("a.png"), source=image(), snapshots=snapshots, title="a")
    words = pages[0].figure.texts[0].get_text()
    said = "Attention to the selected patches is nearly uniform in epoch 2" in words
    assert said == (max(last) < 0.5)


def test_patches_are_numbered_by_attention(pages: list[Page]) -> None:
    snapshots = [with_attention(0.1, 0.6, 0.3)]
    draw_evolution(Path("a.png"), source=image(), snapshots=snapshots, title="a", top=2)
    words = [text.get_text() for text in pages[0].figure.texts]
    assert [w for w in words if w.endswith(" %")] == ["60.0 %", "30.0 %"]


def test_nan_attention_is_drawn_as_zero(pages: list[Page]) -> None:
    snapshots = [with_attention(0.7, 0.3), with_attention(np.nan, np.nan, epoch=2)]
    draw_evolution(Path("a.png"), source=image(), snapshots=snapshots, title="a")
    collections = [c for axes in pages[0].figure.axes for c in axes.collections]
    tints = [np.asarray(c.get_facecolor()) for c in collections if isinstance(c, PatchCollection)]
    np.testing.assert_allclose(tints[1][:, :3], [colormaps["viridis"](0.0)[:3]] * 2)


def test_features_are_refused(tmp_path: Path) -> None:
    source = MemoryPatches(torch.zeros(4, 8), name="slide.h5")
    with pytest.raises(PatchError, match=r"slide.h5: holds features"):
        draw_evolution(
            tmp_path / "a.png", source=source, snapshots=[with_attention(1.0)], title="a"
        )


def test_no_snapshots_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="no epoch to draw"):
        draw_evolution(tmp_path / "a.png", source=image(), snapshots=[], title="a")
