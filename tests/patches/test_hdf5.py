"""HDF5 files that are damaged, or made to read other files or to fill the memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

from ips.errors import PatchError
from ips.patches.features import open_features
from tests.patches.feature_files import FEATURES, PIXELS, D, N, write_clam, write_trident


def write(path: Path, coords: Any = PIXELS, **attributes: Any) -> Path:
    with h5py.File(path, "w") as file:
        file["features"] = FEATURES
        file["coords"] = coords
        file["coords"].attrs.update(attributes)
    return path


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e300])
def test_a_coordinate_that_is_not_finite(tmp_path: Path, value: float) -> None:
    coords = PIXELS.astype(float)
    coords[7, 1] = value
    bag = open_features(write(tmp_path / "a.h5", coords))
    with pytest.raises(PatchError, match=r"a\.h5: /coords contains .*not a coordinate"):
        _ = bag.coords


def test_coordinates_that_are_texts(tmp_path: Path) -> None:
    coords = np.array([[b"a", b"b"]] * N)
    with pytest.raises(PatchError, match=r"a\.h5: /coords is \|S1, expected numbers"):
        open_features(write(tmp_path / "a.h5", coords))


@pytest.mark.parametrize(
    "value", [[256, 256], "256 px", b"\xff\xfe", np.nan, np.inf, -1, True, 1e300, h5py.Empty("f")]
)
@pytest.mark.parametrize("key", ["patch_size_level0", "mpp", "version"])
def test_attributes_of_the_wrong_kind(tmp_path: Path, key: str, value: Any) -> None:
    path = write(tmp_path / "a.h5", format="ips-features", **{key: value})
    if isinstance(value, h5py.Empty):
        assert open_features(path).attributes[key] is None
        return
    with pytest.raises(PatchError, match=rf"a\.h5: its attribute {key} is .*positive number"):
        open_features(path)


def test_a_unit_of_the_wrong_kind(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=r"a\.h5: its attribute unit is 3, expected a text"):
        open_features(write(tmp_path / "a.h5", unit=3))


def test_a_number_may_be_an_array_of_one(tmp_path: Path) -> None:
    assert open_features(write(tmp_path / "a.h5", patch_size_level0=[512])).extent == 512


def test_a_patch_beyond_any_size(tmp_path: Path) -> None:
    with pytest.raises(PatchError, match=r"a\.h5: its patches would have a side of 1e\+09 px"):
        open_features(write(tmp_path / "a.h5", patch_size_level0=10**9))


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file[b"caf\xe9"] = FEATURES
    with pytest.raises(PatchError, match=r"a\.h5: cannot be read as a feature file .*utf-8"):
        open_features(tmp_path / "a.h5")
    path = write(tmp_path / "b.h5", encoder=b"caf\xe9")
    assert open_features(path).attributes["encoder"] == "caf\ufffd"


def test_an_array_that_is_larger_than_the_file(tmp_path: Path) -> None:
    for compression in (None, "gzip"):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            options: dict[str, Any] = {"chunks": (32, 1024), "compression": compression}
            file.create_dataset("features", shape=(10**9, 1024), dtype="f4", **options)
            file["features"][:32] = 1
            options["chunks"] = (32, 2)
            file.create_dataset("coords", shape=(10**9, 2), dtype="i8", **options)
        with pytest.raises(PatchError, match=r"a\.h5: .*\(1000000000, .* the file is incomplete"):
            open_features(tmp_path / "a.h5")


def test_chunks_that_were_never_written(tmp_path: Path) -> None:
    write_clam(tmp_path / "a.h5")
    with h5py.File(tmp_path / "a.h5", "a") as file:
        file["features"].resize(2 * N, axis=0)  # HDF5 would read the rest as zeros
    with pytest.raises(PatchError, match=r"a\.h5: /features .* the file is incomplete"):
        open_features(tmp_path / "a.h5")


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    """A file whose bytes must not be read as features."""
    path = tmp_path / "secret"
    FEATURES.tofile(path)
    return path


def test_links_to_other_files_are_not_followed(tmp_path: Path) -> None:
    write_trident(tmp_path / "other.h5")
    for link in (h5py.ExternalLink("other.h5", "/features"), h5py.SoftLink("/hidden")):
        with h5py.File(tmp_path / "a.h5", "w") as file:
            file["hidden"] = h5py.ExternalLink("other.h5", "/features")
            file["coords"] = PIXELS
            file["features"] = link
        with pytest.raises(PatchError, match=r"a\.h5: features is a link to .*not followed"):
            open_features(tmp_path / "a.h5")
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["slide"] = h5py.ExternalLink("other.h5", "/")
    with pytest.raises(PatchError, match=r"b\.h5: slide is a link to other\.h5"):
        open_features(f"{tmp_path}/b.h5::slide")
    with pytest.raises(PatchError, match=r"b\.h5: expected the arrays .* found slide"):
        open_features(tmp_path / "b.h5")


def test_arrays_in_other_files_are_not_read(tmp_path: Path, secret: Path) -> None:
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["coords"] = PIXELS
        external = [(str(secret), 0, FEATURES.nbytes)]
        file.create_dataset("features", (N, D), "f4", external=external)
    with h5py.File(tmp_path / "source.h5", "w") as file:
        file["x"] = FEATURES
    with h5py.File(tmp_path / "b.h5", "w") as file:
        file["coords"] = PIXELS
        layout = h5py.VirtualLayout((N, D), "f4")
        layout[:] = h5py.VirtualSource(str(tmp_path / "source.h5"), "x", (N, D))
        file.create_virtual_dataset("features", layout)
    for name in ("a.h5", "b.h5"):
        with pytest.raises(PatchError, match=rf"{name}: /features is stored in another file"):
            open_features(tmp_path / name)
