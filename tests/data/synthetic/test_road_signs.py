from __future__ import annotations

import json
import pickle
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image

from ips.data.synthetic import road_sprites, road_textures
from ips.data.synthetic.road_layout import Layout
from ips.data.synthetic.road_scene import draw_scene
from ips.data.synthetic.road_signs import NAMES, TASKS, RoadSigns, write_road_signs
from ips.data.synthetic.road_sprites import OTHERS, RINGED, SPEEDS, sign_sprite
from ips.errors import DataError, PatchError
from ips.images.array import WholeImage
from ips.patches import Edge
from ips.patches.source import PatchSource

Pixels = npt.NDArray[np.uint8]


@pytest.fixture(scope="module")
def roads() -> RoadSigns:
    return RoadSigns(count=40)


def picture(data: RoadSigns, index: int) -> Pixels:
    return np.array(
        data[index][0].image.read_region((0, 0), 0, (data.grid.width, data.grid.height))
    )


def without_limits(layout: Layout) -> Layout:
    return replace(layout, signs=tuple(s for s in layout.signs if s.kind not in SPEEDS))


def test_an_item_is_a_colour_patch_source_with_a_label(roads: RoadSigns) -> None:
    source, labels = roads[0]
    assert isinstance(source, PatchSource)
    assert (len(source), source.shape, source.name) == (192, (3, 50, 50), "road-signs/train/0")
    assert list(labels) == list(TASKS) == ["sign"]
    assert TASKS["sign"] == ("multiclass", len(NAMES))
    assert (labels["sign"].dtype, labels["sign"].shape) == (torch.int64, ())
    assert NAMES == ["no sign", "50", "70", "80"]


@pytest.mark.parametrize(("stride", "edge"), [(50, "drop"), (35, "drop"), (45, "pad")])
def test_patches_are_crops_of_the_picture(stride: int, edge: Edge) -> None:
    data = RoadSigns(width=400, height=300, count=1, stride=stride, edge=edge)
    whole = np.pad(picture(data, 0), ((0, 50), (0, 50), (0, 0)))
    source, _ = data[0]
    patches = source.read(range(len(source))).numpy()
    for patch, (x, y) in zip(patches, source.coords.tolist(), strict=True):
        assert np.array_equal(patch, whole[y : y + 50, x : x + 50].transpose(2, 0, 1))


def test_no_two_patches_are_equal(roads: RoadSigns) -> None:
    for index in range(4):
        source, _ = roads[index]
        patches = source.read(range(len(source))).numpy()
        assert len({patch.tobytes() for patch in patches}) == len(source)


def test_images_do_not_depend_on_instance_order_or_process(roads: RoadSigns) -> None:
    seen = {index: picture(roads, index) for index in (0, 3, 6)}
    again = RoadSigns(count=7)
    # The caches of a new process are empty.
    for module in (road_textures, road_sprites):
        for thing in vars(module).values():
            getattr(thing, "cache_clear", lambda: None)()
    for index in (6, 0, 3):
        assert np.array_equal(picture(again, index), seen[index])
        assert np.array_equal(again.boxes(index), roads.boxes(index))


def test_images_depend_on_seed_split_and_index(roads: RoadSigns) -> None:
    first = picture(roads, 0)
    for data, index in ((RoadSigns(seed=1), 0), (RoadSigns(split="test"), 0), (roads, 1)):
        assert not np.array_equal(picture(data, index), first)
        assert data.layout(index).road != roads.layout(0).road


def test_only_fresh_images_depend_on_the_epoch(roads: RoadSigns) -> None:
    fresh = RoadSigns(count=40, fresh=True)
    worker = pickle.loads(pickle.dumps(fresh))
    assert np.array_equal(picture(fresh, 5), picture(roads, 5))
    for data in (roads, fresh, worker):
        data.set_epoch(1)
    assert roads.layout(5) == RoadSigns(count=40).layout(5)
    assert fresh.layout(5) == worker.layout(5)
    assert not np.array_equal(picture(fresh, 5), picture(roads, 5))
    assert [fresh.label(i) for i in range(40)] != [roads.label(i) for i in range(40)]


def test_every_four_images_have_all_classes_in_random_order() -> None:
    data = RoadSigns(count=100)
    labels = np.array([int(data[index][1]["sign"]) for index in range(100)]).reshape(25, 4)
    assert np.array_equal(np.sort(labels, axis=1), np.tile(np.arange(4), (25, 1)))
    assert len(np.unique(labels, axis=0)) > 10


