from __future__ import annotations

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from ips.data.split import Split
from ips.data.synthetic.digits import load_digits
from ips.data.synthetic.megapixel_mnist import TASKS, MegapixelMNIST
from ips.data.synthetic.scene import ScenePatches
from ips.errors import DataError, PatchError
from ips.patches.image import Edge, Grid
from ips.patches.source import PatchSource


@pytest.fixture(scope="module")
def scenes() -> MegapixelMNIST:
    return MegapixelMNIST(side=300, count=40, patch_size=50, stride=50)


Image = tuple[ScenePatches, dict[str, Tensor]]


def same(first: Image, second: Image) -> bool:
    labels = all(torch.equal(first[1][task], second[1][task]) for task in TASKS)
    return labels and np.array_equal(first[0].dense(), second[0].dense())


def test_labels_match_the_digits_of_the_image(scenes: MegapixelMNIST) -> None:
    digits = load_digits()
    class_of = {
        image.tobytes(): int(label)
        for image, label in zip(digits.images, digits.labels, strict=True)
    }
    for scene, labels in map(scenes.__getitem__, range(len(scenes))):
        picture = scene.dense()
        seen = []  # y and class of each digit, recognised by its pixels
        for x, y in scene.places[-5:].tolist():
            seen.append((y, class_of[picture[y : y + 28, x : x + 28].tobytes()]))
        classes = sorted(digit for _, digit in seen)
        majority = int(labels["majority"])
        assert classes.count(majority) == 3
        assert int(labels["max"]) == classes[-1]
        assert int(labels["top"]) == min(seen)[1]
        assert labels["multi"].tolist() == [float(digit in classes) for digit in range(10)]
        assert [labels[task].dtype for task in TASKS] == [torch.int64] * 3 + [torch.float32]
        assert [labels[task].shape for task in TASKS] == [()] * 3 + [(10,)]


def test_objects_are_the_digits_and_not_the_noise(scenes: MegapixelMNIST) -> None:
    digits = {image.tobytes() for image in load_digits().images}
    for index in range(4):
        picture = scenes[index][0].dense()
        regions = scenes.objects(index, "top")
        cut = []
        for region in regions:
            (x0, y0), (x1, y1) = (corner.astype(int) for corner in region.bounds)
            cut.append(picture[y0:y1, x0:x1].tobytes())
        assert len(regions) == 5
        assert set(cut) <= digits


def test_pictures_are_noise_with_digits_pasted_over_it(scenes: MegapixelMNIST) -> None:
    for index in range(len(scenes)):
        layout = scenes.layout(index)
        cells = [*scenes.noise_bank[layout.noise], *scenes.images[layout.digits]]
        places = [*layout.noise_places.tolist(), *layout.digit_places.tolist()]
        picture = np.zeros((300, 300), np.uint8)
        for cell, (x, y) in zip(cells, places, strict=True):
            picture[y : y + 28, x : x + 28] = cell  # black pixels of a cell cover, too
        assert np.array_equal(scenes[index][0].dense(), picture)


def test_every_class_occurs_as_majority() -> None:
    many = MegapixelMNIST(side=112, count=200, noise=0)
    counts = np.bincount(
        [int(many[index][1]["majority"]) for index in range(len(many))], minlength=10
    )
    assert counts.min() > 5


@pytest.mark.parametrize("side", [112, 150, 1000])
def test_digits_do_not_overlap_and_one_is_topmost(side: int) -> None:
    data = MegapixelMNIST(side=side, count=30)
    for index in range(len(data)):
        places = data.layout(index).digit_places
        assert places.min() >= 0
        assert places.max() <= side - 28
        for i in range(5):
            for j in range(i):
                assert np.abs(places[i] - places[j]).max() >= 28
        assert len(np.flatnonzero(places[:, 1] == places[:, 1].min())) == 1


@pytest.mark.parametrize(
    ("side", "noise", "expected"),
    [(1000, None, 33), (1500, None, 50), (10_000, None, 333), (112, 0, 0), (112, 7, 7)],
)
def test_noise_grows_with_the_side_and_stays_off_the_border(
    side: int, noise: int | None, expected: int
) -> None:
    scene, _ = MegapixelMNIST(side=side, count=1, noise=noise)[0]
    assert len(scene.cells) == expected + 5
    places = scene.places[:expected]
    assert np.all((places >= 28) & (places <= side - 29))


