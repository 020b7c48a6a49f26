"""Load an encoder's weights from a file that someone else made, without running its code."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor, nn

from ips.errors import ConfigError


def load_weights(encoder: nn.Module, path: str | Path) -> None:
    """Fill ``encoder`` from a ``.safetensors`` or ``.pth`` state dict with torchvision's names.

    What the encoder lacks by design (the classifier, stages cut off) is passed over; what it has
    and the file lacks is an error, except the BatchNorm over the embedding, which is ours. Colour
    filters are summed for a grey encoder, which is what they see in a grey picture.
    """
    path = Path(path)
    state = _read(path)
    wanted = encoder.state_dict()
    first = "conv1.weight"
    if first in state and first in wanted and wanted[first].shape[1] == 1:
        state[first] = state[first].sum(dim=1, keepdim=True)
    missing = [
        name
        for name in wanted
        # older files do not count batches, and the BatchNorm over the embedding is ours
        if name not in state and not name.endswith("num_batches_tracked")
        if not name.startswith("norm.")
    ]
    if missing:
        raise ConfigError(
            f"{path}: not weights of this encoder, {len(missing)} of {len(wanted)} tensors are "
            f"missing, {missing[0]} first: check encoder.name and encoder.stages"
        )
    for name, tensor in wanted.items():
        if name in state and state[name].shape != tensor.shape:
            raise ConfigError(
                f"{path}: {name} is {tuple(state[name].shape)} but the encoder needs "
                f"{tuple(tensor.shape)}: check encoder.name and encoder.width"
            )
    encoder.load_state_dict({name: state.get(name, tensor) for name, tensor in wanted.items()})


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such weights file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise ConfigError(f"{path}: not a readable weights file ({error})") from error
    except Exception as error:  # safetensors raises its own type for a damaged header
        raise ConfigError(f"{path}: a damaged weights file ({error})") from error
    if not isinstance(state, dict):
        raise ConfigError(f"{path}: expected a state dict of named tensors")
    state = state.get("state_dict", state)
    return {name: t for name, t in state.items() if isinstance(t, Tensor)}
