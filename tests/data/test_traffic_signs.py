"""Swedish traffic signs, tested on a small data set in the same format."""

from __future__ import annotations

import hashlib
import io
import pickle
import zipfile
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from ips.cli import app
from ips.config_io import parse_config
from ips.data import traffic_signs
from ips.data.traffic_sign_annotations import NAMES
from ips.data.traffic_signs import TASKS, TrafficSigns, count_message, download_traffic_signs
from ips.errors import DataError, ImageError, PatchError
from ips.recipes import read_recipe
from ips.training import build_data

# Right, bottom, left, top, in pixels of a file of 320 x 240.
SEVENTY = "VISIBLE, 120.000000, 90.0, 100.0, 70.0l, PROHIBITORY, 70_SIGN"

SET1 = "\n".join(
    [
        "empty.jpg:",
        f"seventy.jpg:{SEVENTY};",
        "",
        "misc.jpg:MISC_SIGNS;MISC_SIGNS;",
        "fifty.jpg:MISC_SIGNS;VISIBLE, 50, 60, 40, 50, INFORMATION, PRIORITY_ROAD;"
        "OCCLUDED, 300, 200, 100, 100, PROHIBITORY, 80_SIGN;"
        "VISIBLE, 30.5, 40, 20.5, 30, PROHIBITORY, 50_SIGN;",
        "other.jpg:VISIBLE, 50, 60, 40, 50, INFORMATION, PRIORITY_ROAD;",
        "blurred.jpg:BLURRED, 30, 40, 20, 30, PROHIBITORY, 70_SIGN;",
        "thirty.jpg:SOMEHOW, 30, 40, 20, 30, PROHIBITORY, 30_SIGN;",
        "largest.jpg:VISIBLE, 15, 15, 0, 0, PROHIBITORY, 80_SIGN;"
        "VISIBLE, 30, 40, 20, 30, PROHIBITORY, 50_SIGN;"
        "VISIBLE, 40, 50, 20, 30, PROHIBITORY, 80_SIGN; ",
    ]
)
KEPT1 = {"empty": 0, "seventy": 2, "misc": 0, "fifty": 1, "largest": 3}
SET2 = "night.jpg:\nday.jpg:VISIBLE, 320, 240, 0, 0, PROHIBITORY, 80_SIGN;\n"


def jpeg(seed: int) -> bytes:
    small = np.random.default_rng(seed).integers(256, size=(6, 8, 3), dtype=np.uint8)
    stream = io.BytesIO()
    Image.fromarray(small).resize((320, 240)).save(stream, "JPEG")
    return stream.getvalue()


def write_mirror(folder: Path) -> Path:
    """Files of a server."""
    for name, text in (("Set1", SET1), ("Set2", SET2)):
        (folder / name).mkdir(parents=True)
        (folder / name / "annotations.txt").write_text(text)
        images = [line.split(":")[0] for line in text.split("\n") if line]
        with zipfile.ZipFile(folder / name / f"{name}Part0.zip", "w") as archive:
            for seed, image in enumerate(images):
                archive.writestr(image, jpeg(seed))
    return folder


@pytest.fixture
def mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = write_mirror(tmp_path / "mirror")
    for name, text in (("Set1", SET1), ("Set2", SET2)):
        digest = hashlib.md5(text.encode()).hexdigest()
        monkeypatch.setitem(traffic_signs.ANNOTATIONS_MD5, name, digest)
    monkeypatch.setattr(traffic_signs, "HOME", (tmp_path / "gone").as_uri())
    return folder


@pytest.fixture
def folder(tmp_path: Path, mirror: Path) -> Path:
    download_traffic_signs(tmp_path / "data", mirrors=[mirror.as_uri()])
    return tmp_path / "data"


def pixels(data: TrafficSigns, index: int) -> npt.NDArray[np.uint8]:
    return data[index][0].image.read_region((0, 0), 0, (1600, 1200))


