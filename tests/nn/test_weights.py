"""Pretrained weights are loaded without running code, and checked against the encoder."""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from ips.errors import ConfigError
from ips.nn import FeatureProjector, ResNet, resnet18, resnet50, thin_resnet
from ips.nn.weights import encoder_settings, is_name, load_weights, normalisation

State = dict[str, Tensor]


def encoder(**options: Any) -> ResNet:
    return resnet18(**{"stages": 2, "width": 4, **options})


def published() -> State:
    """As torchvision would publish it: all four stages and the classifier."""
    state = encoder(stages=4).state_dict()
    state = {n: torch.rand_like(t) if t.is_floating_point() else t + 7 for n, t in state.items()}
    return state | {"fc.weight": torch.rand(10, 32), "fc.bias": torch.rand(10)}


def write(path: Path, state: State) -> Path:
    save_file(state, path) if path.suffix == ".safetensors" else torch.save(state, path)
    return path


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("stages", [2, 4])
def test_classifier_and_cut_stages_are_ignored(tmp_path: Path, suffix: str, stages: int) -> None:
    state, target = published(), encoder(stages=stages)
    load_weights(target, write(tmp_path / f"weights{suffix}", state))
    for name, tensor in target.state_dict().items():
        assert torch.equal(tensor, state[name]), name


def test_a_state_dict_may_be_wrapped(tmp_path: Path) -> None:
    state, target = published(), encoder()
    torch.save({"state_dict": state, "epoch": 3}, tmp_path / "weights.pth")
    load_weights(target, tmp_path / "weights.pth")
    assert torch.equal(target.conv1.weight, state["conv1.weight"])


def test_files_from_before_batch_norms_counted_batches_load(tmp_path: Path) -> None:
    """torchvision's first ImageNet files have no ``num_batches_tracked``."""
    state = {n: t for n, t in published().items() if not n.endswith("num_batches_tracked")}
    target = encoder()
    load_weights(target, write(tmp_path / "weights.pth", state))
    assert target.bn1.running_var is not None
    assert torch.equal(target.bn1.running_var, state["bn1.running_var"])


def test_the_norm_over_the_embedding_stays_as_it_is(tmp_path: Path) -> None:
    target = encoder(norm=True)
    assert isinstance(target.norm, nn.BatchNorm1d)
    target.norm.weight.data.fill_(3.0)
    load_weights(target, write(tmp_path / "weights.pth", published()))
    assert target.norm.weight.eq(3.0).all()


def test_a_grey_encoder_sees_a_grey_picture_as_the_colour_one_does(tmp_path: Path) -> None:
    path = write(tmp_path / "weights.pth", published())
    grey, colour = encoder(channels=1).eval(), encoder(channels=3).eval()
    load_weights(grey, path)
    load_weights(colour, path)
    x = torch.rand(2, 1, 32, 32)
    torch.testing.assert_close(grey(x), colour(x.expand(-1, 3, -1, -1)))


@pytest.mark.parametrize("bands", [2, 4, 5, 6])
def test_filters_of_colours_are_repeated_for_more_bands(tmp_path: Path, bands: int) -> None:
    path = write(tmp_path / "weights.pth", published())
    several, colour = encoder(channels=bands).eval(), encoder(channels=3).eval()
    load_weights(several, path)
    load_weights(colour, path)
    first, stored = several.conv1.weight, colour.conv1.weight
    for band in range(bands):
        torch.testing.assert_close(first[:, band], stored[:, band % 3] * 3 / bands)


def test_missing_tensors_are_named(tmp_path: Path) -> None:
    state = published()
    del state["layer2.1.conv2.weight"]
    path = write(tmp_path / "weights.pth", state)
    with pytest.raises(ConfigError, match=r"weights\.pth.*layer2\.1\.conv2\.weight"):
        load_weights(encoder(), path)


