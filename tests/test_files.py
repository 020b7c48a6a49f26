"""Atomic writes, folder listings and fingerprints."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from ips.files import (
    atomic_path,
    atomic_write,
    equal_files,
    exists,
    fingerprint,
    is_file,
    list_files,
    write_text,
)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_content_appears_whole_when_the_block_ends(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    with atomic_write(path) as stream:
        stream.write(b"one")
        stream.flush()
        assert not path.exists()
        (part,) = tmp_path.iterdir()
        assert part.name.startswith(".")
    assert path.read_bytes() == b"one"
    assert names(tmp_path) == ["a.bin"]


def write_half(path: Path) -> None:
    with atomic_write(path) as stream:
        stream.write(b"half")
        raise KeyboardInterrupt


def write_half_by_path(path: Path) -> None:
    with atomic_path(path) as part:
        part.write_bytes(b"half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("write", [write_half, write_half_by_path])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, write: Callable[[Path], None]
) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    with pytest.raises(KeyboardInterrupt):
        write(path)
    assert path.read_bytes() == b"old"
    assert names(tmp_path) == ["a.bin"]


def test_a_path_without_a_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), atomic_path(tmp_path / "a.bin"):
        pass
    assert names(tmp_path) == []


def test_data_is_synced_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.txt"
    events: list[tuple[str, object]] = []
    sync, rename = os.fsync, Path.replace

    def fsync(number: int) -> None:
        state = os.fstat(number)
        events.append(("sync", "folder" if stat.S_ISDIR(state.st_mode) else state.st_size))
        sync(number)

    def replace(self: Path, target: Path) -> Path:
        events.append(("rename", target))
        return rename(self, target)

    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(Path, "replace", replace)
    write_text(path, "grüße")
    folder = [] if os.name == "nt" else [("sync", "folder")]
    assert events == [("sync", 7), ("rename", path), *folder]
    assert path.read_text(encoding="utf-8") == "grüße"


def test_a_failed_rename_leaves_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replace(self: Path, target: Path) -> Path:
        raise PermissionError(13, "no")

    monkeypatch.setattr(Path, "replace", replace)
    with pytest.raises(PermissionError):
        write_text(tmp_path / "a.txt", "text")
    assert names(tmp_path) == []


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"old")
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space") as caught, atomic_write(path):
        raise full
    assert caught.value.filename == str(path)
    assert path.read_bytes() == b"old"
    other = OSError(errno.ENOSPC, "No space left on device", "elsewhere")
    with pytest.raises(OSError, match="No space") as caught, atomic_write(path):
        raise other
    assert caught.value.filename == "elsewhere"
    with pytest.raises(FileNotFoundError) as missing, atomic_write(tmp_path / "no" / "b.bin"):
        pass
    assert missing.value.filename == str(tmp_path / "no" / "b.bin")


def test_folders_are_listed_by_name_and_files_taken_as_given(tmp_path: Path) -> None:
    for name in ("b.png", "a.png", ".c.png", "d.txt"):
        (tmp_path / name).touch()
    (tmp_path / "inner.png").mkdir()
    single = tmp_path / "d.txt"

    def accept(path: Path) -> bool:
        return path.is_file() and path.suffix == ".png"

    listed = list_files([single, tmp_path], accept=accept)
    assert listed == [single, tmp_path / "a.png", tmp_path / "b.png"]


def test_a_name_that_no_file_can_have_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "a.bin").touch()
    assert [exists(tmp_path / name) for name in ("a.bin", "", "b", "x" * 5000)] == [1, 1, 0, 0]
    assert [is_file(tmp_path / name) for name in ("a.bin", "", "b", "x" * 5000)] == [1, 0, 0, 0]


def test_a_fingerprint_changes_with_the_file_and_the_facts(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    os.utime(path, ns=(0, 10))
    first = fingerprint(path, "x", 1)
    assert first == fingerprint(path, "x", 1)
    found = {first, fingerprint(path, "x", 2), fingerprint(path)}
    os.utime(path, ns=(0, 11))
    found.add(fingerprint(path, "x", 1))
    path.write_bytes(b"three")
    os.utime(path, ns=(0, 10))
    found.add(fingerprint(path, "x", 1))
    assert len(found) == 5


def test_a_fingerprint_survives_a_move(tmp_path: Path) -> None:
    path = tmp_path / "a.bin"
    path.write_bytes(b"one")
    before = fingerprint(path)
    assert fingerprint(path.rename(tmp_path / "b.bin")) == before


def test_equal_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    contents = {"a": b"12345", "b": b"12346", "c": b"12345", "d": b"1", "e": b"", "f": b""}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    paths = [tmp_path / name for name in (*contents, "missing")]
    assert equal_files(paths) == [[0, 2]]
    monkeypatch.setattr("ips.files._HASHED_WHOLE", 0)
    monkeypatch.setattr("ips.files._BLOCK", 2)
    assert equal_files(paths) == [[0, 2]]
