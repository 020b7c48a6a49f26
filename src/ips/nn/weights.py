"""Load pretrained weights into an encoder, from a file or by name, without running foreign code."""

from __future__ import annotations

import json
import pickle
import warnings
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ips.errors import ConfigError, because, shown
from ips.nn.efficientnet import EFFICIENTNET, EfficientNetLite, imagenet_file, renamed
from ips.nn.encoders import BasicBlock, Bottleneck, ResNet

IMAGENET = "imagenet"
UNTRAINED = "none"

# By block type and number of blocks in the first stage. The files use torchvision's names.
_IMAGENET_REPOS: dict[tuple[type[nn.Module], int], str] = {
    (BasicBlock, 2): "timm/resnet18.tv_in1k",
    (Bottleneck, 3): "timm/resnet50.tv_in1k",
}
_IMAGENET_WIDTH = 64
HUB_FILE = "model.safetensors"

# Looked up by name because these classes have moved between modules; subclasses come first.
_HUB_REASONS = {
    "ModuleNotFoundError": "the package huggingface-hub is not installed",
    "GatedRepoError": "the repository asks for a login",
    "RepositoryNotFoundError": "there is no such repository, or it is private",
    "LocalEntryNotFoundError": "there is no network connection and no earlier download",
    "EntryNotFoundError": "the repository has no such file",
}


def load_weights(encoder: nn.Module, weights: str | Path) -> None:
    """Load a ``.safetensors`` or ``.pth`` state dict into ``encoder``.

    Public weights of EfficientNet-lite0 get our names.
    Tensors that the encoder does not have (the classifier, stages that were cut off) are ignored.
    A tensor that only the encoder has is an error, except for the BatchNorm over the embedding,
    which public weights lack. For a grey encoder the three colour filters are summed, which gives
    the same result as the colour encoder on a grey image. For other numbers of channels they are
    repeated and scaled, so that the sum over all channels keeps its size.

    Args:
        encoder: the network to fill, with torchvision's parameter names for a ResNet.
        weights: a file; ``imagenet`` for a network trained on ImageNet-1k; or ``hub:OWNER/REPO`` or
            ``hub:OWNER/REPO/FILE`` for a file of the Hugging Face hub, by default
            ``model.safetensors``.
    """
    state = read_state(_find(encoder, str(weights)))
    if isinstance(encoder, EfficientNetLite):
        state = renamed(state)
    wanted = encoder.state_dict()
    first = "stem.conv.weight" if isinstance(encoder, EfficientNetLite) else "conv1.weight"
    if first in state and first in wanted:
        state[first] = _spread(state[first], wanted[first].shape[1])
    missing = [
        name
        for name in wanted
        # older files do not count batches, and only our encoders normalise the embedding
        if name not in state and not name.endswith("num_batches_tracked")
        if not (isinstance(encoder, ResNet | EfficientNetLite) and name.startswith("norm."))
    ]
    if missing:
        raise ConfigError(
            f"{weights}: not weights of this encoder, {len(missing)} of {len(wanted)} tensors are "
            f"missing, {missing[0]} first: check encoder.name and encoder.stages"
        )
    for name, tensor in wanted.items():
        if name in state and state[name].shape != tensor.shape:
            raise ConfigError(
                f"{weights}: {name} is {tuple(state[name].shape)} but the encoder needs "
                f"{tuple(tensor.shape)}: check encoder.name and encoder.width"
            )
    encoder.load_state_dict({name: state.get(name, tensor) for name, tensor in wanted.items()})


