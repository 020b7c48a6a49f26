"""Bad files raise one sentence that names the file, the value and the remedy."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import numpy.typing as npt
import openslide
import pytest
import tifffile
from PIL import Image as PILImage

import ips.images.pillow
from ips.errors import ImageError
from ips.images import PillowImage, TiffImage, open_image
from ips.images.slide import SlideImage
from tests.images.picture_files import write_svs, write_tiff

Pixels = npt.NDArray[np.uint8]


def read_all(path: Path) -> Pixels:
    image = open_image(path)
    return image.read_region((0, 0), 0, image.dimensions)


def refusal(path: Path) -> str:
    with pytest.raises(ImageError) as caught:
        read_all(path)
    message = str(caught.value)
    assert path.name in message
    assert "\n" not in message
    return message


def test_missing(tmp_path: Path) -> None:
    assert refusal(tmp_path / "a.png").endswith("a.png does not exist: check the path")


def test_folder(tmp_path: Path) -> None:
    assert "is a folder: give the image file in it" in refusal(tmp_path)


@pytest.mark.parametrize("name", ["a.png", "a.tif", "a.npy", "a.svs"])
def test_empty(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    assert "is empty: copy or export it again" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["a.txt", "a.png", "a.svs", "a.tif", "a.npy"])
def test_unknown_format(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("only words")
    assert "no known image format, or is damaged: convert it to PNG" in refusal(tmp_path / name)


@pytest.mark.parametrize("name", ["a.png", "a.jpg", "a.bmp", "a.tif", "a.npy"])
@pytest.mark.parametrize("part", [0.05, 0.5, 0.95])
def test_truncated(tmp_path: Path, picture: Pixels, name: str, part: float) -> None:
    path = tmp_path / name
    if name == "a.npy":
        np.save(path, picture)
    elif name == "a.tif":
        tifffile.imwrite(path, picture, photometric="rgb")
    else:
        PILImage.fromarray(picture).save(path)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert "damaged" in refusal(path)


@pytest.mark.parametrize("part", [0.001, 0.3, 0.9])
def test_truncated_tiles(tmp_path: Path, picture: Pixels, part: float) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture], compression=None)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * part)])
    assert "damaged" in refusal(path)


def overwrite_tile(path: Path, number: int, *, by: bytes = b"\xff", half: bool = False) -> None:
    """Overwrite the bytes of one tile, or their second half."""
    with tifffile.TiffFile(path) as file:
        page = file.pages[0]
        offset, size = page.dataoffsets[number], page.databytecounts[number]
    content = bytearray(path.read_bytes())
    start = size // 2 if half else 0
    content[offset + start : offset + size] = by * (size - start)
    path.write_bytes(content)


def test_broken_tile(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture])
    overwrite_tile(path, 5)
    message = refusal(path)
    assert "tile in row 1, column 1 of level 0 cannot be read" in message
    assert "copy or export it again" in message
    region = open_image(path).read_region((0, 0), 0, (40, 30))  # the other tiles are intact
    np.testing.assert_array_equal(region, picture[:30, :40])


def test_incomplete_jpeg_tile(tmp_path: Path, picture: Pixels) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture], tile=(64, 64), compression="jpeg")
    expected = tifffile.imread(path)
    overwrite_tile(path, 4, by=b"\0", half=True)
    message = refusal(path)
    assert (
        "tile in row 1, column 1 of level 0 cannot be read (its JPEG data is incomplete)" in message
    )
    region = open_image(path).read_region((0, 0), 0, (64, 64))  # the others are whole
    np.testing.assert_array_equal(region, expected[:64, :64])


def test_broken_slide_tile_leaves_a_working_image(tmp_path: Path, picture: Pixels) -> None:
    path = write_svs(tmp_path / "a.svs", [picture])
    overwrite_tile(path, 4)
    image = open_image(path)
    assert isinstance(image, SlideImage)
    for _ in range(2):
        with pytest.raises(ImageError, match=r"a\.svs: the region at \(70, 70\) of level 0"):
            image.read_region((70, 70), 0, (8, 8))
        np.testing.assert_array_equal(image.read_region((0, 0), 0, (8, 8)), picture[:8, :8])


def test_a_broken_tile_of_another_thread_does_not_fail_this_read(
    tmp_path: Path, picture: Pixels
) -> None:
    path = write_svs(tmp_path / "a.svs", [picture])
    overwrite_tile(path, 4)
    image = open_image(path)
    shared = image._get_handle()  # the handle of a thread that is about to read
    with pytest.raises(openslide.OpenSlideError):
        shared.read_region((70, 70), 0, (8, 8))  # another thread reads the broken tile
    np.testing.assert_array_equal(image.read_region((0, 0), 0, (8, 8)), picture[:8, :8])


def _save_tiff(path: Path, array: npt.NDArray[np.generic]) -> None:
    tifffile.imwrite(path, array, photometric="minisblack" if array.ndim == 2 else "rgb")


@pytest.mark.parametrize(("name", "save"), [("a.npy", np.save), ("a.tif", _save_tiff)])
def test_complex_numbers(
    tmp_path: Path, name: str, save: Callable[[Path, npt.NDArray[np.generic]], None]
) -> None:
    save(tmp_path / name, np.zeros((20, 20), np.complex64))
    assert "is complex64, which is not read: scale it to 0 to 255" in refusal(tmp_path / name)


def test_floats_in_memory_need_white() -> None:
    with pytest.raises(ImageError, match="array in memory is float64, whose white is not known"):
        open_image(np.zeros((4, 4)))


@pytest.mark.parametrize("shape", [(4,), (4, 4, 513), (2, 4, 4, 3), (0, 4)])
def test_arrays_of_wrong_shape_are_errors(shape: tuple[int, ...]) -> None:
    with pytest.raises(ImageError, match=r"has shape \("):
        open_image(np.zeros(shape, np.uint8))


def test_stack(tmp_path: Path) -> None:
    path = tmp_path / "a.tif"
    tifffile.imwrite(path, np.zeros((5, 40, 40), np.uint8), photometric="minisblack")
    assert "is a stack of images (axes QYX, shape (5, 40, 40))" in refusal(path)


def test_a_large_png_is_not_a_decompression_bomb(
    tmp_path: Path, picture: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.png"
    PILImage.fromarray(picture).save(path)
    monkeypatch.setattr(PILImage, "MAX_IMAGE_PIXELS", 100)
    np.testing.assert_array_equal(read_all(path), picture)
    assert PILImage.MAX_IMAGE_PIXELS == 100
    monkeypatch.setattr(ips.images.pillow, "MAX_PIXELS", 10_000)
    message = refusal(path)
    assert "has 150 x 132 px, and PNG can only be decoded whole: convert it to a tiled" in message


def test_out_of_memory(tmp_path: Path, picture: Pixels, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object, *arguments: object) -> None:
        raise MemoryError

    path = tmp_path / "a.png"
    PILImage.fromarray(picture).save(path)
    monkeypatch.setattr(PILImage.Image, "convert", fail)
    assert "does not fit into memory: convert it to a tiled TIFF" in refusal(path)


def test_openslide_steps_in_where_tifffile_fails(
    tmp_path: Path, picture: Pixels, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_tiff(tmp_path / "a.tif", [picture], tile=(64, 64))
    assert isinstance(open_image(path), TiffImage)

    def fail(self: object, *arguments: object, **options: object) -> None:
        raise ValueError("not understood")

    monkeypatch.setattr(tifffile.TiffFile, "__init__", fail)
    monkeypatch.setattr(tifffile.TiffFile, "__del__", lambda self: None, raising=False)
    assert isinstance(open_image(path), SlideImage)


def test_a_file_that_was_deleted_after_opening(tmp_path: Path, picture: Pixels) -> None:
    path = tmp_path / "a.png"
    PILImage.fromarray(picture).save(path)
    image = PillowImage(path)
    path.unlink()
    with pytest.raises(ImageError, match=r"a\.png cannot be read"):
        image.read_region((0, 0), 0, (1, 1))


def test_ome_metadata_with_a_document_type_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.ome.tif"
    tifffile.imwrite(path, np.zeros((8, 8, 3), np.uint8), ome=True)
    assert open_image(path).dimensions == (8, 8)
    bomb = '<!DOCTYPE x [<!ENTITY a "b">]><OME>&a;</OME>'
    monkeypatch.setattr(tifffile.TiffFile, "ome_metadata", bomb)
    with pytest.raises(ImageError, match=r"a\.ome\.tif cannot be read .*document type"):
        open_image(path)


def test_an_array_that_is_smaller_than_its_file(tmp_path: Path, picture: Pixels) -> None:
    np.save(tmp_path / "a.npy", picture)
    data = (tmp_path / "a.npy").read_bytes()
    (tmp_path / "a.npy").write_bytes(data.replace(b"(132, 150, 3)", b"(132, 110, 3)"))
    assert "a.npy has 59,528 bytes, but its header describes" in refusal(tmp_path / "a.npy")


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such limit")
def test_too_many_open_files_is_said_as_it_is(tmp_path: Path, picture: Pixels) -> None:
    PILImage.fromarray(picture).save(tmp_path / "a.png")
    tifffile.imwrite(tmp_path / "a.tif", picture)
    code = (
        "import resource, sys\n"
        "from ips.errors import ImageError\n"
        "from ips.images import open_image\n"
        "for path in sys.argv[1:]: open_image(path).read_region((0, 0), 0, (9, 9))\n"
        "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
        "for path in sys.argv[1:]:\n"
        "    try: open_image(path)\n"
        "    except ImageError as error: print(error)\n"
    )
    paths = [str(tmp_path / name) for name in ("a.png", "a.tif")]
    words = [sys.executable, "-c", code, *paths]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    for path, line in zip(paths, shown.splitlines(), strict=True):
        assert line.startswith(f"{path} cannot be opened (too many open files): raise the limit")


def test_a_png_whose_pixels_do_not_fit_their_checksum_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.png"
    slope = np.add.outer(np.arange(66, dtype=np.uint8), np.arange(75, dtype=np.uint8))
    PILImage.fromarray(slope).save(path)
    data = path.read_bytes()
    path.write_bytes(data[:67] + bytes(len(data) - 67))  # Pillow alone fills the rest with black
    with pytest.raises(ImageError, match=r"a\.png cannot be read .*copy or export it again"):
        open_image(path).read_region((0, 0), 0, (75, 66))
