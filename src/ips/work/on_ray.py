"""Workers on Ray: each applies the function to one item at a time.

The driver hands out an item whenever a worker is free, so that at most one item and one result per
worker are under way. A worker that dies is replaced, and its item is tried again. A worker with
readers asks them for the next patches while its GPU computes; `ips.patches.prefetch` limits how
many blocks of patches are under way.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeVar

from ips.errors import ConfigError, IPSError, because, require
from ips.work.place import LOCAL, Item, Place

Result = TypeVar("Result")

_STARTS = 3  # Ray gives up after 30 seconds, which a busy machine may need for a start
_READERS = 16  # for one GPU at most
_DEATHS = 6  # of workers in a row, after which the work is given up


def run_on_ray(
    function: Callable[[Item, Callable[[int, int], None]], Result],
    items: Mapping[str, Item],
    *,
    place: Place,
    catch: tuple[type[IPSError], ...],
    tries: int,
    gpu: bool,
    on_start: Callable[[str], None],
) -> Generator[tuple[str, Result | IPSError]]:
    """See `ips.work.run`; ``on_start`` receives the names of the items under way."""
    if not items:
        return
    with connected(place) as ray:
        count, start = _workers(ray, place, function, catch, gpu=gpu, most=len(items))
        waiting, attempts, deaths = deque(items), Counter[str](), 0
        idle, busy = [start() for _ in range(count)], dict[Any, tuple[Any, str]]()
        try:
            while waiting or busy:
                while waiting and idle:
                    worker, name = idle.pop(), waiting.popleft()
                    attempts[name] += 1
                    busy[worker.apply.remote(items[name])] = worker, name
                on_start(", ".join(name for _, name in busy.values()))
                (ready, *_), _ = ray.wait(list(busy))
                worker, name = busy.pop(ready)
                result: Result | IPSError
                try:
                    result = ray.get(ready)
                    idle.append(worker)
                    deaths = 0
                except ray.exceptions.RayTaskError as error:
                    if isinstance(error.cause, IPSError):
                        raise error.cause from None
                    raise
                except ray.exceptions.RayError as error:
                    ray.kill(worker)
                    idle.append(start())
                    result, deaths = _lost(name, attempts[name], error), deaths + 1
                    if deaths == _DEATHS:
                        raise result from error
                if isinstance(result, IPSError) and attempts[name] < tries:
                    waiting.append(name)
                else:
                    yield name, result
        finally:
            for worker in [*idle, *(worker for worker, _ in busy.values())]:
                ray.kill(worker)


def _lost(name: str, times: int, error: Exception) -> IPSError:
    remedy = "if it needs more memory, give fewer --workers"
    return IPSError(f"{name}: its worker on Ray died {times} times {because(error, remedy=remedy)}")


@contextmanager
def connected(place: Place) -> Iterator[Any]:
    """Connect to a cluster; one that is started here is stopped at the end."""
    require("ray")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent anywhere
    import ray

    if ray.is_initialized():  # by the program that calls us
        yield ray
        return
    local = {"include_dashboard": False} if place.ray == LOCAL else {}
    remedy = "try again" if local else "start it with `ray start --head`, or give --ray local"
    try:
        for attempt in range(_STARTS):
            try:
                ray.init(place.ray, logging_level="ERROR", log_to_driver=False, **local)
                break
            except Exception as error:  # Ray raises many types, also bare ones
                ray.shutdown()
                if not local or attempt == _STARTS - 1:
                    text = f"--ray {place.ray}: cannot connect to the cluster"
                    raise ConfigError(f"{text} {because(error, remedy=remedy)}") from error
        yield ray
    finally:
        ray.shutdown()


def _workers(
    ray: Any,
    place: Place,
    function: Callable[..., Any],
    catch: tuple[type[IPSError], ...],
    *,
    gpu: bool,
    most: int,
) -> tuple[int, Callable[[], Any]]:
    """Number of workers, and a function that starts one."""
    resources = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    nodes = [(int(r.get("CPU", 0)), int(r.get("GPU", 0))) for r in resources]
    gpu = gpu and any(gpus for _, gpus in nodes)
    count, cpus = fit_workers(nodes, gpu=gpu, wanted=place.workers, most=most)
    readers = place.readers
    if readers is None:
        readers = max(1, min(cpus - 1, _READERS)) if gpu else 0
    # Ray lets torch use as many threads as a worker has CPUs.
    actor = ray.remote(_Worker).options(num_cpus=cpus, num_gpus=int(gpu))
    stored = ray.put(function)
    return count, lambda: actor.remote(stored, catch, readers)


def fit_workers(
    nodes: Sequence[tuple[int, int]], *, gpu: bool, wanted: int | None, most: int
) -> tuple[int, int]:
    """Number of workers for nodes with so many CPUs and GPUs, and the CPUs of each worker.

    Each worker gets as many CPUs as all can have, because Ray would wait forever for more.

    >>> fit_workers([(8, 2), (16, 2)], gpu=True, wanted=None, most=100)
    (4, 4)
    >>> fit_workers([(4, 0), (4, 0)], gpu=False, wanted=3, most=100)
    (3, 2)
    """

    def room(cpus: int) -> int:
        return sum(min(c // cpus, g) if gpu else c // cpus for c, g in nodes)

    count = min(wanted or room(1), room(1), most)
    if not count:
        raise ConfigError("--ray: the cluster has no free CPUs: add a node with `ray start`")
    return count, max(k for k in range(1, max(c for c, _ in nodes) + 1) if room(k) >= count)


class _Worker:
    """A process that applies the function, and the processes that read patches for it."""

    def __init__(
        self, function: Callable[..., Any], catch: tuple[type[IPSError], ...], readers: int
    ) -> None:
        self._function, self._catch = function, catch
        self._reading: Callable[[], AbstractContextManager[None]] = nullcontext
        if readers:
            from ips.patches import read_through
            from ips.work.readers import RayReaders

            self._reading = partial(read_through, RayReaders(readers))

    def apply(self, item: Any) -> Any:
        """Result of the function, or its error."""
        with self._reading():
            try:
                return self._function(item, lambda done, count: None)
            except self._catch as error:
                return error
