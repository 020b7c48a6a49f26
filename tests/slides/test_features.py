"""Feature extraction: the content of the files, which must not depend on interruptions.

Processes kill themselves with SIGKILL after a random number of function calls, so the moments do
not depend on the speed of the machine.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
import tifffile
import torch
import torch.nn.functional as F
from PIL import Image
from ray import cloudpickle
from torch import Tensor, nn

from ips.errors import ConfigError, ImageError, PatchError
from ips.images import open_image
from ips.nn import resnet18, thin_resnet
from ips.patches import ImagePatches, open_features, open_patches
from ips.patches.source import Indices
from ips.slides.coords import Resolution, slide_patches
from ips.slides.features import FeatureExtractor, extract_features
from ips.slides.states import FeatureFolder
from ips.work import Place

COUNT, SIDE, PATCH = 8, 768, 64  # 144 patches a slide, three micro-batches
OPEN = partial(slide_patches, resolution=Resolution(PATCH))
forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")


def slide(path: Path, seed: int) -> Path:
    pixels = np.random.default_rng(seed).integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
    pixels[: SIDE // 4] = 240  # glass: equal patches are embedded once
    tifffile.imwrite(path, pixels, photometric="rgb", tile=(256, 256), resolutionunit="CENTIMETER")
    return path


def untrained(**settings: object) -> FeatureExtractor:
    torch.manual_seed(0)
    return FeatureExtractor(thin_resnet(width=8), name="thin-resnet", **settings)  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("slides")
    return {f"s{n}": slide(folder / f"s{n}.tif", n) for n in range(COUNT)}


@pytest.fixture(scope="module")
def extractor() -> FeatureExtractor:
    return untrained()


@pytest.fixture(scope="module")
def undisturbed(
    slides: dict[str, Path], extractor: FeatureExtractor, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    states = extract_features(slides, folder, extractor=extractor, open_slide=OPEN)
    assert [state.state for state in states] == ["done"] * COUNT
    return folder


def contents(folder: Path) -> dict[str, tuple[bytes, bytes, dict[str, object]]]:
    """Features, coordinates and attributes of each file in a folder."""
    found = {}
    for path in folder.iterdir():
        with h5py.File(path, "r") as file:
            arrays = file["features"], file["coords"]
            notes = {key: value for array in arrays for key, value in array.attrs.items()}
            found[path.name] = (arrays[0][:].tobytes(), arrays[1][:].tobytes(), notes)
    return found


def test_stores_the_output_of_the_encoder(
    slides: dict[str, Path], extractor: FeatureExtractor, undisturbed: Path
) -> None:
    source = open_patches(slides["s3"], patch_size=PATCH)
    with torch.no_grad():
        pixels = source.read(range(len(source))).float() / 255
        expected = F.normalize(extractor.encoder.eval()(pixels), dim=1)
    bag = open_features(undisturbed / "s3.h5")
    assert bag.shape == (64,)
    stored = bag.read(range(len(bag)))
    assert stored.dtype == torch.float16
    torch.testing.assert_close(stored.float(), expected, atol=2e-4, rtol=2e-3)  # half precision
    np.testing.assert_array_equal(bag.coords, source.coords)
    assert bag.extent == PATCH
    assert bag.attributes["encoder"] == extractor.label
    assert extractor.label.startswith("thin-resnet ")
    assert extractor.label.endswith(", crop 224, l2, float16")


class Corners(nn.Module):
    """Returns the first and the last pixel of its input, and the input size."""

    def forward(self, x: Tensor) -> Tensor:
        size = torch.tensor(x.shape[2:], dtype=x.dtype).expand(len(x), 2)
        return torch.cat([x[:, :, 0, 0], x[:, :, -1, -1], size], dim=1)


@pytest.mark.parametrize(("crop", "first", "last"), [(32, 16, 47), (None, 0, 63), (100, 0, 63)])
def test_the_encoder_sees_the_centre_crop(
    slides: dict[str, Path], tmp_path: Path, crop: int | None, first: int, last: int
) -> None:
    plain = FeatureExtractor(
        Corners(),
        name="corners",
        mean=[0.5, 0.25, 0.0],
        std=[2.0],
        crop=crop,
        normalise="none",
        dtype="float32",
    )
    source = slide_patches(slides["s0"], resolution=Resolution(PATCH))
    plain.write(source, tmp_path / "a.h5")
    stored = open_features(tmp_path / "a.h5").read([100])[0]
    pixels = source.read([100])[0].float() / 255
    ends = torch.stack([pixels[:, first, first], pixels[:, last, last]])
    expected = (ends - torch.tensor([0.5, 0.25, 0.0])) / 2
    torch.testing.assert_close(stored[:6], expected.flatten())
    assert stored[6:].tolist() == [last - first + 1] * 2


def test_patches_are_scaled_before_the_crop(slides: dict[str, Path], tmp_path: Path) -> None:
    scaled = FeatureExtractor(
        Corners(), name="corners", resize=48, crop=32, normalise="none", dtype="float32"
    )
    assert scaled.label.endswith(", resize 48, crop 32, none, float32")
    source = OPEN(slides["s0"])
    scaled.write(source, tmp_path / "a.h5")
    stored = open_features(tmp_path / "a.h5").read([100])[0]
    pixels = source.read([100])[0].permute(1, 2, 0).numpy()
    small = Image.fromarray(pixels).resize((48, 48), Image.Resampling.BILINEAR)
    ends = [*small.getpixel((8, 8)), *small.getpixel((39, 39))]  # type: ignore[misc]
    assert (stored[:6] * 255).tolist() == pytest.approx(ends, abs=1.01)  # other rounding
    assert stored[6:].tolist() == [32, 32]


def test_an_extractor_can_be_sent_to_another_process(tmp_path: Path) -> None:
    """Whose main module does not import torch; a wide encoder has the layout channels-last."""
    wide = FeatureExtractor(resnet18(stages=1, width=32), name="resnet18")
    (tmp_path / "extractor").write_bytes(cloudpickle.dumps(wide))
    code = "import pickle, sys; print(pickle.load(open(sys.argv[1], 'rb')).label)"
    command = [sys.executable, "-c", code, str(tmp_path / "extractor")]
    assert subprocess.check_output(command, text=True).strip() == wide.label


def test_files_name_their_slide(slides: dict[str, Path], undisturbed: Path) -> None:
    found = open_features(undisturbed / "s3.h5").attributes
    assert found["slide"] == str(slides["s3"])
    assert (found["level0_width"], found["level0_height"]) == (SIDE, SIDE)
    assert (found["patch_size"], found["patch_size_level0"], found["level"]) == (PATCH, PATCH, 0)


def test_grey_slides_are_expanded_to_colour(tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "grey.tif", pixels)
    settings = {"normalise": "none", "dtype": "float32"}
    plain = FeatureExtractor(Corners(), name="corners", **settings)  # type: ignore[arg-type]
    plain.write(OPEN(tmp_path / "grey.tif"), tmp_path / "a.h5")
    stored = open_features(tmp_path / "a.h5").read([0])[0]
    torch.testing.assert_close(stored[:3], torch.full((3,), int(pixels[0, 0]) / 255))


def test_channels_must_match(slides: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="mean has 2 values for an encoder of 3 channels"):
        untrained(mean=[0.5, 0.5])
    grey = FeatureExtractor(Corners(), name="corners", channels=1)
    with pytest.raises(PatchError, match=r"s0\.tif has 3 channels but the encoder takes 1"):
        grey.write(OPEN(slides["s0"]), tmp_path / "a.h5")


def run(
    slides: dict[str, Path],
    folder: Path,
    extractor: FeatureExtractor,
    shard: tuple[int, int],
    kill: int | None = None,
) -> None:
    """Extract the features of a share; the process kills itself after ``kill`` function calls."""
    # After a fork, torch cannot create its thread pool from two reader threads.
    torch.set_num_threads(1)
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1
        if calls == kill:
            os.kill(os.getpid(), signal.SIGKILL)

    if kill is not None:
        sys.setprofile(count)
    place = Place(shard=shard)
    extract_features(slides, folder, extractor=extractor, open_slide=OPEN, place=place)


def start(function: Callable[..., None], *arguments: object) -> multiprocessing.Process:
    process = multiprocessing.get_context("fork").Process(target=function, args=arguments)
    process.start()
    return process  # type: ignore[return-value]


def calls_of_a_slide(slides: dict[str, Path], folder: Path, extractor: FeatureExtractor) -> int:
    calls = 0

    def count(frame: object, event: str, argument: object) -> None:
        nonlocal calls
        calls += 1

    sys.setprofile(count)
    try:
        extract_features({"s0": slides["s0"]}, folder, extractor=extractor, open_slide=OPEN)
    finally:
        sys.setprofile(None)
    return calls


@forks
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("processes", [1, 2])
def test_killed_processes_leave_complete_files_only(
    slides: dict[str, Path],
    extractor: FeatureExtractor,
    undisturbed: Path,
    tmp_path: Path,
    processes: int,
) -> None:
    each = calls_of_a_slide(slides, tmp_path / "one", extractor)
    random = np.random.default_rng(processes)
    folder = tmp_path / "features"
    shards = [(number, processes) for number in range(1, processes + 1)]
    for _ in range({1: 20, 2: 5}[processes]):
        # most are killed in their first slide, so that slides are left for the others
        moments = random.integers(1, int(1.2 * each), processes).tolist()
        begun = [
            start(run, slides, folder, extractor, shard, moment)
            for shard, moment in zip(shards, moments, strict=True)
        ]
        for process in begun:
            process.join()
            assert process.exitcode == -signal.SIGKILL
        whole = contents_of_whole(folder)
        assert whole.items() <= contents(undisturbed).items()  # no file is incomplete
    assert len(whole) < COUNT
    for process in [start(run, slides, folder, extractor, shard) for shard in shards]:
        process.join()
        assert process.exitcode == 0
    assert contents(folder) == contents(undisturbed)


def contents_of_whole(folder: Path) -> dict[str, tuple[bytes, bytes, dict[str, object]]]:
    """The same for files with their final name."""
    whole = folder.parent / "whole"
    whole.mkdir(exist_ok=True)
    for path in folder.glob("*.h5"):
        if not path.name.startswith(".") and not (whole / path.name).exists():
            os.link(path, whole / path.name)
    return contents(whole)


def test_shares_together_are_the_whole(
    slides: dict[str, Path], extractor: FeatureExtractor, undisturbed: Path, tmp_path: Path
) -> None:
    for number in (2, 3, 1):
        place = Place(shard=(number, 3))
        states = extract_features(
            slides, tmp_path, extractor=extractor, open_slide=OPEN, place=place
        )
        assert [(s.name, s.state) for s in states] == [
            (name, "done") for name in list(slides)[number - 1 :: 3]
        ]
    assert contents(tmp_path) == contents(undisturbed)


def test_finished_slides_are_not_extracted_again(
    slides: dict[str, Path], extractor: FeatureExtractor, undisturbed: Path
) -> None:
    before = {path: path.stat().st_mtime_ns for path in undisturbed.iterdir()}
    opened: list[Path] = []

    def watched(path: Path) -> ImagePatches:
        opened.append(path)
        return OPEN(path)

    extract_features(slides, undisturbed, extractor=extractor, open_slide=watched)
    assert opened == [slides["s0"]]  # to compare the settings
    assert {path: path.stat().st_mtime_ns for path in undisturbed.iterdir()} == before


def test_a_folder_with_other_settings_is_refused(
    slides: dict[str, Path], extractor: FeatureExtractor, undisturbed: Path, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    other = FeatureExtractor(thin_resnet(width=8), name="thin-resnet")
    with pytest.raises(ConfigError, match=r"s0\.h5 was made with encoder=thin-resnet"):
        extract_features(slides, undisturbed, extractor=other, open_slide=OPEN)
    small = partial(slide_patches, resolution=Resolution(PATCH // 2))
    with pytest.raises(ConfigError, match="patch_size=64, but this run has 32"):
        extract_features(slides, undisturbed, extractor=extractor, open_slide=small)
    for count, coords in ((2, [[0, 0], [64, 64]]), (0, np.empty((0, 2)))):
        with h5py.File(tmp_path / "s0_patches.h5", "w") as file:
            file["coords"] = coords
        tissue = partial(OPEN, coords=tmp_path)
        with pytest.raises(
            ConfigError, match=rf"s0\.h5 holds 144 patches, but this run has {count} "
        ):
            extract_features(slides, undisturbed, extractor=extractor, open_slide=tissue)
    (tmp_path / "s0.h5").write_bytes((undisturbed / "s0.h5").read_bytes()[:3000])
    with pytest.raises(ConfigError, match=r"s0\.h5: .* extract it again, after deleting it"):
        extract_features(slides, tmp_path, extractor=extractor, open_slide=OPEN)
    assert untrained().label == extractor.label  # equal weights give equal labels
    assert untrained(crop=32).label != extractor.label


class TestFailures:
    @pytest.fixture
    def damaged(self, slides: dict[str, Path], tmp_path: Path) -> dict[str, Path]:
        bad = tmp_path / "bad.tif"
        bad.write_bytes(slides["s0"].read_bytes()[:5000])
        return {"s0": slides["s0"], "bad": bad, "s1": slides["s1"]}

    def test_stop_the_command(
        self, damaged: dict[str, Path], extractor: FeatureExtractor, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        with pytest.raises(ImageError, match=r"bad\.tif") as caught:
            extract_features(damaged, out, extractor=extractor, open_slide=OPEN)
        assert (out / "bad.failed").read_text() == str(caught.value)
        assert [(s.name, s.state) for s in FeatureFolder(out).states(damaged)] == [
            ("s0", "done"),
            ("bad", "failed"),
            ("s1", "pending"),
        ]

    def test_are_skipped_and_tried_again(
        self, damaged: dict[str, Path], extractor: FeatureExtractor, tmp_path: Path
    ) -> None:
        out = tmp_path / "out"
        skip = partial(extract_features, extractor=extractor, open_slide=OPEN, skip_errors=True)
        states = {state.name: state for state in skip(damaged, out)}
        assert [state.state for state in states.values()] == ["done", "failed", "done"]
        assert "bad.tif" in states["bad"].note
        assert sorted(p.name for p in out.iterdir()) == ["bad.failed", "s0.h5", "s1.h5"]
        slide(damaged["bad"], 5)
        assert [state.state for state in skip(damaged, out)] == ["done"] * 3
        assert sorted(p.name for p in out.iterdir()) == ["bad.h5", "s0.h5", "s1.h5"]

    def test_an_interruption_leaves_no_temporary_files(
        self, slides: dict[str, Path], extractor: FeatureExtractor, tmp_path: Path
    ) -> None:
        class Interrupted(ImagePatches):
            def read(self, indices: Indices) -> Tensor:
                raise KeyboardInterrupt

        def interrupt(path: Path) -> ImagePatches:
            kind = Interrupted if path.stem == "s1" else ImagePatches
            return kind(open_image(path), patch_size=PATCH)

        with pytest.raises(KeyboardInterrupt):
            extract_features(slides, tmp_path, extractor=extractor, open_slide=interrupt)
        assert [path.name for path in tmp_path.iterdir()] == ["s0.h5"]

    def test_an_encoder_with_a_wrong_output_shape_is_refused(
        self, slides: dict[str, Path], tmp_path: Path
    ) -> None:
        maps = FeatureExtractor(nn.Identity(), name="identity")
        with pytest.raises(ConfigError, match=r"expected one row of features for each"):
            extract_features(slides, tmp_path, extractor=maps, open_slide=OPEN, skip_errors=True)
        assert list(tmp_path.iterdir()) == []

    def test_an_encoder_that_cannot_take_the_patches_is_refused(
        self, slides: dict[str, Path], tmp_path: Path
    ) -> None:
        whole = FeatureExtractor(nn.Sequential(nn.Flatten(), nn.Linear(12, 4)), name="linear")
        said = r"linear .*cannot take patches of 64 x 64 px \(.+\): .* --crop, with a --patch-size"
        with pytest.raises(ConfigError, match=said):
            extract_features(slides, tmp_path, extractor=whole, open_slide=OPEN, skip_errors=True)
        assert list(tmp_path.iterdir()) == []
