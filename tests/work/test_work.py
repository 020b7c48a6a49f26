"""One function over many items: here, in shares, and on a real Ray cluster of this machine."""

from __future__ import annotations

import io
import os
import signal
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import tifffile
import torch
from rich.console import Console

import ips
from ips import api
from ips.errors import ConfigError, ImageError, IPSError
from ips.nn import thin_resnet
from ips.slides.coords import Resolution, slide_patches
from ips.slides.features import FeatureExtractor, extract_features
from ips.slides.tissue import find_tissue
from ips.work import Place, Report, run
from ips.work.on_ray import connected, fit_workers

# A cluster that did not start in time leaves its processes to the garbage collector.
pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)

LETTERS = {letter: letter for letter in "abcdef"}
OPEN = partial(slide_patches, resolution=Resolution(32))
HERE, RAY, ALONE = Place(), Place(ray="local", workers=2), Place(ray="local", workers=1)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """A local cluster that all tests of this module use."""
    from ray import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers cannot import tests
    os.environ["OMP_NUM_THREADS"] = str(torch.get_num_threads())  # as in this process
    with connected(RAY):
        yield


@dataclass(frozen=True)
class Work:
    """Repeats a letter; some fail, or kill their process, the first time or every time."""

    folder: Path
    fails: str = ""
    fails_once: str = ""
    kills: str = ""
    kills_once: str = ""

    def __call__(self, letter: str, report: Report) -> str:
        report(0, 1)
        seen = self.folder / letter
        first = not seen.exists()
        seen.write_text(seen.read_text() + "x" if not first else "x")
        if letter in self.kills or (letter in self.kills_once and first):
            os.kill(os.getpid(), signal.SIGKILL)
        if letter in self.fails or (letter in self.fails_once and first):
            raise ImageError(f"{letter} cannot be read")
        return letter * 2


def results(work: Work, place: Place, **options: object) -> dict[str, str]:
    found = run(work, LETTERS, place=place, **options)  # type: ignore[arg-type]
    return {name: str(result) for name, result in found}


def test_results_errors_and_progress_are_the_same_everywhere(cluster: None, tmp_path: Path) -> None:
    """On Ray, two workers are killed on the way, and one letter kills its worker every time."""
    expected = {letter: letter * 2 for letter in LETTERS} | {"b": "b cannot be read"}
    for place, kills in ((HERE, ""), (RAY, "c")):
        folder, console = tmp_path / str(place.ray), Console(file=io.StringIO(), width=100)
        folder.mkdir()
        once = "a" if kills else ""
        work = Work(folder, fails="b", fails_once="d", kills=kills, kills_once=once)
        found = results(work, place, console=console)
        tries = {file.name: len(file.read_text()) for file in folder.iterdir()}
        assert tries == {name: 1 + (name in {*"bd", kills, once}) for name in LETTERS}
        if kills:
            assert "c: its worker on Ray died 2 times" in found.pop(kills)
        assert found.items() <= expected.items()
        assert len(found) == 6 - len(kills)
        assert isinstance(console.file, io.StringIO)
        assert "slides: 3 of 6" in console.file.getvalue()
        assert "slides: 6 of 6" in console.file.getvalue()


@pytest.mark.parametrize("place", [HERE, ALONE], ids=["here", "ray"])
def test_other_errors_are_raised(cluster: None, tmp_path: Path, place: Place) -> None:
    with pytest.raises(ImageError, match="b cannot be read"):
        results(Work(tmp_path, fails="b"), place, catch=(ConfigError,))
    assert len((tmp_path / "b").read_text()) == 1


