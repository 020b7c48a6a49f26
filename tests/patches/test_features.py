"""Feature files of every layout, against reading the whole array and picking rows."""

from __future__ import annotations

import multiprocessing
import pickle
import subprocess
import sys
from collections.abc import Callable
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
from ips.patches.features import FeatureBag, check_widths, groups, open_features, read_rows
from ips.patches.layouts import FORMAT, VERSION
from ips.patches.source import PatchSource, release

N, D = 150, 12
RANDOM = np.random.default_rng(0)
FEATURES = RANDOM.standard_normal((N, D)).astype(np.float32)
PIXELS = np.stack(np.divmod(np.arange(N), 15)[::-1], axis=1) * 512  # x, y


def write_clam(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=FEATURES, chunks=(32, D), maxshape=(None, D))
        file.create_dataset("coords", data=PIXELS.astype(np.int32), chunks=(32, 2))


def write_trident(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file.create_dataset("features", data=FEATURES, chunks=(1, D), maxshape=(None, D))
        file["features"].attrs.update(name="slide", savetodir="None", encoder="uni_v1")
        file.create_dataset("coords", data=PIXELS, chunks=(1, 2))
        file["coords"].attrs.update(
            patch_size=256,
            patch_size_level0=512,
            level0_magnification=40,
            target_magnification=20,
            overlap=0,
            name="slide",
        )


def write_leading_axis(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["features"] = FEATURES[None]
        file["coords"] = PIXELS[None]


def write_stamp(path: Path) -> None:
    with h5py.File(path, "w") as file:
        file["feats"] = FEATURES.astype(np.float16)
        file["coords"] = (PIXELS * 0.25).astype(np.float32)
        file.attrs.update(
            stamp_version="2.2.0",
            extractor="ctranspath",
            unit="um",
            tile_size_um=128.0,
            tile_size_px=224,
        )


def write_stamp_legacy(path: Path) -> None:
    """Tiles of 256 µm, 1,024 px at 0.25 µm/px, which the file counts as 224 each."""
    with h5py.File(path, "w") as file:
        file["feats"] = FEATURES.astype(np.float16)
        file["coords"] = PIXELS // 512 * 224


def write_stamp_legacy_px(path: Path) -> None:
    """The same with a unit: pixels of tiles, not of the slide."""
    write_stamp_legacy(path)
    with h5py.File(path, "a") as file:
        file.attrs.update(unit="px", tile_size=224)


def write_paper(path: Path) -> None:
    with h5py.File(path, "w") as file:
        for label, slide in enumerate(("normal_001", "tumor_001")):
            group = file.create_group(slide)
            array = FEATURES + label
            group.create_dataset("img", data=array, compression="gzip", compression_opts=9)
            group.create_dataset("pos", data=np.arange(N) * 3, compression="gzip")
            group.attrs["label"] = np.int64(label)


def write_ours(path: Path) -> None:
    with FeatureWriter(
        path, patch_size=256, extent=512, level=1, mpp=0.25, encoder="resnet50", dtype="float32"
    ) as writer:
        for start in range(0, N, 64):
            rows = slice(start, start + 64)
            writer.append(torch.from_numpy(FEATURES[rows]), PIXELS[rows])


ROW = np.stack([np.arange(N) * 3, np.zeros(N, dtype=np.int64)], axis=1)
# writer, group, kind, features, coords, extent
LAYOUTS: dict[str, tuple[Callable[[Path], None], str | None, str, Any, Any, int | None]] = {
    "clam": (write_clam, None, "clam", FEATURES, PIXELS, None),
    "trident": (write_trident, None, "trident", FEATURES, PIXELS, 512),
    "leading axis": (write_leading_axis, None, "clam", FEATURES, PIXELS, None),
    "stamp": (write_stamp, None, "stamp", FEATURES.astype(np.float16), PIXELS, 512),
    "stamp legacy": (
        write_stamp_legacy,
        None,
        "stamp",
        FEATURES.astype(np.float16),
        PIXELS * 2,
        1024,
    ),
    "stamp legacy px": (
        write_stamp_legacy_px,
        None,
        "stamp",
        FEATURES.astype(np.float16),
        PIXELS * 2,
        1024,
    ),
    "paper": (write_paper, "tumor_001", "ips-paper", FEATURES + 1, ROW, None),
    "ours": (write_ours, None, "ips", FEATURES, PIXELS, 512),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layouts")
    for name, (write, *_) in LAYOUTS.items():
        write(folder / f"{name}.h5")
    return folder


def open_layout(folder: Path, name: str) -> FeatureBag:
    return open_features(folder / f"{name}.h5", group=LAYOUTS[name][1], mpp=0.25)


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
    release(bag)  # nothing is open yet
    with bag:
        bag.read([0])
        handle = bag._file
    assert handle is not None
    assert not handle  # closed, so that another may write the file
    for again in (bag, pickle.loads(pickle.dumps(bag))):
        np.testing.assert_array_equal(again.read([3, 1]).numpy(), FEATURES[[3, 1]])
        release(again)
        assert again._file is None


def test_attributes_are_plain(folder: Path) -> None:
    trident = open_layout(folder, "trident").attributes
    assert trident["encoder"] == "uni_v1"
    assert trident["savetodir"] is None
    assert type(trident["patch_size"]) is int
    assert open_layout(folder, "stamp").attributes["extractor"] == "ctranspath"


def test_paper_layout_is_addressed_by_slide(folder: Path) -> None:
    path = folder / "paper.h5"
    assert groups(path) == ["normal_001", "tumor_001"]
    bags = [open_features(f"{path}::{slide}") for slide in groups(path)]
    assert [bag.label for bag in bags] == [0, 1]
    assert open_layout(folder, "clam").label is None


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
    "empty": ({"features": FEATURES[:0], "coords": PIXELS[:0]}, {}, "empty bag of 0"),
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
        with pytest.raises(
            PatchError, match=rf"{path.name}: not an HDF5 file, or one .* cut short"
        ):
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
    with pytest.raises(PatchError, match=r"slide\.h5: /features cannot be read"):
        bag.read([0])


def test_groups_that_are_not_there(folder: Path) -> None:
    with pytest.raises(PatchError, match=r"no group 'x'.*normal_001, tumor_001"):
        open_features(folder / "paper.h5", group="x")
    with pytest.raises(PatchError, match=r"2 slides.*as in paper\.h5::normal_001"):
        open_features(folder / "paper.h5")
    with pytest.raises(PatchError, match=r"clam\.h5: no group with img and pos"):
        groups(folder / "clam.h5")


def test_one_width_per_folder(folder: Path, tmp_path: Path) -> None:
    with FeatureWriter(tmp_path / "wide.h5", patch_size=64, extent=64) as writer:
        writer.append(np.zeros((2, 99)), PIXELS[:2])
    bags = [open_layout(folder, "clam"), open_layout(folder, "stamp")]
    assert check_widths(bags) == D
    with pytest.raises(PatchError, match=r"clam\.h5 has 12 .* wide\.h5 has 99"):
        check_widths([*bags, open_features(tmp_path / "wide.h5")])
    with pytest.raises(PatchError, match="no feature file"):
        check_widths([])


class TestWriter:
    def test_has_the_names_other_tools_read(self, folder: Path) -> None:
        with h5py.File(folder / "ours.h5") as file:
            assert set(file) == {"features", "coords"}
            np.testing.assert_array_equal(file["features"][:], FEATURES)
            np.testing.assert_array_equal(file["coords"][:], PIXELS)
            assert file["features"].chunks == (32, D)
            assert file["coords"].dtype == np.int64
            assert file["features"].attrs["encoder"] == "resnet50"
            assert dict(file["coords"].attrs) == {
                "patch_size": 256,
                "patch_size_level0": 512,
                "level": 1,
                "mpp": 0.25,
                "unit": "px",
            }
            assert dict(file.attrs) == {"format": FORMAT, "version": VERSION}

    def test_is_taken_for_trident_without_our_mark(self, folder: Path, tmp_path: Path) -> None:
        path = tmp_path / "a.h5"
        path.write_bytes((folder / "ours.h5").read_bytes())
        with h5py.File(path, "a") as file:
            del file.attrs["format"]
        bag = open_features(path)
        assert bag.layout.kind == "trident"
        assert bag.extent == 512

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_half_precision(self, tmp_path: Path, dtype: torch.dtype) -> None:
        features = torch.from_numpy(FEATURES).to(dtype)
        with FeatureWriter(tmp_path / "new" / "a.h5", patch_size=64, extent=64) as writer:
            writer.append(features.requires_grad_(), PIXELS)
        bag = open_features(tmp_path / "new" / "a.h5")
        assert bag.mpp is None
        assert torch.equal(bag.read(range(N)), features.detach().half())

    def test_interrupted_leaves_what_was_there(self, tmp_path: Path) -> None:
        path = tmp_path / "a.h5"
        path.write_text("before")

        def write() -> None:
            with FeatureWriter(path, patch_size=64, extent=64) as writer:
                writer.append(FEATURES, PIXELS)
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            write()
        assert [p.name for p in tmp_path.iterdir()] == ["a.h5"]
        assert path.read_text() == "before"

    @pytest.mark.parametrize(
        ("features", "coords", "message"),
        [
            (FEATURES, PIXELS[:-1], r"\(150, 12\) with coordinates \(149, 2\)"),
            (FEATURES[0], PIXELS[0], r"expected \(k, D\)"),
            (FEATURES[:, :5], PIXELS, "5 features per patch after 12"),
            (FEATURES * 1e6, PIXELS, "cannot be stored as float16: write float32"),
            (FEATURES * np.nan, PIXELS, "value nan"),
        ],
    )
    def test_bad_rows(self, tmp_path: Path, features: Any, coords: Any, message: str) -> None:
        def write() -> None:
            with FeatureWriter(tmp_path / "a.h5", patch_size=64, extent=64) as writer:
                writer.append(FEATURES, PIXELS)
                writer.append(features, coords)

        with pytest.raises(PatchError, match=rf"a\.h5: .*{message}"):
            write()
        assert list(tmp_path.iterdir()) == []

    def test_no_patches(self, tmp_path: Path) -> None:
        with (
            pytest.raises(PatchError, match=r"a\.h5: no patches to write"),
            FeatureWriter(tmp_path / "a.h5", patch_size=64, extent=64),
        ):
            pass
        assert list(tmp_path.iterdir()) == []

    def test_folder_that_cannot_be_made(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")
        with (
            pytest.raises(PatchError, match="cannot be written"),
            FeatureWriter(tmp_path / "file" / "a.h5", patch_size=64, extent=64),
        ):
            pass

    def test_outside_a_with_block(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="with block"):
            FeatureWriter(tmp_path / "a.h5", patch_size=64, extent=64).append(FEATURES, PIXELS)

    @pytest.mark.skipif(sys.platform == "win32", reason="limits the size of files as POSIX does")
    @pytest.mark.parametrize("batches", [3, 100])  # Noticed at the end, and on the way.
    def test_full_disk(self, tmp_path: Path, batches: int) -> None:
        """A limit on the size of files stands for it; in a process of its own, to be left alone."""
        script = """
import resource, sys
import numpy as np
from ips.errors import PatchError
from ips.patches.feature_writer import FeatureWriter
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
try:
    with FeatureWriter(sys.argv[1], patch_size=64, extent=64) as writer:
        for _ in range(int(sys.argv[2])):
            writer.append(np.zeros((64, 512)), np.zeros((64, 2), dtype=np.int64))
except PatchError as error:
    print(error)
"""
        done = subprocess.run(
            [sys.executable, "-c", script, str(tmp_path / "a.h5"), str(batches)],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "cannot be written" in done.stdout
        assert (done.returncode, done.stderr) == (0, "")
        assert list(tmp_path.iterdir()) == []
