"""DPS on its own grid: a patch per score, centred on the cell of the score."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as PILImage
from torch import Tensor

from ips.config_io import parse_config
from ips.errors import PatchError
from ips.explain.export import write_explanation
from ips.models import DPSNet
from ips.models.dps import ScoreMap
from ips.models.whole_image import scaled_copy, scaled_size
from ips.nn import thin_resnet
from ips.patches import PatchSource, open_patches
from ips.predictor import Predictor
from ips.training import build_model, resolve
from ips.training.data import Data

WIDTH, HEIGHT, PATCH, SCALE = 400, 300, 50, 0.67  # as in the recipe road-signs
ROWS, COLUMNS, STEP = 12, 16, 25


class Pictures:
    """Two grey pictures of noise."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[PatchSource, dict[str, Tensor]]:
        rng = np.random.default_rng(index)
        picture = rng.integers(1, 256, (HEIGHT, WIDTH), dtype=np.uint8)
        return open_patches(picture, patch_size=PATCH), {"a": torch.tensor(index)}


def predictor(keep: int = 6) -> Predictor:
    values = {
        "method": "dps",
        "encoder": {
            "name": "thin-resnet",
            "stages": 1,
            "width": 8,
            "norm": True,
            "mean": [0.5],
            "std": [0.25],
        },
        "patches": {"size": PATCH},
        "select": {"keep": keep},
        "dps": {"scale": SCALE, "samples": 5},
        "aggregate": {"heads": 2, "position": True},
        "tasks": {"a": {"kind": "multiclass", "classes": 2}},
    }
    config = parse_config(values, source="pictures")
    config = resolve(config, Data(train=Pictures(), test=Pictures()))
    return Predictor(build_model(config), config)


def net(keep: int = 6) -> DPSNet:
    model = predictor(keep).net
    assert isinstance(model, DPSNet)
    return model


def test_patches_are_centred_on_equal_cells_and_reach_over_all_four_edges() -> None:
    patches = net().own_patches(Pictures()[0][0])
    y, x = np.divmod(np.arange(ROWS * COLUMNS), COLUMNS)
    assert np.array_equal(patches.coords, np.stack([x, y], axis=1) * STEP - 12)
    low, high = patches.coords.min(axis=0), patches.coords.max(axis=0) + PATCH
    assert (low < 0).all()
    assert (high > (WIDTH, HEIGHT)).all()


@settings(max_examples=25, deadline=None)
@given(st.integers(75, 260), st.integers(75, 260), st.sampled_from([1 / 3, 0.36, 0.67, 1.0]))
def test_an_image_of_any_size_has_as_many_patches_as_scores(
    height: int, width: int, scale: float
) -> None:
    scorer = ScoreMap(thin_resnet(stages=2, width=4, channels=1)).eval()
    scores = scorer(scaled_copy(torch.rand(1, 1, height, width), scale))
    rows, columns = scorer.shape(*scaled_size(height, width, scale))
    assert scores.shape == (1, rows * columns)


def test_nothing_but_the_image_is_interpolated() -> None:
    model = net()
    maps: list[Tensor] = []
    model.scorer.pool.register_forward_hook(lambda _module, _given, scores: maps.append(scores))
    tables = [model.empty_table(Pictures()[0][0])]
    model.forward_eval([Pictures()[0][0]], tables=tables)
    assert maps[0].shape == (1, 1, ROWS, COLUMNS)
    raw = maps[0].flatten()
    assert torch.allclose(
        tables[0].logits[:, 0], (raw - raw.min()) / (raw.max() - raw.min() + 1e-5)
    )