def test_workers_that_always_die_end_the_work(
    cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ips.work.on_ray._DEATHS", 2)
    with pytest.raises(IPSError, match="its worker on Ray died"):
        results(Work(tmp_path, kills="abcdef"), ALONE)


@pytest.fixture(scope="module")
def slides(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Five slides with tissue, one of them truncated, and one without."""
    folder, rng = tmp_path_factory.mktemp("slides"), np.random.default_rng(0)
    for name in "abcdef":
        pixels = np.full((512, 512, 3), 240, np.uint8)
        if name != "d":
            pixels[64:400, 64:448] = rng.integers(60, 210, (336, 384, 3))
        tifffile.imwrite(
            folder / f"{name}.tif", pixels, photometric="rgb", tile=(128, 128), compression="zlib"
        )
    content = (folder / "b.tif").read_bytes()
    (folder / "b.tif").write_bytes(content[: len(content) // 2])
    return {path.stem: path for path in sorted(folder.iterdir())}


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_tissue_on_ray_is_that_of_one_process(
    cluster: None, slides: dict[str, Path], tmp_path: Path
) -> None:
    found = {}
    for place in (HERE, ALONE):
        out = tmp_path / str(place.ray)
        counts = find_tissue(
            slides.values(), out=out, resolution=Resolution(32), skip_errors=True, place=place
        )
        found[place] = counts, files(out)
    assert found[HERE] == found[ALONE]
    assert [c.failed for c in found[HERE][0]] == [False, True, False, False, False, False]
    assert len(found[HERE][1]) == 10  # coordinates and thumbnails


def test_features_on_ray_are_byte_for_byte_those_of_one_process(
    cluster: None, slides: dict[str, Path], tmp_path: Path
) -> None:
    """Other processes read the patches for the worker."""
    torch.manual_seed(0)
    extractor = FeatureExtractor(thin_resnet(width=8), name="thin-resnet")
    readers, found = Place(ray="local", workers=1, readers=2), {}
    for place in (HERE, readers):
        out = tmp_path / str(place.ray)
        states = extract_features(
            slides, out, extractor=extractor, open_slide=OPEN, skip_errors=True, place=place
        )
        found[place] = states, files(out)
    assert [s.state for s in found[HERE][0]] == ["done", "failed", "done", "done", "done", "done"]
    assert sorted(found[HERE][1]) == ["a.h5", "b.failed", "c.h5", "d.h5", "e.h5", "f.h5"]
    assert found[readers] == found[HERE]


def test_predictions_and_explanations_on_ray_are_those_of_one_process(
    cluster: None, slides: dict[str, Path], tmp_path: Path
) -> None:
    torch.manual_seed(0)
    net = ips.IPSNet(
        ips.nn.resnet18(stages=1, width=8, channels=3),
        ips.nn.CrossAttentionTransformer(8, tokens=1, heads=2),
        {"grade": ips.nn.Head(8, 2, activation="softmax")},
        keep=4,
        chunk=4,
    )
    model = ips.Predictor.from_net(net, tasks={"grade": ["low", "high"]}, patches={"size": 64})
    images = [str(slides[name]) for name in "abc"]
    found = {}
    for place in (HERE, ALONE):
        errors: list[str] = []
        report = _reporter(errors)
        csv, out = tmp_path / f"{place.ray}.csv", tmp_path / str(place.ray)
        table = api.predict_csv(model, images, csv=csv, place=place, on_error=report)
        assert (table.images, table.failed) == (3, 1)
        explained = list(api.explain(model, images, out=out, place=place, on_error=report))
        assert [Path(image.image).name for image in explained] == ["a.tif", "c.tif"]
        found[place] = csv.read_bytes(), files(out), errors
    assert found[ALONE] == found[HERE]
    assert len(found[HERE][1]) == 12  # with a record of each image
    for number in (1, 2):
        place = Place(shard=(number, 2))
        list(api.explain(model, images, out=tmp_path / "shares", place=place, on_error=report))
    assert files(tmp_path / "shares") == found[HERE][1]
    assert [error.startswith("b.tif") for error in found[HERE][2]] == [True, True]


def _reporter(errors: list[str]) -> Callable[[IPSError], None]:
    return lambda error: errors.append(str(error))


def test_every_worker_fits_on_a_node() -> None:
    assert fit_workers([(64, 8)], gpu=True, wanted=None, most=100) == (8, 8)
    assert fit_workers([(4, 1), (64, 1)], gpu=True, wanted=None, most=100) == (2, 4)
    assert fit_workers([(4, 0)] * 3, gpu=False, wanted=2, most=100) == (2, 4)
    assert fit_workers([(2, 0)], gpu=False, wanted=8, most=100) == (2, 1)
    assert fit_workers([(64, 0)], gpu=False, wanted=None, most=3) == (3, 21)
    with pytest.raises(ConfigError, match="no free CPUs"):
        fit_workers([(0, 0)], gpu=False, wanted=None, most=3)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"shard": "0/8"}, "--shard 0/8: expected NUMBER/COUNT with a number from 1 to COUNT"),
        ({"shard": "9/8"}, "--array=1-8"),
        ({"shard": "two"}, "expected NUMBER/COUNT"),
        ({"shard": "1/2", "ray": "local"}, "leave out --shard or --ray"),
        ({"workers": 2}, "--workers is a setting of Ray"),
        ({"readers": 2}, "--readers is a setting of Ray"),
        ({"ray": "slides/"}, "--ray slides/: is no address of a cluster"),
    ],
)
def test_mistakes_in_options(options: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        Place.parse(**options)  # type: ignore[arg-type]
