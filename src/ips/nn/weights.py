"""Load an encoder's weights that someone else made, from a file or by name, without their code."""

from __future__ import annotations

import pickle
from pathlib import Path

import torch
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.nn.encoders import BasicBlock, Bottleneck, ResNet

IMAGENET = "imagenet"

# By block and number of blocks in the first stage; the parameters are called as in torchvision.
_IMAGENET_REPOS: dict[tuple[type[nn.Module], int], str] = {
    (BasicBlock, 2): "timm/resnet18.tv_in1k",
    (Bottleneck, 3): "timm/resnet50.tv_in1k",
}
_IMAGENET_WIDTH = 64
_HUB_FILE = "model.safetensors"

# By name, since these classes moved between the library's modules; the more specific ones first.
_HUB_REASONS = {
    "ModuleNotFoundError": "the package huggingface-hub is not installed",
    "GatedRepoError": "the repository asks for a login",
    "RepositoryNotFoundError": "there is no such repository, or it is private",
    "LocalEntryNotFoundError": "there is no network, and no earlier download",
    "EntryNotFoundError": "the repository has no such file",
}


def load_weights(encoder: nn.Module, weights: str | Path) -> None:
    """Fill ``encoder`` from a ``.safetensors`` or ``.pth`` state dict with torchvision's names.

    What the encoder lacks by design (the classifier, stages cut off) is passed over; what it has
    and the file lacks is an error, except the BatchNorm over the embedding, which is ours. Colour
    filters are summed for a grey encoder, which is what they see in a grey picture.

    Args:
        encoder: to fill.
        weights: a file; ``imagenet`` for the weights of this ResNet trained on ImageNet-1k; or a
            file of the Hugging Face hub as ``hub:OWNER/REPO/FILE``, by default its
            ``model.safetensors``.
    """
    state = _read(_found(encoder, str(weights)))
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


def normalisation(weights: str | Path | None) -> tuple[list[float], list[float]] | None:
    """Mean and standard deviation, per channel, of the pixels that named weights were trained on.

    None for a file, which does not say.
    """
    if str(weights) != IMAGENET:
        return None
    return [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]


def is_name(weights: str | Path) -> bool:
    """Whether this is ``imagenet`` or a file of the hub, and not a file of this machine."""
    return str(weights) == IMAGENET or str(weights).startswith("hub:")


def _found(encoder: nn.Module, weights: str) -> Path:
    """The file that ``weights`` stands for, downloaded where it is a name."""
    if not is_name(weights):
        return Path(weights)
    if weights == IMAGENET:
        return _download(_imagenet_repo(encoder), _HUB_FILE, weights)
    owner, _, rest = weights.removeprefix("hub:").partition("/")
    name, _, file = rest.partition("/")
    if not owner or not name:
        raise ConfigError(f"encoder.weights={weights}: write hub:OWNER/REPO or hub:OWNER/REPO/FILE")
    return _download(f"{owner}/{name}", file or _HUB_FILE, weights)


def _imagenet_repo(encoder: nn.Module) -> str:
    remedy = "take encoder.name=resnet18 or resnet50, or leave out encoder.weights"
    if not isinstance(encoder, ResNet):
        raise ConfigError(
            f"encoder.weights={IMAGENET}: none for {type(encoder).__name__}: {remedy}"
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
            f"encoder.weights={IMAGENET} with encoder.width={width}: there are only some for "
            f"encoder.width={_IMAGENET_WIDTH}: take that, or leave out encoder.weights"
        )
    return repo


def _download(repo: str, file: str, weights: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download

        return Path(hf_hub_download(repo, file))
    except Exception as error:  # also what its network library raises, which changes with versions
        kinds = [kind.__name__ for kind in type(error).__mro__]
        known = [reason for name, reason in _HUB_REASONS.items() if name in kinds]
        reason = known[0] if known else f"{error}".partition("\n")[0] or kinds[0]
        raise ConfigError(
            f"encoder.weights={weights}: {file} of {repo} could not be had from the Hugging Face "
            f"hub ({reason}): download the file yourself and give its path as encoder.weights=FILE"
        ) from error


def _read(path: Path) -> dict[str, Tensor]:
    if not path.is_file():
        raise ConfigError(
            f"{path}: there is no such weights file: give one, or {IMAGENET}, or hub:OWNER/REPO"
        )
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