def test_splits_have_their_own_noise_which_stays_the_same_in_every_epoch() -> None:
    split: Split
    banks = []
    for split in ("train", "validation", "test"):
        data = MegapixelMNIST(side=1500, count=2, split=split, fresh=True)
        assert data.noise_bank.shape == (50, 28, 28)
        data.set_epoch(1)
        scene, _ = data[1]
        assert np.array_equal(scene.cells[:50], data.noise_bank[data.layout(1).noise])
        banks.append(data.noise_bank)
    assert len({bank.tobytes() for bank in banks}) == 3
    assert np.array_equal(MegapixelMNIST(side=1500, count=9, stride=25).noise_bank, banks[0])


def test_noise_patterns_and_places_are_uniform() -> None:
    data = MegapixelMNIST(side=300, count=400)  # 10 patterns
    layouts = [data.layout(index) for index in range(len(data))]
    counts = np.bincount(np.concatenate([layout.noise for layout in layouts]), minlength=10)
    assert counts.min() > 300  # of 4,000
    assert counts.max() < 500
    places = np.concatenate([layout.noise_places for layout in layouts])
    assert (places.min(axis=0).tolist(), places.max(axis=0).tolist()) == ([28, 28], [271, 271])


def test_splits_share_no_digit() -> None:
    digits = load_digits()
    used = {}
    split: Split
    for split in ("train", "validation", "test"):
        data = MegapixelMNIST(side=112, count=400, split=split, hold_out=True, noise=0)
        used[split] = np.unique([data.layout(index).digits for index in range(400)])
    assert np.isin(used["test"], digits.test).all()
    assert np.isin(used["validation"], digits.train[9::10]).all()
    assert np.isin(used["train"], np.delete(digits.train, np.s_[9::10])).all()
    assert len(used["train"]) > 1400  # of 3,600, with 2,000 draws


def test_without_validation_images_all_training_digits_are_used() -> None:
    data = MegapixelMNIST(side=112, count=100, noise=0)
    used = np.unique([data.layout(index).digits for index in range(100)])
    assert np.isin(used, load_digits().train[9::10]).any()


def test_images_do_not_depend_on_instance_or_order(scenes: MegapixelMNIST) -> None:
    again = MegapixelMNIST(side=300, count=7)
    for index in (6, 0, 3):
        assert same(again[index], scenes[index])
    assert same(scenes[3], scenes[3])


def test_images_depend_on_seed_split_and_index(scenes: MegapixelMNIST) -> None:
    others = [
        MegapixelMNIST(side=300, seed=1)[0],
        MegapixelMNIST(side=300, split="test")[0],
        scenes[1],
    ]
    assert not any(same(scenes[0], other) for other in others)


def test_images_do_not_change_between_versions(scenes: MegapixelMNIST) -> None:
    picture = scenes[0][0].dense()
    assert hashlib.sha256(picture.tobytes()).hexdigest()[:16] == "4b38673b809f149e"


def first_of(batch: list[Image]) -> Image:
    return batch[0]


def test_workers_give_the_same_images_and_see_the_epoch() -> None:
    data = MegapixelMNIST(side=150, count=4, fresh=True)
    loader = DataLoader(
        data, batch_size=1, num_workers=2, persistent_workers=True, collate_fn=first_of
    )
    for epoch in (0, 1):
        data.set_epoch(epoch)
        for index, item in enumerate(loader):
            assert same(item, data[index])


def test_fresh_images_depend_on_the_epoch() -> None:
    data = MegapixelMNIST(side=150, count=2, fresh=True)
    first = data[0]
    data.set_epoch(1)
    assert not same(data[0], first)
    data.set_epoch(0)
    assert same(data[0], first)
    assert same(MegapixelMNIST(side=150, count=2)[0], first)


def test_other_images_ignore_the_epoch(scenes: MegapixelMNIST) -> None:
    first = scenes[0]
    scenes.set_epoch(5)
    assert same(scenes[0], first)


def naive_patches(scene: ScenePatches) -> np.ndarray:
    p = scene.grid.patch
    picture = np.pad(scene.dense(), (0, p + scene.grid.stride))
    return np.stack([picture[y : y + p, x : x + p] for x, y in scene.coords.tolist()])[:, None]


@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_patches_equal_naive_crops(data: st.DataObject) -> None:
    width, height = data.draw(st.integers(28, 150)), data.draw(st.integers(28, 150))
    edge: Edge = data.draw(st.sampled_from(["drop", "pad", "fit"]))
    largest = min(width, height) if edge == "drop" else 170
    patch, stride = data.draw(st.integers(1, largest)), data.draw(st.integers(5, 80))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    count = data.draw(st.integers(0, 12))
    scene = ScenePatches(
        rng.integers(1, 256, size=(count, 28, 28), dtype=np.uint8),
        places=rng.integers([width - 27, height - 27], size=(count, 2)),
        grid=Grid(width, height, patch=patch, stride=stride, edge=edge),
        name="scene",
    )
    expected = naive_patches(scene)
    assert np.array_equal(scene.read(range(len(scene))).numpy(), expected)
    some = rng.integers(len(scene), size=7)  # in any order, some of them twice
    assert np.array_equal(scene.read(some).numpy(), expected[some])


