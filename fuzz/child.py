"""Read corrupted files in a forked child, within limits of time and memory, and judge each."""

from __future__ import annotations

import faulthandler
import os
import resource
import shutil
import signal
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Literal, NoReturn

from fuzz.family import Family, Reading, Seed, Variant
from ips.errors import IPSError

Outcome = Literal["ok", "error", "other", "values", "geometry", "traceback", "crash", "hang"]
OUTCOMES: dict[Outcome, str] = {
    "ok": "read like the original",
    "error": "clear error",
    "other": "edited, read as another valid file",
    "values": "values differ",
    "geometry": "geometry differs",
    "traceback": "traceback",
    "crash": "crash",
    "hang": "hang",
}
_CPU_SECONDS = 5.0
_WALL_SECONDS = 60.0
_MORE_MEMORY = 2**30  # bytes of address space beyond those of the parent
_FILE_BYTES = 2**28  # size of a written file
_MESSAGE = 400  # characters of a clear error, without the folder


@dataclass(frozen=True)
class Verdict:
    """What became of one file; ``place`` is the same for the same fault in different files."""

    outcome: Outcome
    detail: str = ""
    place: str = ""


@dataclass(frozen=True)
class Job:
    """Files of a family to read one after the other, made on demand."""

    family: Family
    numbers: Sequence[int]
    make: Callable[[int], Variant]


def expected_reading(seed: Seed, folder: Path) -> Reading:
    """Read the valid file twice; both must give the same."""
    first, second = (seed.read(_write(seed, seed.data, folder / str(i))) for i in range(2))
    if not (first.same_geometry(second) and first.same_values(second)):
        raise ValueError(f"{seed.name}: two readings of one valid file differ")
    shutil.rmtree(folder)
    return first


def run(
    jobs: Iterator[Job], expected: dict[tuple[str, str], Reading], *, parallel: int
) -> Iterator[tuple[Job, int, Verdict]]:
    """Yield a verdict for each file of each job, of several children at a time.

    A child reads all files of a job. When it dies, its last file is to blame, and another child
    continues with the rest.
    """
    running: dict[Connection, _Child] = {}
    rest: list[Job] = []
    while True:
        while len(running) < parallel and (job := rest.pop() if rest else next(jobs, None)):
            child = _Child(job, expected)
            running[child.pipe] = child
        if not running:
            return
        for ready in wait(list(running)):
            child = running[ready]  # type: ignore[index]
            try:
                verdict = child.pipe.recv()
            except EOFError:
                del running[child.pipe]
                verdict = child.end()
                if verdict is None:
                    continue
                rest.append(
                    Job(child.job.family, child.job.numbers[child.done + 1 :], child.job.make)
                )
            yield child.job, child.job.numbers[child.done], verdict
            child.done += 1


class _Child:
    """A forked process that reads the files of a job."""

    def __init__(self, job: Job, expected: dict[tuple[str, str], Reading]) -> None:
        self.job, self.done = job, 0
        self.stack = tempfile.TemporaryFile()  # noqa: SIM115  written in the child, at a crash or a hang
        self.pipe, sender = Pipe(duplex=False)
        self.pid = os.fork()
        if self.pid == 0:
            self.pipe.close()
            _read_all(job, expected, sender, self.stack.fileno())
        sender.close()

    def end(self) -> Verdict | None:
        """The verdict for the file at which the child died; None if it has finished."""
        self.pipe.close()
        _, status = os.waitpid(self.pid, 0)
        self.stack.seek(0)
        stack = self.stack.read().decode(errors="replace")
        self.stack.close()
        if self.done == len(self.job.numbers):
            return None
        frames = [line.strip() for line in stack.splitlines() if line.startswith("  File")]
        number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        name = signal.Signals(number).name if number else f"exit {os.WEXITSTATUS(status)}"
        outcome: Outcome = "hang" if number in (signal.SIGPROF, signal.SIGALRM) else "crash"
        own = next((frame for frame in frames if "/ips/" in frame), "")
        return Verdict(outcome, f"{name}: {' < '.join(frames[:4])}", f"{name} {own}")


