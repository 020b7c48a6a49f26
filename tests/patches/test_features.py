"""Feature files of every layout, against reading the whole array and picking rows."""

from __future__ import annotations

import multiprocessing
import pickle
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ips.errors import PatchError
from ips.patches.feature_writer import FeatureWriter
from ips.patches.features import FeatureBag, check_widths, open_features, read_rows
from ips.patches.layouts import FORMAT, VERSION
from ips.patches.source import PatchSource
from tests.patches.feature_files import FEATURES, LAYOUTS, PIXELS, RANDOM, D, N, open_layout


@pytest.mark.parametrize("name", LAYOUTS)
class TestEveryLayout:
    def test_is_a_patch_source(self, folder: Path, name: str) -> None:
        _, group, kind, features, coords, extent = LAYOUTS[name]
        bag = open_layout(folder, name)
        assert isinstance(bag, PatchSource)
        assert bag.layout.kind == kind
        assert len(bag) == N
        assert bag.shape == (D,)
        assert bag.extent == extent
        assert bag.name == f"{name}.h5" + (f"::{group}" if group else "")
        assert bag.coords.dtype == np.int64
        np.testing.assert_array_equal(bag.coords, coords)
        assert bag.read([0]).numpy().dtype == features.dtype

    def test_any_indices_equal_the_whole_array(self, folder: Path, name: str) -> None:
        bag, features = open_layout(folder, name), LAYOUTS[name][3]
        for k in (0, 1, 7, N, 4 * N):  # More than N: with duplicates.
            index = RANDOM.integers(0, N, size=k)
            read = bag.read(index)
            assert read.shape == (k, D)
            np.testing.assert_array_equal(read.numpy(), features[index])
        np.testing.assert_array_equal(bag.read(range(N)).numpy(), features)
        np.testing.assert_array_equal(
            bag.read(torch.tensor([5, 3, 5])).numpy(), features[[5, 3, 5]]
        )

    def test_no_such_patch(self, folder: Path, name: str) -> None:
        with pytest.raises(PatchError, match=f"no patch {N}"):
            open_layout(folder, name).read([0, N])

    def test_pickles_before_and_after_reading(self, folder: Path, name: str) -> None:
        bag = open_layout(folder, name)
        before = pickle.dumps(bag)
        expected = bag.read([3, 1])
        _ = bag.coords
        after = pickle.dumps(bag)
        assert after == before  # Neither the handle nor the coordinates travel.
        for data in (before, after):
            copy = pickle.loads(data)
            assert torch.equal(copy.read([3, 1]), expected)
            np.testing.assert_array_equal(copy.coords, bag.coords)


def test_close_and_read_again(folder: Path) -> None:
    bag = open_layout(folder, "clam")
    bag.close()  # nothing is open yet
    with bag:
        bag.read([0])
        handle = bag._file
    assert handle is not None
    assert not handle  # closed, so that another may write the file
    for again in (bag, pickle.loads(pickle.dumps(bag))):
        np.testing.assert_array_equal(again.read([3, 1]).numpy(), FEATURES[[3, 1]])
        again.close()
        assert again._file is None


def test_attributes_are_plain(folder: Path) -> None:
    trident = open_layout(folder, "trident").attributes
    assert trident["encoder"] == "uni_v1"
    assert trident["savetodir"] is None
    assert type(trident["patch_size"]) is int
    assert open_layout(folder, "stamp").attributes["extractor"] == "ctranspath"


def test_paper_layout_is_addressed_by_slide(folder: Path) -> None:
    path = folder / "paper.h5"
    bags = [open_features(f"{path}::{slide}") for slide in ("normal_001", "tumor_001")]
    assert [bag.attributes["label"] for bag in bags] == [0, 1]


def test_micrometres_need_a_resolution_only_for_coordinates(folder: Path) -> None:
    bag = open_features(folder / "stamp.h5")
    assert bag.read([1]).shape == (1, D)
    assert bag.extent is None
    with pytest.raises(PatchError, match=r"stamp\.h5: .*set patches.slide_mpp"):
        _ = bag.coords
    with pytest.raises(PatchError, match="mpp=0"):
        open_features(folder / "stamp.h5", mpp=0)


def _read_in_child(bag: FeatureBag, answers: Any) -> None:
    answers.put(bag.read([4, 2]).numpy())


