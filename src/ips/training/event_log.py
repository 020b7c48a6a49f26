"""The metrics of a run for TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger

from ips.files import naming_file


class EventLog(Logger):
    """Appends the metrics of every epoch to an event file.

    TensorBoard's own writer works in a thread, which prints a traceback when the disk is full.

    Args:
        folder: folder of the event files; every process writes its own.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        stamp = f"{time.time():.6f}.{socket.gethostname()}.{os.getpid()}"
        self._path = folder / f"events.out.tfevents.{stamp}"

    @property
    def name(self) -> str:
        return self._path.parent.name

    @property
    def version(self) -> str:
        return ""

    def log_hyperparams(self, *args: Any, **options: Any) -> None:
        """They are in ``config.yaml``."""

    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Append one event with all values."""
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.record_writer import RecordWriter

        values = [Summary.Value(tag=name, simple_value=v) for name, v in metrics.items()]
        events = [Event(wall_time=time.time(), step=step or 0, summary=Summary(value=values))]
        if not self._path.exists():
            events.insert(0, Event(wall_time=time.time(), file_version="brain.Event:2"))
        with naming_file(self._path):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("ab") as stream:
                writer = RecordWriter(stream)
                for event in events:
                    writer.write(event.SerializeToString())
