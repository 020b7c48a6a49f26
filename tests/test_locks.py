"""One process at a time writes to a folder."""

from __future__ import annotations

import errno
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from contextlib import nullcontext
from pathlib import Path

import pytest

from ips import locks
from ips.errors import FolderInUseError
from ips.locks import LOCK, lock_folder, wait_for_lock
from tests.holder import HOLD, holder


def lock(folder: Path) -> None:
    with lock_folder(folder, option="--run"):
        assert (folder / LOCK).is_file()


def test_a_second_process_is_told_the_first(tmp_path: Path) -> None:
    with holder(tmp_path / "run") as process, pytest.raises(FolderInUseError) as caught:
        lock(tmp_path / "run")
    assert str(caught.value) == (
        f"{tmp_path / 'run'}: process {process.pid} on {socket.gethostname()} is writing to it: "
        "wait for it to end, or give another --run"
    )


@pytest.mark.parametrize(
    ("shard", "refused"), [((1, 3), False), ((2, 3), True), ((1, 2), True), (None, True)]
)
def test_processes_with_other_shares_may_lock_the_same_folder(
    tmp_path: Path, shard: tuple[int, int] | None, refused: bool
) -> None:
    with holder(tmp_path, shard=(2, 3)) as process:
        said = pytest.raises(FolderInUseError, match=f"process {process.pid}")
        with said if refused else nullcontext(), lock_folder(tmp_path, option="--o", shard=shard):
            pass
    with lock_folder(tmp_path, option="--out", shard=shard):  # the other process is dead
        pass


def test_a_lock_can_be_waited_for(tmp_path: Path) -> None:
    order = []

    def second() -> None:
        with wait_for_lock(tmp_path / "lock"):
            order.append("second")

    thread = threading.Thread(target=second)
    with wait_for_lock(tmp_path / "lock"):
        thread.start()
        order.append("first")
    thread.join()
    assert order == ["first", "second"]


def test_the_lock_ends_with_a_killed_process(tmp_path: Path) -> None:
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert (tmp_path / LOCK).is_file()
        lock(tmp_path)
    assert not (tmp_path / LOCK).exists()


def test_blocks_may_be_nested_and_the_outer_one_keeps_the_lock(tmp_path: Path) -> None:
    with lock_folder(tmp_path, option="--run"):
        lock(tmp_path)
        command = [sys.executable, "-c", HOLD, str(tmp_path)]
        other = subprocess.run(command, input="", capture_output=True, text=True)
        assert "FolderInUseError" in other.stderr
    lock(tmp_path)


def test_another_thread_of_the_process_is_refused(tmp_path: Path) -> None:
    found: list[str] = []

    def other() -> None:
        try:
            lock(tmp_path)
        except FolderInUseError as error:
            found.append(str(error))

    with lock_folder(tmp_path, option="--run"):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        assert f"process {os.getpid()} on" in found[0]
        lock(tmp_path)  # still ours
    lock(tmp_path)


def test_a_folder_that_stays_empty_is_removed_with_its_parents(tmp_path: Path) -> None:
    lock(tmp_path / "runs" / "a")
    assert list(tmp_path.iterdir()) == []
    with lock_folder(tmp_path / "runs" / "a", option="--run"):
        (tmp_path / "runs" / "a" / "model").touch()
    assert [path.name for path in (tmp_path / "runs" / "a").iterdir()] == ["model"]
    (tmp_path / "empty").mkdir()
    lock(tmp_path / "empty")
    assert (tmp_path / "empty").is_dir()


def test_a_lock_file_that_was_removed_in_the_meantime_does_not_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ordinary, tries = locks._lock, []

    def removed_first(file: object) -> bool:
        tries.append(file)
        if len(tries) == 1:
            (tmp_path / LOCK).unlink()
        return ordinary(file)  # type: ignore[arg-type]

    monkeypatch.setattr(locks, "_lock", removed_first)
    lock(tmp_path)
    assert len(tries) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="fcntl")
def test_a_file_system_without_locks_is_used_without_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def none(*args: object) -> None:
        raise OSError(errno.ENOLCK, "no locks available")

    monkeypatch.setattr("fcntl.lockf", none)
    lock(tmp_path)


@pytest.mark.parametrize(
    ("number", "count"), [("RANK", "WORLD_SIZE"), ("SLURM_PROCID", "SLURM_NTASKS")]
)
def test_processes_of_a_launcher_are_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: str, count: str
) -> None:
    monkeypatch.setenv(number, "1")
    monkeypatch.setenv(count, "4")
    sentence = (
        ", and this is process 2 of 4 that torchrun or SLURM started: start the command once, or "
        "give each process another --run"
    )
    with holder(tmp_path), pytest.raises(FolderInUseError, match=re.escape(sentence)):
        lock(tmp_path)


def test_an_unreadable_owner_is_another_process(tmp_path: Path) -> None:
    with holder(tmp_path):
        (tmp_path / LOCK).write_bytes(b"\x00\xff\n")
        with pytest.raises(FolderInUseError, match="is writing to it"):
            lock(tmp_path)
