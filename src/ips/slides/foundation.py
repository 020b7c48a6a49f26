"""Load the encoder of a preset with timm or transformers: safetensors only, and no remote code.

The network is built from what the preset says (timm) or from the sizes in ``config.json``
(transformers); nothing else of a repository is read than these numbers and the weights.
Letters: n patches, t tokens, D embedding size.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ips.errors import ConfigError, because, require, shown
from ips.nn.build import create_timm
from ips.nn.weights import HUB_FILE, UNTRAINED, hub_file, hub_repository, read_state
from ips.slides.presets import Preset

_CONFIG = "config.json"

_ONLY_SAFETENSORS = (
    "only safetensors are loaded from the hub: download pytorch_model.bin yourself and give it as "
    "--weights FILE, of which only tensors are read"
)

# A config may also name code to run or attention kernels to download.
_SIZES = {
    *("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "mlp_ratio"),
    *("image_size", "patch_size", "num_channels", "num_register_tokens", "qkv_bias"),
    *("hidden_act", "layer_norm_eps", "layerscale_value", "use_swiglu_ffn"),
}


class PooledTokens(nn.Module):
    """A vision transformer from patches ``(n, 3, h, w)`` to features.

    Args:
        net: network of timm or transformers.
        mean: append the mean of the patch tokens to the class token: ``(n, 2 D)`` features.
    """

    def __init__(self, net: nn.Module, *, mean: bool) -> None:
        super().__init__()
        self.net, self.mean = net, mean

    def forward(self, x: Tensor) -> Tensor:
        tokens, first = self._tokens(x)  # (n, t, D)
        if not self.mean:
            return tokens[:, 0]  # (n, D)
        return torch.cat([tokens[:, 0], tokens[:, first:].mean(dim=1)], dim=1)  # (n, 2 D)

    def _tokens(self, x: Tensor) -> tuple[Tensor, int]:
        """All tokens after the last LayerNorm, and the number of the first patch token."""
        net: Any = self.net
        if hasattr(net, "forward_features"):
            return net.forward_features(x), net.num_prefix_tokens
        registers = getattr(net.config, "num_register_tokens", 0)
        return net(pixel_values=x).last_hidden_state, 1 + registers


def build_preset(preset: Preset, *, weights: str | None = None) -> PooledTokens:
    """Build the encoder of a preset and load its weights.

    Args:
        preset: the encoder.
        weights: a folder with ``model.safetensors`` (and ``config.json`` for transformers), such as
            a copy of the repository; a weights file; ``hub:OWNER/REPO`` for another repository; or
            ``none`` for an untrained network. By default the preset's repository.

    Raises:
        MissingPackageError: if timm or transformers is not installed.
        ConfigError: if there are no such weights, or they belong to another network.
    """
    require(preset.library)
    state = None if weights == UNTRAINED else read_state(_file(preset, HUB_FILE, weights))
    net = (_timm if preset.library == "timm" else _transformers)(preset, weights, state)
    return PooledTokens(net.float(), mean=preset.tokens == "class+mean")


def _timm(preset: Preset, weights: str | None, state: dict[str, Tensor] | None) -> nn.Module:
    net: nn.Module = create_timm(
        preset.model,
        encoder=preset.name,
        pretrained=False,
        num_classes=0,
        img_size=preset.crop,
        dynamic_img_size=True,
        **preset.options,
    )
    if state is not None:
        shapes = [{key: t.shape for key, t in d.items()} for d in (net.state_dict(), state)]
        _check(preset, weights, {name for name, _ in shapes[0].items() ^ shapes[1].items()})
        net.load_state_dict(state)
    return net


def _transformers(
    preset: Preset, weights: str | None, state: dict[str, Tensor] | None
) -> nn.Module:
    options = {"add_pooling_layer": False} if preset.model == "ViTModel" else {}
    try:
        library = import_module("transformers")
        kind = getattr(library, preset.model)
        config = kind.config_class(**_sizes(_file(preset, _CONFIG, weights)))
        config._attn_implementation = "sdpa"
        if state is None:
            untrained: nn.Module = kind(config, **options)
            return untrained
        net: nn.Module
        with _quiet(library.utils.logging):
            net, found = kind.from_pretrained(
                None,
                config=config,
                state_dict=state,
                ignore_mismatched_sizes=True,  # they are reported below
                output_loading_info=True,
                **options,
            )
    except ConfigError:
        raise
    except Exception as error:  # transformers checks a config in many ways
        reason = str(error).partition("\n")[0] or type(error).__name__
        raise ConfigError(
            f"--encoder {preset.name}: transformers could not build it ({reason}): check "
            f"{_CONFIG}, or download {preset.repo} again"
        ) from error
    mismatched = [key if isinstance(key, str) else key[0] for key in found["mismatched_keys"]]
    names = [*found["missing_keys"], *found["unexpected_keys"], *mismatched]
    _check(preset, weights, (name for name in names if not name.startswith("pooler.")))
    return net


@contextmanager
def _quiet(log: Any) -> Iterator[None]:
    """Let transformers print nothing: no progress bar, no table of tensors that do not fit."""
    before = log.get_verbosity()
    log.set_verbosity(log.CRITICAL)
    log.disable_progress_bar()
    try:
        yield
    finally:
        log.set_verbosity(before)
        log.enable_progress_bar()


def _check(preset: Preset, weights: str | None, wrong: Iterable[str]) -> None:
    """Raise if there are tensors that do not fit: an encoder must not run with other weights."""
    names = sorted(wrong)
    if names:
        raise ConfigError(
            f"{weights or preset.repo}: not the weights of {preset.name}: {len(names):,} tensors "
            f"are missing, left over or of another shape, {shown(names[0], quote=False)} first: "
            f"check --encoder, or download {preset.repo} again"
        )


def _sizes(file: Path) -> dict[str, Any]:
    """Sizes of a network in a ``config.json`` of transformers."""
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
        if not isinstance(config, dict):
            raise ValueError("not a mapping")
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {because(error, remedy='download it again')}") from error
    return {key: value for key, value in config.items() if key in _SIZES}


def _file(preset: Preset, name: str, weights: str | None) -> Path:
    """The weights or the config of a preset: in a folder, beside a file, or on the hub."""
    if weights is None or weights == UNTRAINED:
        return _download(preset, preset.repo, name)
    if weights.startswith("hub:"):
        repo, chosen = hub_repository(weights)
        if not chosen.endswith(".safetensors"):
            raise ConfigError(f"--weights {weights}: {_ONLY_SAFETENSORS}")
        return _download(preset, repo, chosen if name == HUB_FILE else name)
    path = Path(weights)
    if name == HUB_FILE and not path.is_dir():
        return path
    file = (path if path.is_dir() else path.parent) / name
    if not file.is_file():
        raise ConfigError(
            f"{file}: there is no such file: --weights takes a folder with {HUB_FILE} and, for "
            f"models of transformers, {_CONFIG}; give other weights as --weights FILE"
        )
    return file


def _download(preset: Preset, repo: str, file: str) -> Path:
    access = (
        f"ask for access on the page of {repo}, then log in with `hf auth login` and run this again"
    )
    return hub_file(
        repo,
        file,
        what=f"--encoder {preset.name}",
        remedy="download the repository yourself, and give its folder as --weights",
        remedies={
            "GatedRepoError": access,
            "RepositoryNotFoundError": access,
            "EntryNotFoundError": _ONLY_SAFETENSORS,
        },
    )