def test_labels_match_the_layout(roads: RoadSigns) -> None:
    for index in range(len(roads)):
        labels = roads[index][1]
        limits = [sign.kind for sign in roads.layout(index).signs if sign.kind in SPEEDS]
        label = int(labels["sign"])
        assert limits == ([NAMES[label]] if label else [])
        assert roads.boxes(index).shape == (len(limits), 4)
        assert roads.boxes(index).dtype == np.int64


@pytest.mark.parametrize("size", [(800, 600), (320, 240), (320, 1000), (1600, 240), (1600, 1200)])
def test_signs_are_inside_the_image_and_do_not_overlap(size: tuple[int, int]) -> None:
    width, height = size
    data = RoadSigns(width=width, height=height, count=60)
    unit = 2 if size == (1600, 1200) else 1
    diameters = []
    for index in range(60):
        signs = data.layout(index).signs
        assert 2 <= len(signs) <= 4
        for i, sign in enumerate(signs):
            diameters.append(sign.diameter)
            assert sign.x > 0
            assert sign.y > 0
            assert sign.x + sign.diameter < width
            assert sign.y + 2 * sign.diameter < sign.foot < height
            for other in signs[:i]:
                left, right = sorted([sign, other], key=lambda s: s.x)
                assert left.x + left.diameter < right.x
    assert unit * 28 <= min(diameters) < unit * 30
    assert unit * 40 < max(diameters) <= unit * 42


def test_the_speed_limit_is_in_its_box_with_the_pole_below(roads: RoadSigns) -> None:
    for index in range(12):
        layout = roads.layout(index)
        seen = draw_scene(layout).astype(int)
        changed = np.abs(seen - draw_scene(without_limits(layout))).max(axis=-1) > 0
        if not len(roads.boxes(index)):
            assert not changed.any()
            assert roads.objects(index, "sign") == []
            continue
        ((x0, y0, x1, y1),) = roads.boxes(index)
        (region,) = roads.objects(index, "sign")
        assert [*region.bounds[0], *region.bounds[1]] == [x0, y0, x1, y1]
        assert changed[y0:y1, x0:x1].mean() > 0.7  # a disc is 0.79 of its square
        pole = (x0 + x1) // 2
        changed[y0 - 3 : y1 + 3, x0 - 3 : x1 + 3] = False  # the rim is smooth
        assert changed[y1 + 3 :, pole - 3 : pole + 4].any()
        changed[y1 + 3 :, pole - 3 : pole + 4] = False
        assert not changed.any()
        red, green, blue = np.moveaxis(seen[y0:y1, x0:x1], -1, 0)
        ring = (red > 1.7 * green) & (red > 1.7 * blue)
        assert ring[[0, -1]].any()
        assert ring[:, [0, -1]].any()
        assert 0.15 < ring.mean() < 0.5


def test_small_limits_differ_in_their_first_digit(roads: RoadSigns) -> None:
    layout = next(roads.layout(i) for i in range(40) if len(roads.boxes(i)))
    (sign,) = (s for s in layout.signs if s.kind in SPEEDS)
    side, half = 20, 10
    small = replace(sign, diameter=side, angle=0.0, light=0.75, blur=0.45)
    left, right = [], []
    for kind in SPEEDS:
        signs = tuple(replace(small, kind=kind) if s is sign else s for s in layout.signs)
        pixels = draw_scene(replace(layout, signs=signs)).astype(int)
        disc = pixels[sign.y + 5 : sign.y + 15, sign.x : sign.x + side]
        left.append(disc[:, 4:half])
        right.append(disc[:, half + 1 : -4])
    for i in range(3):
        for j in range(i):
            assert np.abs(left[i] - left[j]).mean() > 12
            assert np.abs(right[i] - right[j]).mean() < np.abs(left[i] - left[j]).mean() / 2


def test_every_kind_of_sign_looks_different() -> None:
    kinds = [*SPEEDS, *RINGED, *OTHERS]
    assert len({sign_sprite(kind).tobytes() for kind in kinds}) == len(kinds) == 17
    for kind in kinds:
        cover = np.asarray(sign_sprite(kind))[..., 3] > 0
        assert cover.any(axis=0).mean() > 0.7  # fills the square
        assert not cover[[0, -1]].any()  # but touches no edge
        assert not cover[:, [0, -1]].any()


