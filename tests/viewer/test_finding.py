"""Finding the images that the viewer shows, and refusing what cannot be shown."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from ips.cli.app import app as command
from ips.errors import DataError, ImageError
from ips.predictor import Predictor
from ips.viewer import Library, find_images
from tests.viewer.opening import single
from tests.viewer.viewer_files import picture


def test_images_are_found_in_folders(predictor: Predictor, images: Path, tmp_path: Path) -> None:
    def found(*given: Path) -> list[Path]:
        bags = find_images(given, predictor.config)
        assert all(files == [name] for name, files in bags.items())
        return [Path(name) for name in bags]

    assert [path.name for path in found(images)][:2] == ["a.png", "b.tif"]
    assert len(found(images / "a.png", images)) == 4
    for name in ("a-overlay.png", "a-gallery.png", "a-classes.png", "a-map.tif", "a.png"):
        (tmp_path / name).touch()
    assert found(tmp_path) == [tmp_path / "a.png"]  # the others are explanations of it
    assert found(tmp_path / "a-map.tif") == [tmp_path / "a-map.tif"]
    (tmp_path / "a.png").unlink()
    with pytest.raises(DataError, match="no image in this folder"):
        found(tmp_path)
    inside = [tmp_path / label / "scans" / "a.png" for label in ("high", "low")]
    hidden = tmp_path / ".trash" / "a.png"
    drawn = tmp_path / "run" / "figures" / "training.png"
    for path in (*inside, hidden, drawn, tmp_path / "run" / "model.safetensors"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    assert found(tmp_path) == inside
    with pytest.raises(ImageError, match="does not exist"):
        found(tmp_path / "x.png")


def test_images_with_the_same_name_show_their_folder(
    predictor: Predictor, run: Path, tmp_path: Path
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        Image.fromarray(picture(60, 60)).save(tmp_path / name / "a.png")
    named = Library(
        predictor, run, single([tmp_path / "one" / "a.png", tmp_path / "two" / "a.png"])
    )
    assert [row["name"] for row in named.rows()[1]] == ["one/a.png", "two/a.png"]


def test_mistakes_give_one_sentence(run: Path, images: Path, tmp_path: Path) -> None:
    def failed(*words: object) -> str:
        result = CliRunner().invoke(command, ["view", *map(str, words), "--no-browser"])
        assert result.exit_code == 1
        return result.output

    assert "does not exist" in failed(run, tmp_path / "x.png")
    assert "no such run folder" in failed(tmp_path / "run", images)
    assert "no such file or folder" in failed(run, images, "--annotations", tmp_path / "x")
    assert "one file for 4 images" in failed(run, images, "--annotations", images / "b.geojson")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert f"--port {port}: cannot be used" in failed(run, images, "--port", port)