def test_other_shapes_are_named_and_nothing_is_loaded(tmp_path: Path) -> None:
    target = encoder(width=8)
    before = {name: tensor.clone() for name, tensor in target.state_dict().items()}
    with pytest.raises(ConfigError, match=r"conv1\.weight is \(4, 3, 7, 7\).*\(8, 3, 7, 7\)"):
        load_weights(target, write(tmp_path / "weights.pth", published()))
    assert all(torch.equal(t, before[name]) for name, t in target.state_dict().items())


class Malicious:
    """Unpickled, it makes a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.path,)


def test_code_in_a_weights_file_is_not_run(tmp_path: Path) -> None:
    trace = tmp_path / "it-ran"
    torch.save({**published(), "extra": Malicious(trace)}, tmp_path / "weights.pth")
    with pytest.raises(ConfigError, match=r"weights\.pth: .*which could run code: ") as caught:
        load_weights(encoder(), tmp_path / "weights.pth")
    assert not trace.exists()
    own_words = str(caught.value).replace(str(tmp_path), "")
    assert len(own_words) < 160
    assert "weights_only" not in own_words  # torch explains how to allow code


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "weights.pth"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("weights/data.pkl", bytes(10**6))
    with pytest.raises(ConfigError, match="unpacks to 1,000,000 bytes"):
        load_weights(encoder(), path)


def test_state_dicts_and_headers_of_another_kind(tmp_path: Path) -> None:
    torch.save({"state_dict": 5}, tmp_path / "five.pth")
    with pytest.raises(ConfigError, match="state dict"):
        load_weights(encoder(), tmp_path / "five.pth")
    deep = tmp_path / "deep.safetensors"
    save_file(published(), deep, metadata={"config": "[" * 10**5})
    assert encoder_settings(deep) == {}


@pytest.mark.parametrize("suffix", [".pth", ".safetensors"])
@pytest.mark.parametrize("content", [b"", b"not weights", b"\x80\x02]q\x00."])
def test_a_damaged_file_is_named(tmp_path: Path, suffix: str, content: bytes) -> None:
    path = tmp_path / f"weights{suffix}"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=path.name):
        load_weights(encoder(), path)


def test_a_missing_file_and_a_lone_tensor_are_errors(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such"):
        load_weights(encoder(), tmp_path / "absent.pth")
    torch.save(torch.zeros(3), tmp_path / "tensor.pth")
    with pytest.raises(ConfigError, match="state dict"):
        load_weights(encoder(), tmp_path / "tensor.pth")


def hub(patch: pytest.MonkeyPatch, answer: Callable[[str, str], str]) -> list[tuple[str, str]]:
    """Put ``answer`` in place of the hub's download; what it is asked for is noted."""
    asked: list[tuple[str, str]] = []

    def hf_hub_download(repo: str, file: str) -> str:
        asked.append((repo, file))
        return answer(repo, file)

    module = ModuleType("huggingface_hub")
    module.hf_hub_download = hf_hub_download  # type: ignore[attr-defined]
    patch.setitem(sys.modules, "huggingface_hub", module)
    return asked


def imagenet_like(make: Callable[..., ResNet], path: Path) -> tuple[Path, State]:
    """A file of the first stage of a full-width ResNet."""
    state = {n: t + 1 for n, t in make(stages=1).state_dict().items()}
    return write(path, state), state


@pytest.mark.parametrize(
    ("make", "repo"),
    [(resnet18, "timm/resnet18.tv_in1k"), (resnet50, "timm/resnet50.tv_in1k")],
)
def test_imagenet_is_the_hubs_file_for_this_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[..., ResNet], repo: str
) -> None:
    path, state = imagenet_like(make, tmp_path / "model.safetensors")
    asked = hub(monkeypatch, lambda *_: str(path))
    target = make(stages=1)
    load_weights(target, "imagenet")
    assert asked == [(repo, "model.safetensors")]
    assert all(torch.equal(t, state[name]) for name, t in target.state_dict().items())


