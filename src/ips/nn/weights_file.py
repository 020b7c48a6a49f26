"""Weights and their config in a safetensors file, with a checksum of both in its header."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save
from torch import Tensor

from ips.files import atomic_write

_CHECKSUM = "sha256"


def write_weights(path: Path, state: Mapping[str, Tensor], *, config: Mapping[str, Any]) -> None:
    """Write the tensors of a state dict atomically, with ``config`` as JSON in the header.

    The checksum is part of that JSON, because safetensors writes several entries in random order,
    and equal models should be equal files.
    """
    tensors = _on_cpu(state)
    digest = checksum(tensors, {"config": json.dumps(config)})
    content = save(tensors, metadata={"config": json.dumps({**config, _CHECKSUM: digest})})
    with atomic_write(path) as stream:
        stream.write(content)


def read_weights(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """The tensors and the header of a safetensors file; `SafetensorError` if it is damaged.

    The checksum is compared if the file has one.
    """
    with safe_open(path, framework="pt") as file:
        header = dict(file.metadata() or {})
    tensors = load_file(path)
    digest = _take_checksum(header)
    if digest is not None and digest != checksum(tensors, header):
        raise SafetensorError("its content does not fit its checksum")
    return tensors, header


def _take_checksum(header: dict[str, str]) -> str | None:
    """Remove the checksum from the config in ``header``; None if there is none."""
    try:
        config = json.loads(header.get("config", ""))
        digest = str(config.pop(_CHECKSUM))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    header["config"] = json.dumps(config)
    return digest


def _on_cpu(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: t.detach().cpu().contiguous() for name, t in state.items()}


def checksum(state: Mapping[str, Tensor], header: Mapping[str, str] | None = None) -> str:
    """SHA-256 of the tensors of a state dict and of a header."""
    digest = hashlib.sha256(json.dumps(dict(header or {}), sort_keys=True).encode())
    for name, tensor in sorted(_on_cpu(state).items()):
        digest.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