def test_poles_rings_and_sizes_do_not_reveal_a_limit() -> None:
    data = RoadSigns(count=1200)
    rows = []
    for index in range(len(data)):
        signs = data.layout(index).signs
        rings = sum(sign.kind in (*SPEEDS, *RINGED) for sign in signs)
        rows.append((len(signs), rings, np.mean([sign.diameter for sign in signs])))
    facts = np.array(rows)
    limit = np.array([data.label(index) > 0 for index in range(len(data))])
    apart = facts[limit].mean(axis=0) - facts[~limit].mean(axis=0)
    assert np.all(np.abs(apart) < 0.25 * facts.std(axis=0))  # standard error 0.07


def test_the_amount_of_red_does_not_reveal_a_limit() -> None:
    data = RoadSigns(width=400, height=300, count=160)
    red = []
    for index in range(len(data)):
        r, g, b = np.moveaxis(draw_scene(data.layout(index)).astype(int), -1, 0)
        red.append(((r > 1.5 * g) & (r > 1.5 * b)).mean())
    limit = np.array([data.label(index) > 0 for index in range(len(data))])
    amount = np.array(red)
    # The chance that a picture with a limit is the redder one: 0.5, standard error 0.053.
    chance = (amount[limit][:, None] > amount[~limit]).mean()
    assert 0.34 < chance < 0.66


def test_a_source_is_pickled_without_its_pixels(roads: RoadSigns) -> None:
    source, _ = roads[2]
    before = len(pickle.dumps(source))
    expected = source.read([0, 77, 191])
    parcel = pickle.dumps(source)
    assert len(parcel) == before < 20_000
    assert torch.equal(pickle.loads(parcel).read([0, 77, 191]), expected)


def test_closing_lets_the_pixels_go(roads: RoadSigns) -> None:
    source, _ = roads[2]
    assert isinstance(source.image, WholeImage)
    expected = source.read([5])
    pixels = weakref.ref(source.image.pixels)
    source.close()
    assert pixels() is None
    assert torch.equal(source.read([5]), expected)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"width": 300}, "300 x 600 px leaves no room for signs: take at least 320 x 240 px"),
        ({"height": 100}, "800 x 100 px leaves no room"),
        ({"count": 0}, "0 images is empty: ask for at least 1"),
        ({"split": "dev"}, "no split 'dev': take 'train', 'validation' or 'test'"),
        ({"seed": -1}, "seed -1 is negative: take 0 or more"),
    ],
)
def test_wrong_settings_are_refused(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        RoadSigns(**wrong)


def test_wrong_patch_sizes_and_indices_are_refused() -> None:
    with pytest.raises(PatchError, match="a patch of 700 px does not fit"):
        RoadSigns(patch_size=700)
    data = RoadSigns(count=4)
    for wrong in (4, -1):
        for ask in (data.__getitem__, data.boxes):
            with pytest.raises(IndexError, match=f"there is no image {wrong}, only 0 to 3"):
                ask(wrong)


def test_files_have_the_same_images_labels_and_boxes(tmp_path: Path) -> None:
    def write(*, train: int = 1, test: int = 4, **changes: Any) -> None:
        write_road_signs(tmp_path, train=train, test=test, **changes)

    write(train=0, test=2)
    first = tmp_path / "pictures" / "test-0000.png"
    written = first.stat().st_mtime_ns
    write()  # goes on
    assert first.stat().st_mtime_ns == written
    rows = [line.split(",") for line in (tmp_path / "road.csv").read_text().splitlines()]
    assert rows[0] == ["path", "sign", "split"]
    assert [row[2] for row in rows[1:]] == ["train"] + 4 * ["test"]
    data = RoadSigns(width=400, height=300, count=4, split="test")
    for number, (path, sign, _) in enumerate(rows[2:]):
        assert (np.asarray(Image.open(tmp_path / path)) == picture(data, number)).all()
        assert sign == NAMES[int(data[number][1]["sign"])]
        truth = json.loads((tmp_path / "truth" / f"{Path(path).stem}.geojson").read_text())
        corners = [feature["geometry"]["coordinates"][0] for feature in truth["features"]]
        assert [[*c[0], *c[2]] for c in corners] == data.boxes(number).tolist()
        assert all(c[0] == c[-1] for c in corners)
    with pytest.raises(DataError, match=r"holds images drawn with .*'seed': 0.*another folder"):
        write(seed=1)
    with pytest.raises(DataError, match="train=0 and test=0: ask for at least one picture"):
        write(train=0, test=0)