@pytest.mark.parametrize(
    ("make", "options", "words"),
    [
        (thin_resnet, {}, "thinner ResNet.*resnet18, resnet50"),
        (resnet18, {"width": 16}, "encoder.width=16.*encoder.width=64"),
        (FeatureProjector, {}, "FeatureProjector.*resnet18"),
    ],
)
def test_imagenet_weights_that_do_not_exist_are_not_downloaded(
    monkeypatch: pytest.MonkeyPatch,
    make: Callable[..., torch.nn.Module],
    options: dict[str, int],
    words: str,
) -> None:
    asked = hub(monkeypatch, lambda *_: "")
    with pytest.raises(ConfigError, match=f"encoder.weights=imagenet.*{words}"):
        load_weights(make(**options), "imagenet")
    assert not asked


@pytest.mark.parametrize(
    ("name", "repo", "file"),
    [
        ("hub:owner/repo", "owner/repo", "model.safetensors"),
        ("hub:owner/repo/weights.pth", "owner/repo", "weights.pth"),
        ("hub:owner/repo/a/b.pth", "owner/repo", "a/b.pth"),
    ],
)
def test_any_file_of_the_hub_can_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, repo: str, file: str
) -> None:
    state = published()
    path = write(tmp_path / Path(file).name, state)
    asked = hub(monkeypatch, lambda *_: str(path))
    for given in (name, Path(name)):  # a setting may have made a path of it
        target = encoder()
        load_weights(target, given)
        assert torch.equal(target.conv1.weight, state["conv1.weight"])
    assert asked == [(repo, file)] * 2


def test_an_unsuitable_hub_file_is_named_as_the_user_named_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write(tmp_path / "blob.safetensors", published())
    hub(monkeypatch, lambda *_: str(path))
    with pytest.raises(ConfigError, match=r"hub:owner/repo: conv1\.weight is"):
        load_weights(encoder(width=8), "hub:owner/repo")


@pytest.mark.parametrize("name", ["hub:", "hub:repo", "hub:/repo", "hub:owner/"])
def test_an_incomplete_hub_name_is_an_error(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    asked = hub(monkeypatch, lambda *_: "")
    with pytest.raises(ConfigError, match="write hub:OWNER/REPO"):
        load_weights(encoder(), name)
    assert not asked


class RepositoryNotFoundError(OSError):
    pass


class GatedRepoError(RepositoryNotFoundError):
    pass


class EntryNotFoundError(Exception):
    pass


class LocalEntryNotFoundError(FileNotFoundError, EntryNotFoundError):
    pass


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (GatedRepoError("401 Client Error."), "asks for a login"),
        (RepositoryNotFoundError("404 Client Error."), "no such repository"),
        (EntryNotFoundError("404 Client Error."), "no such file"),
        (LocalEntryNotFoundError("An error happened"), "no network"),
        (ValueError("Repo id must\nbe something"), r"\(Repo id must\)"),
        (RuntimeError(), r"\(RuntimeError\)"),
    ],
)
def test_a_failed_download_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception, reason: str
) -> None:
    def fail(repo: str, file: str) -> str:
        raise error

    hub(monkeypatch, fail)
    with pytest.raises(ConfigError) as told:
        load_weights(resnet18(stages=1), "imagenet")
    assert told.match(f"timm/resnet18.tv_in1k.*{reason}.*encoder.weights=FILE")
    assert "\n" not in str(told.value)


def test_without_the_hubs_package_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match="huggingface-hub is not installed"):
        load_weights(encoder(), "hub:owner/repo")


def test_imagenets_mean_and_deviation_are_known_and_those_of_a_file_are_not() -> None:
    for inputs in (1, 5):
        mean, std = normalisation("resnet18", "imagenet", inputs=inputs)
        assert [round(value, 3) for value in (*mean, *std)] == [0.449, 0.226]
    mean, std = normalisation("resnet18", "imagenet")
    assert mean == [0.485, 0.456, 0.406]
    assert std == [0.229, 0.224, 0.225]
    assert (
        normalisation("resnet18", "weights.pth")
        == normalisation("resnet18", None)
        == ([0.0], [1.0])
    )


def test_names_are_distinguished_from_files() -> None:
    assert is_name("imagenet")
    assert is_name("none")
    assert is_name(Path("hub:owner/repo"))
    assert not is_name("weights/imagenet")
    assert not is_name("imagenet.pth")