def _spread(filters: Tensor, channels: int) -> Tensor:
    """Filters of the first layer ``(D, 3, h, w)`` for another number of input channels."""
    if channels == 1:
        return filters.sum(dim=1, keepdim=True)
    if filters.dim() != 4 or filters.shape[1] != 3 or channels == 3:
        return filters
    return filters.repeat(1, -(-channels // 3), 1, 1)[:, :channels] * (3 / channels)


def normalisation(
    name: str, weights: str | Path | None, *, inputs: int = 3
) -> tuple[list[float], list[float]]:
    """Mean and standard deviation per channel of the pixels that the weights were trained on.

    Only ``imagenet`` is known to need any; otherwise pixels between 0 and 1 stay as they are.

    Args:
        name: name of the encoder.
        weights: its weights, see `build_encoder`.
        inputs: number of channels; if it is not 3, the mean over red, green and blue is returned.
    """
    if name == EFFICIENTNET:
        return [127 / 255], [128 / 255]
    if str(weights) != IMAGENET:
        return [0.0], [1.0]
    mean, std = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
    return (mean, std) if inputs == 3 else ([sum(mean) / 3], [sum(std) / 3])


def is_pretrained(name: str, weights: str | Path | None) -> bool:
    """Whether an encoder starts with pretrained weights, see `build_encoder`."""
    if weights is None:
        return name == EFFICIENTNET or name.startswith(("timm:", "hub:"))
    return str(weights) != UNTRAINED


def is_name(weights: str | Path) -> bool:
    """Whether ``weights`` is a name (``imagenet``, ``none``, ``hub:...``) and not a file."""
    return str(weights) in (IMAGENET, UNTRAINED) or str(weights).startswith("hub:")


def encoder_settings(weights: str | Path | None) -> dict[str, Any]:
    """Settings of the encoder that a weights file belongs to, as `ips pretrain` stores them.

    Empty if the file does not contain any.
    """
    from safetensors import SafetensorError, safe_open

    path = Path(weights or "")
    if path.suffix != ".safetensors" or not path.is_file():
        return {}
    try:
        with safe_open(path, framework="pt") as file:
            config = json.loads((file.metadata() or {}).get("config", "{}"))
            return dict(config.get("encoder", {}))
    except (SafetensorError, OSError, ValueError, TypeError, AttributeError, RecursionError):
        return {}  # a damaged file is reported when its weights are read


def hub_repository(weights: str) -> tuple[str, str]:
    """Split ``hub:OWNER/REPO/FILE`` into the repository and the file."""
    owner, _, rest = weights.removeprefix("hub:").partition("/")
    name, _, file = rest.partition("/")
    if not owner or not name:
        raise ConfigError(f"encoder.weights={weights}: write hub:OWNER/REPO or hub:OWNER/REPO/FILE")
    return f"{owner}/{name}", file or HUB_FILE


def _find(encoder: nn.Module, weights: str) -> Path:
    """Path of the weights file, downloaded if ``weights`` is a name."""
    if weights == IMAGENET and isinstance(encoder, EfficientNetLite):
        return imagenet_file()
    if weights == IMAGENET:
        return _download(_imagenet_repo(encoder), HUB_FILE, weights)
    if weights.startswith("hub:"):
        return _download(*hub_repository(weights), weights)
    return Path(weights)


def _imagenet_repo(encoder: nn.Module) -> str:
    remedy = f"use encoder.name=resnet18, resnet50 or {EFFICIENTNET}, or leave out encoder.weights"
    if not isinstance(encoder, ResNet):
        raise ConfigError(
            f"encoder.weights={IMAGENET}: there are none for {type(encoder).__name__}: {remedy}"
        )
    stage, width = encoder.get_submodule("layer1"), encoder.conv1.out_channels
    blocks = list(stage.children())
    repo = _IMAGENET_REPOS.get((type(blocks[0]), len(blocks)))
    if repo is None:
        raise ConfigError(
            f"encoder.weights={IMAGENET}: there are none for a thinner ResNet: {remedy}"
        )
    if width != _IMAGENET_WIDTH:
        raise ConfigError(
            f"encoder.weights={IMAGENET} with encoder.width={width}: these weights have "
            f"encoder.width={_IMAGENET_WIDTH}: use that, or leave out encoder.weights"
        )
    return repo


def _download(repo: str, file: str, weights: str) -> Path:
    remedy = "download it yourself and set encoder.weights=FILE"
    return hub_file(repo, file, what=f"encoder.weights={weights}", remedy=remedy)


def hub_file(
    repo: str, file: str, *, what: str, remedy: str, remedies: Mapping[str, str] | None = None
) -> Path:
    """Download a file of the Hugging Face hub, unless it is there already.

    Args:
        repo: OWNER/REPO.
        file: name of the file in it.
        what: subject of the message if that fails.
        remedy: what to do then.
        remedies: what to do instead after some errors, by the names in ``_HUB_REASONS``.
    """
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(repo, file))
    except Exception as error:  # its network library raises types that change with versions
        kinds = [kind.__name__ for kind in type(error).__mro__]
        known = next((name for name in _HUB_REASONS if name in kinds), "")
        reason = _HUB_REASONS.get(known) or f"{error}".partition("\n")[0] or kinds[0]
        raise ConfigError(
            f"{what}: {file} of {repo} could not be downloaded from the Hugging Face hub "
            f"({reason}): {(remedies or {}).get(known, remedy)}"
        ) from error


def read_state(path: Path) -> dict[str, Tensor]:
    """Named tensors of a ``.safetensors`` or ``.pth`` file, without running code in it."""
    if not path.is_file():
        raise ConfigError(
            f"{path}: there is no such weights file: use a file, {IMAGENET} or hub:OWNER/REPO"
        )
    again = "copy or download it again"
    try:
        if path.suffix == ".safetensors":
            from ips.nn.weights_file import read_weights

            return read_weights(path)[0]
        _check_unpacked_size(path)
        with warnings.catch_warnings():  # about old pickles
            warnings.simplefilter("ignore")
            state = torch.load(path, map_location="cpu", weights_only=True)
    except ConfigError:
        raise
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read {because(error, remedy=again)}") from error
    except pickle.UnpicklingError as error:  # torch's message explains how to allow code
        raise ConfigError(
            f"{path}: damaged, or it contains more than tensors, which could run code: save only "
            "the state_dict() of the model, and use that"
        ) from error
    except Exception as error:  # damaged bytes can fail anywhere
        reason = shown(str(error).partition(". ")[0] or type(error).__name__, quote=False)
        raise ConfigError(f"{path}: a damaged weights file ({reason}): {again}") from error
    if isinstance(state, dict):
        state = state.get("state_dict", state)
    if not isinstance(state, dict):
        raise ConfigError(f"{path}: expected a state dict of named tensors")
    return {name: t for name, t in state.items() if isinstance(t, Tensor)}


def _check_unpacked_size(path: Path) -> None:
    """Raise if a zip archive unpacks to more than it holds; torch does not compress its files."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            unpacked = sum(member.file_size for member in archive.infolist())
        if unpacked > 2 * path.stat().st_size:
            raise ConfigError(
                f"{path}: unpacks to {unpacked:,} bytes, more than the file holds: it was not "
                "written by torch, do not use it"
            )
