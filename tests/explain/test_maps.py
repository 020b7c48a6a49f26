"""Attention of all patches against that of the aggregator; maps against a mean per pixel."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from ips.config import METHODS, Config
from ips.config_io import parse_config
from ips.explain import attention_map, percentiles
from ips.explain.maps import image_area, values_at
from ips.images import open_image
from ips.models import DPSNet, IPSNet
from ips.models.outputs import attention_from_logits
from ips.nn import CrossAttentionTransformer, GatedAttention
from ips.patches import ImagePatches, MemoryPatches, PatchSource, PatchSubset, open_patches
from ips.predictor import Predictor
from ips.training import build_model, resolve
from ips.training.data import Data

Floats = npt.NDArray[np.float64]
SIDE, PATCH = 3, 24  # 3 x 3 patches of 24 px


class Noise:
    """Two images of noise; ``blank`` of the patches are of one colour."""

    def __init__(self, blank: int = 0) -> None:
        self.blank = blank

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[MemoryPatches, dict[str, Tensor]]:
        rng = np.random.default_rng(index)
        patches = rng.integers(0, 256, (SIDE * SIDE, 1, PATCH, PATCH), dtype=np.uint8)
        patches[: self.blank] = 0
        row, column = np.divmod(np.arange(SIDE * SIDE), SIDE)
        coords = np.stack([column, row], axis=1) * PATCH
        source = MemoryPatches(torch.from_numpy(patches), coords=coords, name="noise")
        return source, {"a": torch.tensor(0), "b": torch.tensor(1)}


def config(method: str = "ips", **select: object) -> Config:
    values = {
        "method": method,
        "encoder": {"name": "thin-resnet", "stages": 2, "width": 8, "norm": True},
        "patches": {"size": PATCH},
        "select": {"keep": None if method == "deepmil" else 3, "chunk": 2, **select},
        "dps": {"scale": 1.0, "samples": 5},
        "aggregate": {"heads": 4, "position": True},
        "tasks": {name: {"kind": "multiclass", "classes": 2} for name in "ab"},
    }
    return parse_config(values, source="noise")


def predictor(method: str = "ips", blank: int = 0, **select: object) -> Predictor:
    settings = config(method, **select)
    data = Data(train=Noise(blank), test=Noise(blank))
    return Predictor(build_model(resolve(settings, data)), settings)


class TestAttentionOfAllPatches:
    @pytest.mark.parametrize("method", ["ips", "ips-deepmil"])
    def test_equals_the_attention_of_the_aggregator_over_all_patches(self, method: str) -> None:
        source, _ = Noise()[0]
        ready = predictor(method)
        net = ready.net
        assert isinstance(net, IPSNet)
        seen = ready.predict(source)
        assert isinstance(net.aggregator, CrossAttentionTransformer | GatedAttention)
        with torch.no_grad():
            there = torch.ones(1, len(source), dtype=torch.bool)
            x = net.embed(source.patches.unsqueeze(0), there)
            placed = net.add_position(x, torch.arange(len(source))[None])
            naive = net.aggregator(placed, there).attention[0].mean(dim=1)  # (T, N)
        for task, expected in zip("ab", naive, strict=True):
            np.testing.assert_allclose(seen.all_attention[task], expected.numpy(), atol=1e-5)
        assert not np.allclose(seen.all_attention["a"], seen.all_attention["b"], atol=1e-4)
        np.testing.assert_allclose(seen.mean_attention, naive.mean(dim=0).numpy(), atol=1e-5)

    @pytest.mark.parametrize("method", ["ips-deepmil", "cnn"])  # one channel a task
    def test_agrees_with_the_attention_of_the_selected_patches(self, method: str) -> None:
        seen = predictor(method).predict(Noise()[1][0])
        for task, values in seen.task_attention.items():
            part = seen.all_attention[task][seen.indices.numpy()]
            np.testing.assert_allclose(part / part.sum(), values.numpy(), atol=1e-5)

    def test_a_single_channel_counts_for_all_tasks(self) -> None:
        logits = torch.randn(7, 1)
        seen = attention_from_logits(logits, ["a", "b"])
        expected = logits[:, 0].double().softmax(0).numpy()
        np.testing.assert_allclose(seen["a"], expected)
        np.testing.assert_allclose(seen["b"], expected)

    def test_equals_the_scores_of_dps(self) -> None:
        source, ready = Noise()[0][0], predictor("dps")
        net = ready.net
        assert isinstance(net, DPSNet)
        seen = ready.predict(source)
        with torch.no_grad():
            scores = net.scores([net.own_patches(source).image(net.device)])[0]
        np.testing.assert_allclose(seen.all_attention["b"], scores.double().softmax(0), atol=1e-6)
        top = np.argsort(seen.all_attention["b"])[-len(seen.indices) :]
        assert set(top.tolist()) == set(seen.indices.tolist())

    def test_skipped_patches_get_no_attention(self) -> None:
        ready = predictor(blank=4, skip_blank=True)
        seen = ready.predict(Noise(4)[0][0])
        for values in seen.all_attention.values():
            assert (values[:4] == 0).all()
            assert (values[4:] > 0).all()
            assert values.sum() == pytest.approx(1)
        seen = ready.predict(Noise(SIDE * SIDE)[0][0])  # nothing tells these apart
        np.testing.assert_allclose(seen.all_attention["a"], 1 / (SIDE * SIDE))

    @pytest.mark.parametrize("skip_blank", [False, True])
    @pytest.mark.parametrize("method", METHODS)
    def test_every_method_has_a_map(self, method: str, skip_blank: bool) -> None:
        source, _ = Noise()[0]
        seen = predictor(method, skip_blank=skip_blank).predict(source)
        for values in seen.all_attention.values():
            assert values.shape == (SIDE * SIDE,)
            assert values.sum() == pytest.approx(1, abs=1e-5)
        assert seen.map("a").values.shape == (SIDE, SIDE)
        assert np.isfinite(seen.map().values).all()
        assert len(seen.to_geojson()["features"]) == len(seen.indices)
        seen_by_it = set(np.flatnonzero(seen.all_attention["a"]))
        if method in ("ips", "topmil", "ips-deepmil", "deepmil", "dps", "cnn"):
            assert len(seen_by_it) == SIDE * SIDE
        else:  # what it did not select got nothing
            assert seen_by_it <= set(seen.indices.tolist())


def naive_map(source: PatchSource, values: Floats, cell: int) -> tuple[Floats, Floats]:
    """Per pixel the mean of the patches over it, and per cell that of all (patch, pixel) pairs."""
    assert source.extent is not None
    low = source.coords.min(axis=0)
    w, h = (source.coords.max(axis=0) + source.extent - low).tolist()
    columns, rows = -(-w // cell), -(-h // cell)
    total, count = np.zeros((2, rows * cell, columns * cell))
    for (x, y), value in zip((source.coords - low).tolist(), values.tolist(), strict=True):
        total[y : y + source.extent, x : x + source.extent] += value
        count[y : y + source.extent, x : x + source.extent] += 1
    with np.errstate(invalid="ignore"):
        cells = [a.reshape(rows, cell, columns, cell).sum(axis=(1, 3)) for a in (total, count)]
        return total / count, cells[0] / cells[1]


class TestMaps:
    @pytest.mark.parametrize(
        ("patch", "stride", "level"),
        [(8, 8, 0), (8, 4, 0), (8, 2, 0), (9, 3, 0), (8, 5, 0), (6, 11, 0), (8, 4, 1)],
    )
    def test_overlapping_patches_are_averaged(self, patch: int, stride: int, level: int) -> None:
        image = open_image(np.zeros((61, 47), np.uint8))
        source = ImagePatches(image, patch_size=patch, stride=stride, downsample=2.0**level)
        values = np.random.default_rng(0).random(len(source))
        got = attention_map(source, values)
        assert got.cell == min(patch, stride) * 2**level
        cell = int(got.cell)
        pixels, expected = naive_map(source, values, cell)
        np.testing.assert_allclose(got.values, expected)
        if patch % stride == 0:  # then every pixel of a cell has the same patches over it
            np.testing.assert_allclose(got.values.repeat(cell, 0).repeat(cell, 1), pixels)

    def test_cells_without_a_patch_are_nan(self) -> None:
        whole = open_patches(np.zeros((40, 40), np.uint8), patch_size=10)
        source = PatchSubset(whole, np.array([0, 5, 15]))
        got = attention_map(source, np.array([1.0, 2.0, 3.0])).values
        assert got.shape == (4, 4)
        assert [got[0, 0], got[1, 1], got[3, 3]] == [1, 2, 3]
        assert np.isnan(got).sum() == 13

    def test_map_starts_at_the_scanned_area(self) -> None:
        image = open_image(np.zeros((50, 70), np.uint8))
        image.bounds = (13, 7, 40, 30)
        source = open_patches(image, patch_size=10, stride=5)
        got = attention_map(source, np.ones(len(source)))
        assert (got.offset, got.cell, got.values.shape) == ((13, 7), 5, (6, 8))
        assert image_area(source) == (13, 7, 40, 30)
        assert image_area(source, crop=False) == (0, 0, 70, 50)

    def test_number_of_cells_is_limited(self) -> None:
        source = open_patches(np.zeros((64, 64), np.uint8), patch_size=4)
        values = np.random.default_rng(0).random(len(source))
        coarse = attention_map(source, values, max_cells=70)
        assert (coarse.cell, coarse.values.shape) == (8, (8, 8))
        fine = values.reshape(8, 2, 8, 2)
        np.testing.assert_allclose(coarse.values, fine.mean(axis=(1, 3)))

    def test_patches_off_any_grid_do_not_make_tiny_cells(self) -> None:
        coords = np.random.default_rng(0).integers(0, 10_000, (500, 2))
        source = MemoryPatches(torch.rand(500, 4), coords=coords, extent=256, name="bag")
        got = attention_map(source, np.full(500, 0.25))
        assert got.values.size <= (10_256 / 32 + 1) ** 2
        np.testing.assert_allclose(got.values[~np.isnan(got.values)], 0.25)

    def test_features_in_one_row(self) -> None:
        got = attention_map(MemoryPatches(torch.rand(5, 4)), np.arange(5.0))
        assert got.values.tolist() == [[0, 1, 2, 3, 4]]


class TestPercentiles:
    def test_values_are_replaced_by_their_rank(self) -> None:
        values = np.array([[1e-9, 0.0, 0.9], [1e-5, np.nan, 1e-7]])
        scaled = percentiles(values)
        np.testing.assert_allclose(scaled, [[0.0, 0.0, 1.0], [2 / 3, 0.0, 1 / 3]])
        assert values_at(values, [0, 1 / 3, 1]) == [1e-9, 1e-7, 0.9]

    def test_rounding_errors_do_not_count(self) -> None:
        values = np.array([0.1, 0.1 * (1 + 1e-6), 0.5, 0.3])
        assert percentiles(values)[:2].tolist() == [0, 0]

    @given(st.lists(st.floats(0, 1), max_size=20))
    def test_order_is_kept(self, numbers: list[float]) -> None:
        values = np.array(numbers, dtype=np.float64)
        scaled = percentiles(values)
        assert ((scaled >= 0) & (scaled <= 1)).all()
        assert (scaled[values == 0] == 0).all()
        order = np.argsort(values)
        assert (np.diff(scaled[order]) >= 0).all()

    def test_no_attention_at_all(self) -> None:
        assert percentiles(np.zeros((2, 2))).tolist() == [[0, 0], [0, 0]]
        assert values_at(np.zeros(3), [0, 1]) == [0, 0]