@pytest.mark.skipif(sys.platform == "win32", reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")  # Workers fork under threads too.
def test_a_forked_child_opens_its_own_handle(folder: Path) -> None:
    bag = open_layout(folder, "clam")
    bag.read([0])
    fork = multiprocessing.get_context("fork")
    answers = fork.SimpleQueue()
    child = fork.Process(target=_read_in_child, args=(bag, answers))
    child.start()
    answer = answers.get()
    child.join()
    assert child.exitcode == 0
    np.testing.assert_array_equal(answer, FEATURES[[4, 2]])
    np.testing.assert_array_equal(bag.read([1]).numpy(), FEATURES[[1]])


def test_threads_share_a_bag(folder: Path) -> None:
    bag = open_layout(folder, "paper")
    requests = [RANDOM.integers(0, N, size=20) for _ in range(40)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(bag.read, requests))
    for request, answer in zip(requests, answers, strict=True):
        np.testing.assert_array_equal(answer.numpy(), FEATURES[request] + 1)


class CountingArray:
    """An array that, like an HDF5 data set, is sliced, and that notes how many rows were read."""

    def __init__(self, array: Any, *, chunk: int | None) -> None:
        self.array, self.shape, self.dtype, self.ndim = array, array.shape, array.dtype, array.ndim
        self.chunks = None if chunk is None else (chunk, array.shape[1])
        self.slices: list[int] = []

    def __getitem__(self, rows: slice) -> Any:
        self.slices.append(rows.stop - rows.start)
        return self.array[rows]

    def read_direct(self, out: Any, rows: slice, place: slice) -> None:
        out[place] = self[rows]


@given(
    rows=st.sets(st.integers(0, 9_999), max_size=40),
    chunk=st.sampled_from([None, 1, 32, 500, 3_000]),
)
def test_reads_no_more_than_the_chunks_of_the_rows(rows: set[int], chunk: int | None) -> None:
    array = CountingArray(np.arange(20_000).reshape(10_000, 2), chunk=chunk)
    wanted = np.array(sorted(rows), dtype=np.int64)
    np.testing.assert_array_equal(read_rows(array, wanted), array.array[wanted])
    size = chunk or 1
    touched = len(np.unique(wanted // size))
    assert len(wanted) <= sum(array.slices) <= touched * size
    assert len(array.slices) <= touched
    assert max(array.slices, default=0) <= max(1024, size)


def test_neighbouring_rows_come_in_one_slice() -> None:
    array = CountingArray(np.zeros((10_000, 2)), chunk=1)
    read_rows(array, np.arange(2_048, 4_096))
    assert array.slices == [1024, 1024]


def test_rows_of_neighbouring_chunks_come_in_one_slice() -> None:
    array = CountingArray(np.zeros((10_000, 2)), chunk=10)
    read_rows(array, np.array([3, 15, 28, 51]))  # of chunks 0, 1, 2 and 5
    assert array.slices == [26, 1]


def test_big_endian_features(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["features"] = FEATURES.astype(">f4")
        file["coords"] = PIXELS
    np.testing.assert_array_equal(open_features(tmp_path / "a.h5").read([7]).numpy(), FEATURES[[7]])


BAD: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "other names": ({"embedding": FEATURES, "xy": PIXELS}, {}, "found embedding, xy"),
    "nothing": ({}, {}, "found nothing"),
    "no coords": ({"features": FEATURES}, {}, "found features"),
    "lengths": ({"features": FEATURES, "coords": PIXELS[:-1]}, {}, "150 features.*149"),
    "empty": ({"features": FEATURES[:0], "coords": PIXELS[:0]}, {}, "empty bag of 0 patches"),
    "slide": ({"features": FEATURES[0], "coords": PIXELS}, {}, "whole slide"),
    "integers": ({"features": PIXELS, "coords": PIXELS}, {}, "expected floats"),
    "flat coords": ({"features": FEATURES, "coords": PIXELS[:, 0]}, {}, r"expected \(N, 2\)"),
    "no unit": (
        {"feats": FEATURES, "coords": PIXELS},
        {},
        "not given, expected um, or px of tiles of 224",
    ),
    "odd unit": ({"feats": FEATURES, "coords": PIXELS}, {"unit": "mm"}, "is mm, expected um, or"),
    "odd pixels": (
        {"feats": FEATURES, "coords": PIXELS},
        {"unit": "px", "tile_size": 512},
        "is px, expected um, or px of tiles of 224",
    ),
    "odd unit of others": (
        {"features": FEATURES, "coords": PIXELS},
        {"unit": "mm"},
        "is mm, expected px or um",
    ),
    "newer": (
        {"features": FEATURES, "coords": PIXELS},
        {"format": FORMAT, "version": VERSION + 1},
        "update it",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_file(tmp_path: Path, name: str) -> None:
    arrays, attributes, message = BAD[name]
    path = tmp_path / "slide_017.h5"
    with h5py.File(path, "w") as file:
        for key, array in arrays.items():
            file[key] = array
        file.attrs.update(attributes)
    with pytest.raises(PatchError, match=rf"slide_017\.h5: .*{message}"):
        open_features(path)


def test_not_hdf5_truncated_missing(folder: Path, tmp_path: Path) -> None:
    text, short = tmp_path / "text.h5", tmp_path / "short.h5"
    text.write_text("not HDF5")
    data = (folder / "clam.h5").read_bytes()
    short.write_bytes(data[: len(data) // 2])
    for path in (text, short):
        with pytest.raises(PatchError, match=rf"{path.name}: cannot be read as a feature file"):
            open_features(path)
    with pytest.raises(PatchError, match="no such feature file"):
        open_features(tmp_path / "none.h5")


def test_damage_found_while_reading(tmp_path: Path) -> None:
    path = tmp_path / "slide.h5"
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=FEATURES, chunks=(32, D), compression="gzip")
        file["coords"] = PIXELS
        place = file["features"].id.get_chunk_info(0).byte_offset
    bag = open_features(path)
    with path.open("r+b") as raw:
        raw.seek(place)
        raw.write(b"\xff" * 64)
    with pytest.raises(PatchError, match=r"slide\.h5: cannot be read as a feature file"):
        bag.read([0])


def test_groups_that_are_not_there(folder: Path) -> None:
    with pytest.raises(PatchError, match=r"no group 'x'.*normal_001, tumor_001"):
        open_features(folder / "paper.h5", group="x")
    with pytest.raises(PatchError, match=r"2 slides.*as in paper\.h5::normal_001"):
        open_features(folder / "paper.h5")


def test_one_width_per_folder(folder: Path, tmp_path: Path) -> None:
    with FeatureWriter(tmp_path / "wide.h5", patch_size=64, extent=64) as writer:
        writer.append(np.zeros((2, 99)), PIXELS[:2])
    bags = [open_layout(folder, "clam"), open_layout(folder, "stamp")]
    assert check_widths(bags) == D
    with pytest.raises(PatchError, match=r"clam\.h5 has 12 .* wide\.h5 has 99"):
        check_widths([*bags, open_features(tmp_path / "wide.h5")])
    with pytest.raises(PatchError, match="no feature file"):
        check_widths([])
