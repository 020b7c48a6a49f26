"""Processes on Ray that read patches for one worker."""

from __future__ import annotations

from collections.abc import Callable
from itertools import cycle
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from ips.patches import PatchSource


class RayReaders:
    """Reader processes on the node of their worker, which end with it; they take turns."""

    def __init__(self, count: int) -> None:
        import ray
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.count, self._ray = count, ray
        node = ray.get_runtime_context().get_node_id()
        # The worker has reserved their CPUs. One that dies is started again by Ray.
        actor = ray.remote(_Reader).options(
            num_cpus=0,
            max_restarts=-1,
            max_task_retries=2,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=True),
        )
        self._turns = cycle([actor.remote() for _ in range(count)])

    def begin(self, source: PatchSource) -> Callable[[Tensor], Tensor]:
        """A function that reads patches of ``source``; it may be called by several threads."""
        key, stored = uuid4().hex, [self._ray.put(source)]

        def read(indices: Tensor) -> Tensor:
            answer = next(self._turns).read.remote(key, stored, indices.numpy())
            try:
                patches = self._ray.get(answer)  # shared memory that must not be written to
                return torch.from_numpy(patches.copy())
            except self._ray.exceptions.RayTaskError as error:
                raise error.cause from None

        return read


class _Reader:
    """A process that reads patches of one source at a time."""

    def __init__(self) -> None:
        self._key = ""
        self._source: Any = None

    def read(self, key: str, stored: list[Any], indices: Any) -> Any:
        """Patches as an array; the source is unpickled at its first use."""
        import ray

        if key != self._key:
            if self._source is not None:
                self._source.close()
            self._source, self._key = ray.get(stored[0]), key
        return self._source.read(torch.from_numpy(indices)).numpy()
