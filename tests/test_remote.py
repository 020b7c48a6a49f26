"""Remote files: a server on loopback for http, and a file system in memory for buckets."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from pathlib import Path

import fsspec
import h5py
import numpy as np
import pytest
import tifffile
from PIL import Image as PILImage

from ips.errors import ConfigError, ImageError, IPSError
from ips.files import absolute, fingerprint, is_file, joined
from ips.images import open_image
from ips.images.slide import SlideImage
from ips.images.tiff import TiffImage
from ips.patches import open_features, open_patches
from ips.remote import address, list_remote, local_file
from ips.slides.listing import list_slides
from tests.range_server import RangeServer, range_server

APERIO = "Aperio Image Library v11\n{0}x{0} [0,0 {0}x{0}] (256x256) JPEG|AppMag = 20|MPP = 0.4990|"


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RangeServer]:
    monkeypatch.setenv("IPS_CACHE", str(tmp_path / "cache"))
    (tmp_path / "served").mkdir()
    with range_server(tmp_path / "served") as running:
        yield running


def write_slide(path: Path, *, side: int = 4096, aperio: bool = False) -> Path:
    """A pyramid of two levels, 16 MB with the compression of Aperio, else 50 MB."""
    small = np.random.default_rng(0).integers(0, 256, (side // 4, side // 4, 3), dtype=np.uint8)
    pixels = small.repeat(4, axis=0).repeat(4, axis=1)
    options = {"photometric": "rgb", "tile": (256, 256)}
    options |= {"compression": "jpeg"} if aperio else {}
    texts = [APERIO.format(size) if aperio else None for size in (side, side // 4)]
    with tifffile.TiffWriter(path) as file:
        for level, text in zip((pixels, small), texts, strict=True):
            file.write(level, description=text, metadata=None, **options)
    return path


@pytest.mark.parametrize("aperio", [False, True], ids=["tiff", "svs"])
def test_a_patch_of_a_slide_transfers_a_small_share_of_the_file(
    server: RangeServer, aperio: bool
) -> None:
    path = write_slide(server.folder / ("a.svs" if aperio else "a.tif"), aperio=aperio)
    here, remote = open_image(path), open_image(Path(server.url(path.name)))
    assert isinstance(remote, TiffImage)
    assert isinstance(here, SlideImage if aperio else TiffImage)
    assert remote.level_dimensions == here.level_dimensions == ((4096, 4096), (1024, 1024))
    assert (remote.mpp, remote.magnification) == (here.mpp, here.magnification)
    if aperio:
        assert (remote.mpp, remote.magnification) == ((0.499, 0.499), 20)
    place = (1300, 1700), 0, (256, 256)
    np.testing.assert_array_equal(remote.read_region(*place), here.read_region(*place))
    assert 0 < server.sent < path.stat().st_size / (6 if aperio else 12)
    place = (1300, 1700), 1, (256, 256)
    np.testing.assert_array_equal(remote.read_region(*place), here.read_region(*place))
    copy = pickle.loads(pickle.dumps(remote))  # in another process
    np.testing.assert_array_equal(
        copy.read_region((0, 0), 0, (64, 64)), here.read_region((0, 0), 0, (64, 64))
    )
    for image in (here, remote, copy):
        image.close()


def test_other_files_are_copied_once(server: RangeServer, tmp_path: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (300, 200, 3), dtype=np.uint8)
    PILImage.fromarray(pixels).save(server.folder / "a.png")
    np.save(server.folder / "b.npy", pixels)
    with h5py.File(server.folder / "c.h5", "w") as file:
        file["features"], file["coords"] = np.ones((3, 4), np.float16), np.zeros((3, 2))
    size = {path.name: path.stat().st_size for path in server.folder.iterdir()}
    for name in ("a.png", "b.npy"):
        before = server.sent
        for _ in range(2):
            with open_patches(server.url(name), patch_size=100) as source:
                np.testing.assert_array_equal(
                    source.read([2])[0].numpy(), pixels[100:200, :100].transpose(2, 0, 1)
                )
        assert server.sent - before < 3 * size[name] + 100  # a copy, and its first block twice
    assert open_features(server.url("c.h5")).read([0, 1]).shape == (2, 4)
    assert sorted(path.name for path in (tmp_path / "cache").glob("*/*")) == sorted(size)


def test_the_copies_that_were_used_last_stay(
    server: RangeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("IPS_CACHE_GB", "0.00001")  # 10 kB
    for name in "abc":
        (server.folder / name).write_bytes(name.encode() * 4000)

    def use(name: str) -> list[str]:
        with local_file(Path(server.url(name))) as path:
            assert path.read_bytes() == name.encode() * 4000
        return sorted(path.name for path in (tmp_path / "cache").glob("*/*"))

    assert use("a") == ["a"]
    assert use("b") == ["a", "b"]
    oldest = next((tmp_path / "cache").glob("*/b"))
    os.utime(oldest, (1, 1))
    use("a")
    assert use("c") == ["a", "c"]
    (server.folder / "a").write_bytes(b"changed")
    with local_file(Path(server.url("a"))) as path:
        assert path.read_bytes() == b"changed"
    (server.folder / "d").write_bytes(b"d" * 20_000)
    with pytest.raises(ConfigError, match=r"limited to 0\.00001 GB: set .* IPS_CACHE_GB"):
        use("d")
    monkeypatch.setenv("IPS_CACHE_GB", "much")
    with pytest.raises(ConfigError, match="IPS_CACHE_GB=much: expected a number"):
        use("d")


def test_errors_are_one_sentence(server: RangeServer) -> None:
    write_slide(server.folder / "a.tif", side=1024)
    (server.folder / "forbidden.tif").write_bytes(b"II*\0")

    def said(url: str) -> str:
        with pytest.raises(IPSError) as caught:
            open_image(url).read_region((700, 700), 0, (64, 64))
        return str(caught.value)

    assert "none.tif does not exist: check the address" in said(server.url("none.tif"))
    assert "(access denied): check your rights" in said(server.url("forbidden.tif"))
    assert "(no connection to 127.0.0.1:1)" in said("http://127.0.0.1:1/a.tif")
    secret = said("https://me:secret@example.org/a.tif?token=hidden")
    assert "https://example.org/a.tif: the address has a password or a query" in secret
    assert "secret" not in secret
    assert "hidden" not in secret
    server.ranges = False
    assert "does not support range requests" in said(server.url("a.tif"))


def test_a_server_that_fails_on_the_way(server: RangeServer) -> None:
    image = open_image(server.url(write_slide(server.folder / "a.tif").name))
    (server.folder / "a.tif").rename(server.folder / "forbidden.tif")
    with pytest.raises(ImageError, match=r"a\.tif"):
        image.read_region((0, 0), 0, (64, 64))


def test_paths_that_hold_an_address(tmp_path: Path, server: RangeServer) -> None:
    url = "s3://bucket/folder/a.svs"
    assert address(Path(url)) == address(url) == url
    assert address(joined(tmp_path, url)) == url
    assert joined(tmp_path, "a.svs") == tmp_path / "a.svs"
    assert absolute(Path(url)) == Path(url)
    assert is_file(Path(url))  # until it is read
    (server.folder / "a").write_bytes(b"one")
    first = fingerprint(Path(server.url("a")))
    assert first == fingerprint(Path(server.url("a")))
    (server.folder / "a").write_bytes(b"another")
    assert fingerprint(Path(server.url("a"))) != first
    with pytest.raises(ConfigError, match="cannot be listed over http"):
        list_slides([Path(server.url("slides"))])


def test_a_bucket(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A file system in memory stands in for s3 and gs."""
    monkeypatch.setattr("ips.remote.require", lambda *packages: None)
    memory = fsspec.filesystem("memory", skip_instance_cache=True)
    monkeypatch.setattr(fsspec, "filesystem", lambda scheme, **options: _Bucket(memory))
    pixels = np.random.default_rng(0).integers(0, 256, (512, 512, 3), dtype=np.uint8)
    tifffile.imwrite(tmp_path / "a.tif", pixels, photometric="rgb", tile=(128, 128))
    memory.pipe("/bucket/slides/a.tif", (tmp_path / "a.tif").read_bytes())
    memory.pipe("/bucket/slides/notes.txt", b"")
    (slide,) = list_slides([Path("s3://bucket/slides")])
    assert address(slide) == "s3://bucket/slides/a.tif"
    with open_patches(slide, patch_size=128) as source:
        assert len(source) == 16
        np.testing.assert_array_equal(
            source.read([5])[0].numpy(), pixels[128:256, 128:256].transpose(2, 0, 1)
        )
    assert list_remote("gs://bucket/slides")[0] == Path("gs://bucket/slides/a.tif")
    with pytest.raises(ImageError, match="does not exist"):
        open_image("s3://bucket/none.tif")


class _Bucket:
    """Removes the scheme of addresses, as s3fs and gcsfs do."""

    def __init__(self, memory: fsspec.AbstractFileSystem) -> None:
        self._memory = memory

    def open(self, url: str, *arguments: object, **options: object) -> object:
        return self._memory.open("/" + url.partition("://")[2], *arguments)

    def info(self, url: str) -> object:
        return self._memory.info("/" + url.partition("://")[2])

    def ls(self, url: str, detail: bool) -> list[str]:
        names = self._memory.ls("/" + url.partition("://")[2], detail=detail)
        return [name.lstrip("/") for name in names]