def _read_all(
    job: Job, expected: dict[tuple[str, str], Reading], sender: Connection, stack: int
) -> NoReturn:
    """The child: never returns, and runs no handlers of the parent's at its end."""
    try:
        null = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(null, stream)
        faulthandler.disable()  # a library may have replaced its handlers since it was enabled
        faulthandler.enable(stack)
        for limit in (signal.SIGPROF, signal.SIGALRM):
            faulthandler.register(limit, stack, chain=True)
        _set_limits()
        warnings.simplefilter("ignore")
        with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
            for number in job.numbers:
                variant = job.make(number)
                path = _write(variant.seed, variant.data, Path(folder) / str(number))
                signal.setitimer(signal.ITIMER_PROF, _CPU_SECONDS)
                signal.setitimer(signal.ITIMER_REAL, _WALL_SECONDS)
                verdict = judge(variant, path, expected[job.family.name, variant.seed.name])
                signal.setitimer(signal.ITIMER_PROF, 0)
                signal.setitimer(signal.ITIMER_REAL, 0)
                sender.send(verdict)
                shutil.rmtree(Path(folder) / str(number))
        os._exit(0)
    except BaseException:  # a mistake of this module, or of a family
        os.write(stack, traceback.format_exc().encode())
    finally:
        os._exit(1)


def _set_limits() -> None:
    limits = {resource.RLIMIT_FSIZE: _FILE_BYTES, resource.RLIMIT_CORE: 0}
    memory = Path("/proc/self/statm")
    if memory.exists():  # on Linux; macOS does not enforce the limit
        size = int(memory.read_text().split()[0]) * resource.getpagesize()
        limits[resource.RLIMIT_AS] = size + _MORE_MEMORY
    for what, most in limits.items():
        resource.setrlimit(what, (most, most))


def judge(variant: Variant, path: Path, expected: Reading) -> Verdict:
    """Read a file and compare its content with that of the valid file."""
    folder = path
    for _ in Path(variant.seed.file).parts:
        folder = folder.parent
    try:
        found = variant.seed.read(path)
    except IPSError as error:
        message = str(error).replace(f"{folder}/", "").replace(str(folder), "")
        if problem := _unclear(message, [*Path(variant.seed.file).parts, *variant.seed.names]):
            return Verdict(
                "traceback", f"{problem}: {message[:1000]!r}", f"{problem} {_place(error)}"
            )
        return Verdict("error", message)
    except Exception as error:
        return Verdict("traceback", f"{type(error).__name__}: {error}"[:1000], _place(error))
    if not found.same_geometry(expected):
        detail = f"{found.geometry} instead of {expected.geometry}"[:1000]
        return Verdict("other" if variant.edited else "geometry", detail)
    if not found.same_values(expected):
        return Verdict("other" if variant.edited else "values")
    return Verdict("ok")


def _unclear(message: str, names: Sequence[str]) -> str:
    """What is wrong with an error message: it must be one short line that names the file."""
    if len(message.splitlines()) != 1:
        return f"{len(message.splitlines())} lines"
    if len(message) > _MESSAGE:
        return f"more than {_MESSAGE} characters"
    if not message.isprintable():
        return "a control character"
    if not any(name in message for name in names):
        return "no file name"
    return ""


def _place(error: BaseException) -> str:
    """Where an error was raised: its type, the last frame, and the last frame of `ips`."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [frame for frame in frames if "/ips/" in frame.filename]
    ends = [frames[-1], *inside[-1:]]
    return " ".join([type(error).__name__, *(f"{Path(f.filename).name}:{f.name}" for f in ends)])


def _write(seed: Seed, data: bytes, folder: Path) -> Path:
    """Write a file and those beside it to a new folder; returns its path."""
    for name, content in (*seed.beside.items(), (seed.file, data)):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return folder / seed.file


if sys.platform == "win32":
    raise ImportError("fuzzing needs fork: run it on Linux or macOS")