def test_a_score_moves_with_its_own_patch() -> None:
    """Where patch i changes, score i and those of its neighbours move."""
    corners = net().own_patches(Pictures()[0][0]).corners.tolist()
    torch.manual_seed(0)
    scorer = ScoreMap(thin_resnet(stages=2, width=8, channels=1)).eval()
    picture = torch.rand(1, HEIGHT, WIDTH)
    changed = picture.repeat(len(corners), 1, 1, 1)
    for i, (x, y) in enumerate(corners):
        changed[i, :, max(y, 0) : y + PATCH, max(x, 0) : x + PATCH].neg_().add_(1)
    with torch.no_grad():
        scaled = scaled_copy(torch.cat([picture[None], changed]), SCALE)
        raw = scorer.pool(scorer.conv(scorer.stem.maps(scaled)))[:, 0]  # (1 + N, rows, columns)
    moved = (raw[1:] - raw[0]).abs()
    moved /= moved.sum(dim=(1, 2), keepdim=True)
    row, column = torch.arange(ROWS).view(-1, 1), torch.arange(COLUMNS)
    centre_y, centre_x = (
        (moved * axis).sum(dim=(1, 2)).view(ROWS, COLUMNS) for axis in (row, column)
    )
    # At the edges, the neighbours on one side are missing.
    assert ((centre_y - row)[2:-2, 2:-2].abs() < 1).all()
    assert ((centre_x - column)[2:-2, 2:-2].abs() < 1).all()
    far = (row - row.view(1, -1)).abs() > 6  # patches and scores that are far apart
    by_row = moved.view(ROWS, COLUMNS, ROWS, COLUMNS).sum(dim=(1, 3))  # (patch row, score row)
    assert (by_row[far] == 0).all()


@pytest.mark.parametrize("training", [False, True])
def test_the_padding_is_zero_after_normalisation(training: bool) -> None:
    model = net(keep=ROWS * COLUMNS)
    model.sigma = 0  # without noise, patches are not mixed
    seen: list[Tensor] = []
    model.encoder.register_forward_pre_hook(lambda _module, given: seen.append(given[0]))
    white = open_patches(np.full((HEIGHT, WIDTH), 255, np.uint8), patch_size=PATCH)
    if training:
        model.train().forward_train([white], load="lazy", seed=0)
    else:
        model.forward_eval([white])
    pixels = torch.arange(PATCH)
    for patch, (x, y) in zip(seen[0][:, 0], model.own_patches(white).coords.tolist(), strict=True):
        inside_x = (pixels + x >= 0) & (pixels + x < WIDTH)
        inside_y = (pixels + y >= 0) & (pixels + y < HEIGHT)
        inside = inside_y[:, None] & inside_x
        assert (patch[inside] == 2).all()  # (1 - 0.5) / 0.25
        assert (patch[~inside] == 0).all()


def test_an_image_without_a_single_score_is_refused() -> None:
    small = open_patches(np.zeros((50, 50), np.uint8), patch_size=10)
    model = net()
    model.scale = 0.4
    with pytest.raises(PatchError, match=r"20 x 20 px it is too small.*raise dps\.scale=0\.4"):
        model.predict(small)
    model.scale = 0.5
    assert len(model.own_patches(small)) == 1


def test_files_and_figures_show_patches_that_reach_over_the_edge(tmp_path: Path) -> None:
    picture = np.random.default_rng(0).integers(1, 256, (HEIGHT, WIDTH), dtype=np.uint8)
    PILImage.fromarray(picture).save(tmp_path / "a.png")
    model = predictor(keep=ROWS * COLUMNS)
    assert len(model.open(tmp_path / "a.png")) == ROWS * COLUMNS
    explained = model.predict(tmp_path / "a.png")
    source = explained.source
    assert len(source) == explained.patches == ROWS * COLUMNS
    assert explained.coords.min() == -12

    raster = explained.map()
    assert raster.offset == (-12, -12)
    assert np.isfinite(raster.values).all()
    first = source.read([0])[0, 0].numpy()
    assert (first[:12] == 0).all()
    assert np.array_equal(first[12:, 12:], picture[: PATCH - 12, : PATCH - 12])

    write_explanation(tmp_path, explained, stem="a", all_patches=True)
    with (tmp_path / "a-patches.csv").open() as file:
        corners = [(int(row["x"]), int(row["y"])) for row in csv.DictReader(file)]
    assert corners == [tuple(corner) for corner in source.coords.tolist()]
    features = json.loads((tmp_path / "a.geojson").read_text())["features"]
    assert features[0]["geometry"]["coordinates"][0][0] == [-12, -12]
    page = tifffile.imread(tmp_path / "a-map.tif")  # exactly the area of the image
    assert page.shape[1] / page.shape[0] == pytest.approx(WIDTH / HEIGHT, rel=0.01)
    assert (tmp_path / "a-gallery.png").is_file()