def test_later_cells_cover_earlier_ones() -> None:
    cells = np.stack([np.full((28, 28), 9, np.uint8), np.zeros((28, 28), np.uint8)])
    grid = Grid(100, 100, patch=100, stride=100)
    scene = ScenePatches(cells, places=np.array([[10, 10], [20, 10]]), grid=grid, name="scene")
    assert int((scene.read([0]) > 0).sum()) == 10 * 28
    assert int((scene.dense() > 0).sum()) == 10 * 28


def test_scene_is_a_patch_source(scenes: MegapixelMNIST) -> None:
    scene, _ = scenes[2]
    assert isinstance(scene, PatchSource)
    assert len(scene) == 36
    assert scene.shape == (1, 50, 50)
    assert scene.extent == 50
    assert scene.coords[7].tolist() == [50, 50]
    assert scene.name == "megapixel-mnist/train/2"
    assert scene.read(torch.tensor([], dtype=torch.int64)).shape == (0, 1, 50, 50)
    assert scene.read([0]).dtype == torch.uint8
    with pytest.raises(PatchError, match="train/2: there is no patch 36"):
        scene.read([36])


def test_pickles_of_a_scene_stay_small_after_reading() -> None:
    scene, _ = MegapixelMNIST(side=10_000, count=1)[0]
    before = len(pickle.dumps(scene))
    patches = scene.read(range(0, 40_000, 97))
    assert len(scene.coords) == 40_000
    data = pickle.dumps(scene)
    assert len(data) == before < 300_000
    assert torch.equal(pickle.loads(data).read(range(0, 40_000, 97)), patches)


def test_a_data_set_can_be_pickled(scenes: MegapixelMNIST) -> None:
    assert same(pickle.loads(pickle.dumps(scenes))[1], scenes[1])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"side": 111}, "side 111 leaves no room for 5 digits of 28 px: take at least 112"),
        ({"count": 0}, "a data set of 0 images is empty"),
        ({"split": "val"}, "no split 'val': take 'train', 'validation' or 'test'"),
        ({"noise": -1}, "noise -1 is negative"),
        ({"seed": -1}, "seed -1 is negative"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        MegapixelMNIST(**settings)


def test_patch_larger_than_the_image_is_an_error_unless_padded() -> None:
    with pytest.raises(PatchError, match="patch of 200 px does not fit"):
        MegapixelMNIST(side=120, patch_size=200)
    scene, _ = MegapixelMNIST(side=120, patch_size=200, edge="pad")[0]
    assert scene.read([0])[0, 0, :120, :120].numpy().tolist() == scene.dense().tolist()


def test_a_wrong_index_raises_an_index_error(scenes: MegapixelMNIST) -> None:
    for index in (-1, 40):
        with pytest.raises(IndexError, match=f"there is no image {index}, only 0 to 39"):
            scenes[index]


def test_idx_files_need_every_class(tmp_path: Path) -> None:
    for stem in ("train", "t10k"):
        labels = np.arange(20, dtype=np.uint8) % 9
        header = (0x0801).to_bytes(4) + (20).to_bytes(4)
        (tmp_path / f"{stem}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
        header = (0x0803).to_bytes(4) + (20).to_bytes(4) + 2 * (28).to_bytes(4)
        (tmp_path / f"{stem}-images-idx3-ubyte").write_bytes(header + bytes(20 * 784))
    with pytest.raises(DataError, match="no digit 9 among the 20 train digits"):
        MegapixelMNIST(side=112, digits=tmp_path)


@pytest.mark.parametrize("shift", [(0.3, -0.2), (-0.5, 0.5)])
def test_the_grid_of_an_image_can_be_shifted(
    scenes: MegapixelMNIST, shift: tuple[float, float]
) -> None:
    scene, _ = scenes[3]
    moved = scene.shifted(shift)
    step = np.array(shift) * 50
    assert np.array_equal(moved.coords, np.clip(scene.coords + step, 0, 250))
    picture, patches = scene.dense(), pickle.loads(pickle.dumps(moved)).read(range(len(moved)))
    for (x, y), patch in zip(moved.coords.tolist(), patches[:, 0].numpy(), strict=True):
        assert np.array_equal(patch, picture[y : y + 50, x : x + 50])
