"""Feature files are written atomically and can be read by other tools."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import torch

from ips.errors import PatchError
from ips.patches.feature_writer import FeatureWriter
from ips.patches.features import open_features
from ips.patches.layouts import FORMAT, VERSION
from tests.patches.feature_files import FEATURES, PIXELS, D, N


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

    def test_without_our_format_attribute_the_layout_is_trident(
        self, folder: Path, tmp_path: Path
    ) -> None:
        path = tmp_path / "a.h5"
        path.write_bytes((folder / "ours.h5").read_bytes())
        with h5py.File(path, "a") as file:
            del file.attrs["format"]
        bag = open_features(path)
        assert bag.layout.kind == "trident"
        assert bag.extent == 512

    def test_names_the_slide(self, tmp_path: Path) -> None:
        slide = tmp_path / "slides" / "odd \udcff.svs"  # not UTF-8 on disk
        with FeatureWriter(
            tmp_path / "a.h5", patch_size=64, extent=128, size=(4096, 2048), slide=slide
        ) as writer:
            writer.append(FEATURES, PIXELS)
        bag = open_features(tmp_path / "a.h5")
        assert bag.layout.kind == "ips"
        assert bag.attributes["slide"] == str(tmp_path / "slides" / "odd ?.svs")
        assert (bag.attributes["level0_width"], bag.attributes["level0_height"]) == (4096, 2048)

    @pytest.mark.parametrize(
        ("known", "finest", "read"),
        [({"mpp": 0.2528}, 40, 20), ({"mpp": 0.24, "magnification": 20.0}, 20, 10), ({}, *"NN")],
    )
    def test_has_all_attributes_of_trident(
        self, tmp_path: Path, known: dict[str, float], finest: object, read: object
    ) -> None:
        path = tmp_path / "job" / "a.h5"
        with FeatureWriter(
            path,
            patch_size=256,
            extent=512,
            size=(4096, 2048),
            encoder="uni",
            layout="trident",
            **known,  # type: ignore[arg-type]
        ) as writer:
            writer.append(FEATURES, PIXELS)
        with h5py.File(path) as file:
            assert dict(file.attrs) == {}
            names = {"name": "a", "savetodir": str(path.parent)}
            assert dict(file["features"].attrs) == {"encoder": "uni", **names}
            expected = names | {
                "patch_size": 256,
                "patch_size_level0": 512,
                "level0_magnification": "None" if finest == "N" else finest,
                "target_magnification": "None" if read == "N" else read,
                "overlap": 0,
                "level0_width": 4096,
                "level0_height": 2048,
            }
            assert expected.items() <= dict(file["coords"].attrs).items()
        bag = open_features(path)
        assert (bag.layout.kind, bag.extent, bag.mpp) == ("trident", 512, known.get("mpp"))

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_half_precision(self, tmp_path: Path, dtype: torch.dtype) -> None:
        features = torch.from_numpy(FEATURES).to(dtype)
        with FeatureWriter(tmp_path / "new" / "a.h5", patch_size=64, extent=64) as writer:
            writer.append(features.requires_grad_(), PIXELS)
        bag = open_features(tmp_path / "new" / "a.h5")
        assert bag.mpp is None
        assert torch.equal(bag.read(range(N)), features.detach().half())

    def test_an_interrupted_write_leaves_the_old_file(self, tmp_path: Path) -> None:
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
    @pytest.mark.parametrize("batches", [3, 100])  # noticed at the end, and while writing
    def test_full_disk(self, tmp_path: Path, batches: int) -> None:
        """A limit on the file size simulates a full disk, in a separate process."""
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
