"""The files of MNIST, downloaded over loopback or copied: complete, verified, kept."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from ips.data import mnist
from ips.data.mnist import copy_mnist, download_mnist
from ips.data.synthetic.digits import load_digits
from ips.errors import DataError
from tests.command import Outcome, refused
from tests.data.synthetic.test_digits import write_mnist
from tests.data.test_download import Server, loopback, serving

__all__ = ["loopback"]  # a fixture that every test here uses

IMAGES = "train-images-idx3-ubyte"


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of small files whose checksums take the place of MNIST's."""
    folder = tmp_path / "plain"
    folder.mkdir()
    write_mnist(folder, packed=False)
    for name in mnist.MD5:
        digest = hashlib.md5((folder / name).read_bytes()).hexdigest()
        monkeypatch.setitem(mnist.MD5, name, digest)
    return folder


@pytest.fixture
def packed(plain: Path, tmp_path: Path) -> Path:
    folder = tmp_path / "packed"
    folder.mkdir()
    for name in mnist.MD5:
        (folder / f"{name}.gz").write_bytes(gzip.compress((plain / name).read_bytes(), mtime=0))
    return folder


@pytest.fixture
def server(packed: Path) -> Iterator[Server]:
    files = {f"/m/{file.name}": file.read_bytes() for file in packed.iterdir()}
    yield from serving(Server(files))


def names(folder: Path) -> list[str]:
    return sorted(file.name for file in folder.iterdir())


def test_the_checksums_are_of_four_files_that_the_reader_knows(tmp_path: Path) -> None:
    write_mnist(tmp_path, packed=False)
    assert names(tmp_path) == sorted(mnist.MD5)
    assert all(len(md5) == 32 for md5 in mnist.MD5.values())


def test_files_are_downloaded_once_and_can_be_read(
    tmp_path: Path, plain: Path, server: Server
) -> None:
    folder = tmp_path / "new" / "mnist"
    for _ in range(2):
        download_mnist(folder, mirrors=[f"{server.home}/m/"])
    assert [path for path, _ in server.asked] == [f"/m/{name}.gz" for name in mnist.MD5]
    assert np.array_equal(load_digits(folder).images, load_digits(plain).images)


def test_mirrors_come_before_the_usual_addresses(
    tmp_path: Path, packed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mnist, "MIRRORS", (packed.as_uri(),))
    gone = (tmp_path / "gone").as_uri()
    download_mnist(tmp_path / "out", mirrors=[gone])
    assert names(tmp_path / "out") == names(packed)
    monkeypatch.setattr(mnist, "MIRRORS", (f"{gone}/usual",))
    with pytest.raises(DataError, match=rf"downloaded from {gone}/{IMAGES}\.gz .*gone/usual/"):
        download_mnist(tmp_path / "none", mirrors=[gone])
    with pytest.raises(DataError, match="begin it with https://"):
        download_mnist(tmp_path / "none", mirrors=[str(packed)])


def test_an_interrupted_download_is_resumed(tmp_path: Path, server: Server) -> None:
    folder, url = tmp_path / "out", f"/m/{IMAGES}.gz"
    server.cut = 5000
    with pytest.raises(DataError, match="broke off after 5,000 of"):
        download_mnist(folder, mirrors=[f"{server.home}/m"])
    server.cut = None
    download_mnist(folder, mirrors=[f"{server.home}/m"])
    assert server.asked[:2] == [(url, None), (url, "bytes=5000-")]
    assert len(names(folder)) == 4


def test_other_compression_is_accepted_but_other_content_is_not(
    tmp_path: Path, plain: Path, server: Server
) -> None:
    content = (plain / IMAGES).read_bytes()
    server.files[f"/m/{IMAGES}.gz"] = gzip.compress(content, compresslevel=1)
    download_mnist(tmp_path / "one", mirrors=[f"{server.home}/m"])
    for wrong, reason in (
        (gzip.compress(content[:-1] + b"?"), "md5 .* instead of"),
        (b"gone fishing", "not a complete gzip file"),
        (gzip.compress(content)[:-20], "not a complete gzip file"),
    ):
        server.files[f"/m/{IMAGES}.gz"] = wrong
        with pytest.raises(DataError, match=reason):
            download_mnist(tmp_path / "two", mirrors=[f"{server.home}/m"])
        assert not (tmp_path / "two").exists()


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_files_are_copied_as_they_are(
    suffix: str, tmp_path: Path, plain: Path, packed: Path
) -> None:
    source = packed if suffix else plain
    for _ in range(2):
        copy_mnist(source, tmp_path / "out")
    assert {f.name: f.read_bytes() for f in (tmp_path / "out").iterdir()} == {
        f.name: f.read_bytes() for f in source.iterdir()
    }


def test_complete_files_are_kept_plain_or_packed(tmp_path: Path, plain: Path, packed: Path) -> None:
    (packed / f"{IMAGES}.gz").unlink()
    (packed / IMAGES).write_bytes((plain / IMAGES).read_bytes())
    before = names(packed)
    copy_mnist(tmp_path / "gone", packed)
    download_mnist(packed)  # there is no network
    assert names(packed) == before


def test_wrong_files_are_refused_and_never_overwritten(tmp_path: Path, plain: Path) -> None:
    copy_mnist(plain, tmp_path / "out")
    (plain / IMAGES).write_bytes(b"other")
    with pytest.raises(DataError, match=rf"plain/{IMAGES} is not the published file.*another"):
        copy_mnist(plain, tmp_path / "new")
    assert not (tmp_path / "new").exists()
    (tmp_path / "out" / IMAGES).write_bytes(b"mine")
    message = rf"out/{IMAGES} is not the published file.*delete it"
    with pytest.raises(DataError, match=message):
        copy_mnist(plain, tmp_path / "out")
    with pytest.raises(DataError, match=message):
        download_mnist(tmp_path / "out")
    assert (tmp_path / "out" / IMAGES).read_bytes() == b"mine"
    (plain / IMAGES).unlink()
    with pytest.raises(DataError, match=rf"plain/{IMAGES} is missing, also with \.gz"):
        copy_mnist(plain, tmp_path / "new")


def test_a_folder_that_cannot_be_written_is_reported(tmp_path: Path, plain: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match=r"cannot be written \(not a directory\)"):
        copy_mnist(plain, tmp_path / "file" / "out")


def test_the_command_downloads_copies_and_prints_a_summary(
    tmp_path: Path, packed: Path, server: Server
) -> None:
    for option, source in (("mirror", f"{server.home}/m"), ("from", str(packed))):
        done = Outcome("data", "mnist", tmp_path / option, f"--{option}", source)
        assert done.code == 0, done.err
        assert "30 + 10 digits" in done.err
    both = "--mirror", "file:///x", "--from", packed
    assert "give one of them" in refused("data", "mnist", tmp_path / "x", *both)
    made = Outcome(
        *("data", "megapixel-mnist", tmp_path / "images", "--digits", tmp_path / "from"),
        *("--side", "200", "--train", "2", "--test", "2"),
    )
    assert made.code == 0, made.err
    gone = tmp_path / "gone"
    sentence = refused("data", "megapixel-mnist", tmp_path / "none", "--digits", gone)
    assert f"fetch MNIST with 'ips data mnist {gone}'" in sentence


def test_the_papers_scale_asks_for_all_digits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sentence = refused("train", "megapixel-mnist", "--scale", "paper", "--run", tmp_path / "run")
    missing = f"data/mnist/{IMAGES} is missing: fetch MNIST with 'ips data mnist data/mnist'"
    assert sentence.startswith(missing)
    assert not (tmp_path / "run").exists()