def digest(data: TrafficSigns, index: int) -> str:
    return hashlib.sha256(pixels(data, index).tobytes()).hexdigest()


def test_images_of_the_four_classes_are_used(folder: Path) -> None:
    train, test = TrafficSigns(folder), TrafficSigns(folder, split="test")
    assert {photo.path.stem: photo.label for photo in train.photos} == KEPT1
    assert [int(labels["sign"]) for _, labels in (train[i] for i in range(len(train)))] == list(
        KEPT1.values()
    )
    assert [photo.path.stem for photo in test.photos] == ["night", "day"]
    assert len(train) == 5
    assert TASKS["sign"] == ("multiclass", len(NAMES))
    with pytest.raises(IndexError, match="traffic-signs: there is no image 5, only 0 to 4"):
        train[5]


def test_boxes_are_in_pixels_of_the_resized_image(folder: Path) -> None:
    data = TrafficSigns(folder)
    index = {photo.path.stem: i for i, photo in enumerate(data.photos)}
    assert data.boxes(index["empty"]).shape == (0, 4)
    assert data.boxes(index["seventy"]).tolist() == [[500, 350, 600, 450]]  # 5 times as large
    assert data.boxes(index["fifty"]).tolist() == [[102.5, 150, 152.5, 200]]
    assert data.boxes(index["largest"]).tolist() == [[100, 150, 200, 250], [0, 0, 75, 75]]
    assert data.objects(index["empty"], "sign") == []
    first, second = data.objects(index["largest"], "sign")
    assert first.bounds[0].tolist() == [100, 150]
    assert second.bounds[1].tolist() == [75, 75]


def test_patches_are_crops_of_the_resized_image(folder: Path) -> None:
    source, _ = TrafficSigns(folder, patch_size=100, stride=50)[1]
    assert source.image._handle is None  # nothing was decoded yet
    assert (len(source), source.shape, source.extent) == (23 * 31, (3, 100, 100), 100)
    with Image.open(folder / "Set1" / "seventy.jpg") as stored:
        whole = np.asarray(stored.resize((1600, 1200), Image.Resampling.BILINEAR))
    for number in (0, 77, len(source) - 1):
        x, y = source.coords[number]
        expected = whole[y : y + 100, x : x + 100].transpose(2, 0, 1)
        assert np.array_equal(source.read([number])[0].numpy(), expected)
    copy = pickle.loads(pickle.dumps(source))
    assert torch.equal(copy.read([77]), source.read([77]))


def test_without_augmentation_every_epoch_is_the_same(folder: Path) -> None:
    data = TrafficSigns(folder)
    first = digest(data, 0)
    data.set_epoch(1)
    assert digest(data, 0) == first


def test_augmentation_depends_on_seed_epoch_and_index(folder: Path) -> None:
    data = TrafficSigns(folder, augment=True)
    first = digest(data, 0)
    assert first != digest(TrafficSigns(folder), 0)
    assert first != digest(TrafficSigns(folder, augment=True, seed=1), 0)
    data.set_epoch(1)
    assert first != digest(data, 0)
    data.set_epoch(0)
    digest(data, 3)
    assert digest(data, 0) == first
    assert data._augmentation(0) != data._augmentation(1)


def test_another_process_gives_the_same_image(folder: Path) -> None:
    data = TrafficSigns(folder, augment=True)
    data.set_epoch(7)
    source, _ = data[1]
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        there = pool.submit(source.read, [0, 50]).result()
    assert torch.equal(there, source.read([0, 50]))


def test_boxes_move_with_the_image(folder: Path) -> None:
    data, still = TrafficSigns(folder, augment=True), TrafficSigns(folder)
    augmentation = data._augmentation(1)
    assert augmentation is not None
    x, y = augmentation.shift
    assert data.boxes(1).tolist() == (still.boxes(1) + np.array([x, y, x, y])).tolist()


def test_missing_and_damaged_files_are_reported_with_the_command_to_run(folder: Path) -> None:
    hint = f"ips data traffic-signs {folder}'"
    with pytest.raises(DataError, match=r"does not exist.*ips data traffic-signs"):
        TrafficSigns(folder / "nowhere")
    data, image = TrafficSigns(folder, augment=True), folder / "Set1" / "seventy.jpg"
    content = image.read_bytes()
    image.write_bytes(content[: len(content) // 2])
    unread = "seventy.jpg cannot be read.*damaged, delete it"
    with pytest.raises(ImageError, match=f"{unread}.*{hint}") as caught:
        data[1][0].read([0])
    assert "truncated" in str(caught.value)
    image.write_bytes(b"no picture")
    with pytest.raises(ImageError, match=f"{unread}.*{hint}"):
        data.boxes(1)
    image.unlink()
    with pytest.raises(ImageError, match=f"seventy.jpg is missing.*{hint}"):
        data[1][0].read([0])
    with pytest.raises(
        DataError, match=f"1 of 5 images are missing, such as .*seventy.jpg: .*{hint}"
    ):
        TrafficSigns(folder)
    download_traffic_signs(folder)  # from the archive that is still there
    assert image.read_bytes() == content


def test_wrong_settings_are_refused(folder: Path) -> None:
    with pytest.raises(PatchError, match="1300 px does not fit"):
        TrafficSigns(folder, patch_size=1300)
    with pytest.raises(DataError, match="no split 'val'"):
        TrafficSigns(folder, split="val")  # type: ignore[arg-type]
    with pytest.raises(DataError, match="seed -1"):
        TrafficSigns(folder, seed=-1)


def test_excluded_images_are_left_out_of_their_split(folder: Path) -> None:
    exclude = ["seventy.jpg", "day.jpg", "other.jpg"]  # the last has no label anyway
    train, test = (TrafficSigns(folder, split=s, exclude=exclude) for s in ("train", "test"))
    assert [photo.path.stem for photo in train.photos] == ["empty", "misc", "fifty", "largest"]
    assert len(train) == 4
    assert [photo.path.stem for photo in test.photos] == ["night"]
    with pytest.raises(DataError, match=r"exclude: 'Set1.misc\.jpg' is in neither"):
        TrafficSigns(folder, exclude=["misc.jpg", "Set1/misc.jpg"])


def test_the_setting_excludes_images(folder: Path) -> None:
    values = read_recipe(
        "traffic-signs",
        settings=[f"data.folder={folder}", "data.exclude=[empty.jpg, day.jpg]"],
    )
    data = build_data(parse_config(values, source="x"))
    assert (len(data.train), len(data.test)) == (4, 1)


MANY = {"a": ("", 20), "b": ("VISIBLE, 120, 90, 100, 70, PROHIBITORY, 70_SIGN;", 10)}


@pytest.fixture
def larger(folder: Path) -> Path:
    """A folder of 20 training images without a sign and 10 with one, and the test images."""
    names = {f"{stem}{i}.jpg": signs for stem, (signs, n) in MANY.items() for i in range(n)}
    lines = [f"{name}:{signs}" for name, signs in names.items()]
    (folder / "Set1" / "annotations.txt").write_text("\n".join(lines))
    for name in names:
        (folder / "Set1" / name).write_bytes(jpeg(0))
    return folder


def stems(data: TrafficSigns) -> list[str]:
    return [photo.path.stem for photo in data.photos]


def test_validation_images_are_a_share_of_every_class(larger: Path) -> None:
    whole = TrafficSigns(larger)
    train, validation, test = (
        TrafficSigns(larger, split=split, validation=0.2)
        for split in ("train", "validation", "test")
    )
    assert sorted(stems(train) + stems(validation)) == sorted(stems(whole))
    assert [len(train), len(validation)] == [24, 6]
    assert sorted(stem[0] for stem in stems(validation)) == ["a"] * 4 + ["b"] * 2
    assert stems(test) == ["night", "day"]
    again = TrafficSigns(larger, split="validation", validation=0.2)
    other = TrafficSigns(larger, split="validation", validation=0.2, seed=1)
    assert stems(again) == stems(validation) != stems(other)
    names = [photo.path.name for photo in again.photos]
    left = TrafficSigns(larger, split="validation", validation=0.2, exclude=names)
    assert not set(stems(left)) & set(stems(again))
    with pytest.raises(DataError, match="validation=0: there are no validation images"):
        TrafficSigns(larger, split="validation")


def test_validation_is_off_unless_asked_for_and_never_augmented(larger: Path) -> None:
    settings = [f"data.folder={larger}"]
    values = read_recipe("traffic-signs", settings=settings)
    assert build_data(parse_config(values, source="x")).validation is None
    values = read_recipe("traffic-signs", settings=[*settings, "data.validation=0.1"])
    data = build_data(parse_config(values, source="x"))
    assert isinstance(data.train, TrafficSigns)
    assert isinstance(data.validation, TrafficSigns)
    assert (len(data.train), len(data.validation), len(data.test)) == (27, 3, 2)
    assert data.train.fresh
    assert data.validation._augmentation(0) is None


def test_other_counts_than_the_papers_are_reported(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = count_message(folder)
    assert message is not None
    assert "the paper has 747 + 684 images, this folder 5 + 2: scores may differ" in message
    assert "data.exclude" in message
    monkeypatch.setattr(traffic_signs, "IMAGES", {"Set1": 5, "Set2": 2})
    assert count_message(folder) is None


def test_a_complete_folder_is_not_downloaded_again(folder: Path) -> None:
    for archive in folder.rglob("*.zip"):
        archive.unlink()
    download_traffic_signs(folder)  # there is no mirror left
    assert len(TrafficSigns(folder)) == 5


def test_an_incomplete_archive_is_reported(tmp_path: Path, mirror: Path) -> None:
    with zipfile.ZipFile(mirror / "Set2" / "Set2Part0.zip", "w") as archive:
        archive.writestr("night.jpg", jpeg(0))
    with pytest.raises(DataError, match=r"Set2Part0\.zip lacks 1 of the 2 images.*day\.jpg"):
        download_traffic_signs(tmp_path / "data", mirrors=[mirror.as_uri()])


def test_annotations_with_a_wrong_checksum_are_refused(tmp_path: Path, mirror: Path) -> None:
    (mirror / "Set1" / "annotations.txt").write_text("a.jpg:\n")
    with pytest.raises(DataError, match=r"instead of .*, nor from .*gone/Set1/annotations\.txt"):
        download_traffic_signs(tmp_path / "data", mirrors=[mirror.as_uri()])


def test_the_command_downloads_and_prints_a_summary(tmp_path: Path, mirror: Path) -> None:
    words = ["data", "traffic-signs", str(tmp_path / "data"), "--mirror", "file:///nowhere"]
    result = CliRunner().invoke(app, [*words, "--mirror", mirror.as_uri() + "/"])
    assert result.exit_code == 0, result.stderr
    assert "5 + 2 images" in result.stderr
    assert "the paper has 747 + 684 images" in result.stderr
    refused = CliRunner().invoke(app, ["data", "traffic-signs", "x", "--mirror", str(mirror)])
    assert refused.exit_code == 1
    assert "file:///" in refused.stderr


def test_the_command_prints_one_sentence_if_all_mirrors_fail(tmp_path: Path, mirror: Path) -> None:
    result = CliRunner().invoke(app, ["data", "traffic-signs", str(tmp_path / "data")])
    assert result.exit_code == 1
    assert "gone/Set1/annotations.txt" in result.stderr
    assert "Traceback" not in result.stderr
