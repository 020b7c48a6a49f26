"""A trained model for other programs: `torch.export`, ONNX, and the layout of WSInfer.

Every file is loaded again and compared with the model before it is kept.
"""

from __future__ import annotations

import json
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ips.config import Config
from ips.errors import ConfigError, IPSError, require
from ips.files import atomic_path, write_text
from ips.models import SelectingNet
from ips.models.exporting import AggregationStep, EmbeddingStep, PatchClassifier, WholeModel
from ips.predictor import Ensemble, Predictor
from ips.tasks import build_tasks

FORMATS = ("torch", "onnx", "wsinfer")

TOLERANCE = 1e-5
_SPEC = "1.0"
_SAMPLE = 3  # patches and images to compare with
_NO_CHOICE = 100  # patches kept, for a model that keeps all of them

Outputs = dict[str, Tensor]
Run = Callable[..., Outputs]


@dataclass(frozen=True)
class Exported:
    """A file, and how much its results differ from those of the model at the most."""

    path: Path
    difference: float


@dataclass(frozen=True)
class _Part:
    """A part of the model, with inputs to trace it and others to compare it with.

    Attributes:
        name: name of its files.
        module: the part.
        inputs: names of its inputs.
        sizes: for each input, the names of axes whose size is free, by axis.
        draw: returns inputs for that many patches or images.
    """

    name: str
    module: nn.Module
    inputs: tuple[str, ...]
    sizes: tuple[dict[int, str], ...]
    draw: Callable[[int], tuple[Tensor, ...]]


def export_model(
    predictor: Predictor,
    out: Path,
    *,
    formats: Sequence[str] = ("torch",),
    patches: int | None = None,
) -> list[Exported]:
    """Export a model, part by part, and compare every file with it.

    Args:
        predictor: the trained model.
        out: output folder.
        formats: ``torch`` and ``onnx`` write the encoder, the aggregation and, with ``patches``,
            the whole model; ``wsinfer`` writes a classifier of single patches.
        patches: number of patches of an image, for the whole model.
    """
    if isinstance(predictor, Ensemble):
        raise ConfigError("a cross-validation has several models: export one of its runs")
    net = predictor.net
    if not isinstance(net, SelectingNet) or net.aggregator is None:
        raise ConfigError(
            f"method={predictor.config.method}: only networks that aggregate patches can be "
            "exported: ips, rps, deepmil, deepmil-plus and ips-deepmil"
        )
    if unknown := [kind for kind in formats if kind not in FORMATS]:
        raise ConfigError(f"format {unknown[0]}: expected one of {', '.join(FORMATS)}")
    net = net.cpu().eval()
    files: list[Exported] = []
    # A mistake is reported before anything is written.
    parts = list(_parts(net, predictor.config, patches)) if set(formats) - {"wsinfer"} else []
    for kind in formats:
        if kind == "wsinfer":
            files.append(_write_wsinfer(predictor, net, out))
            continue
        for part in parts:
            write = {"torch": _write_program, "onnx": _write_onnx}[kind]
            files.append(write(part, out))
    return files


def _parts(net: SelectingNet, config: Config, patches: int | None) -> Iterator[_Part]:
    shape = _shape(net, config)
    M, D = net.keep or patches or _NO_CHOICE, _dim(net, shape)
    random = torch.Generator().manual_seed(0)

    def draw_patches(count: int) -> Tensor:
        if len(shape) == 1:
            return torch.randn(count, *shape, generator=random)
        return torch.randint(0, 256, (count, *shape), dtype=torch.uint8, generator=random)

    def draw_kept(count: int) -> tuple[Tensor, ...]:
        return torch.randn(count, M, D, generator=random), torch.arange(M).repeat(count, 1)

    many = {0: "patches"}
    yield _Part("encoder", EmbeddingStep(net), ("patches",), (many,), lambda n: (draw_patches(n),))
    free = {0: "images"}
    yield _Part(
        "aggregation", AggregationStep(net), ("embeddings", "indices"), (free, free), draw_kept
    )
    if patches is not None:
        if patches < M:
            raise ConfigError(f"--patches {patches}: the model keeps {M}: give at least as many")
        whole = WholeModel(net, patches=patches, seed=config.train.seed)
        yield _Part("model", whole, ("patches",), ({},), lambda _: (draw_patches(patches),))


def _shape(net: SelectingNet, config: Config) -> tuple[int, ...]:
    """Shape of one patch."""
    if net.patch_shape is None:
        raise ConfigError(
            "the encoder does not say what it takes: give it a `patch_shape`, as in ips.nn.ResNet"
        )
    return tuple(size or config.patches.size for size in net.patch_shape)


def _dim(net: SelectingNet, shape: tuple[int, ...]) -> int:
    with torch.no_grad():
        return int(net.embed(torch.zeros(1, 1, *shape), None).shape[-1])


def _write_program(part: _Part, out: Path) -> Exported:
    sizes = tuple({axis: torch.export.Dim(name) for axis, name in s.items()} for s in part.sizes)
    path = out / f"{part.name}.pt2"
    with atomic_path(path) as file, _quiet():
        program = torch.export.export(
            part.module.eval(), part.draw(_SAMPLE - 1), dynamic_shapes=sizes
        )
        with file.open("wb+") as stream:  # PyTorch warns of other endings in a path
            torch.export.save(program, stream)
            stream.seek(0)
            loaded = torch.export.load(stream).module()
        difference = _compare(part, lambda *inputs: _named(loaded(*inputs)), path)
    return Exported(path, difference)


def _write_onnx(part: _Part, out: Path) -> Exported:
    require("onnx", "onnxscript", "onnxruntime")
    import onnxruntime

    module, inputs = part.module.eval(), part.draw(_SAMPLE - 1)
    with torch.no_grad():
        names = list(_named(module(*inputs)))
    path = out / f"{part.name}.onnx"
    with atomic_path(path) as file, _quiet():
        torch.onnx.export(
            module,
            inputs,
            str(file),
            input_names=list(part.inputs),
            output_names=names,
            dynamic_shapes=part.sizes,
            dynamo=True,
            external_data=False,
            verbose=False,
            custom_translation_table={torch.ops.aten.sort.stable: _stable_sort()},
        )
        session = onnxruntime.InferenceSession(str(file), providers=["CPUExecutionProvider"])

        def run(*values: Tensor) -> Outputs:
            feed = {k: v.numpy() for k, v in zip(part.inputs, values, strict=True)}
            found: list[Any] = session.run(names, feed)
            return {k: torch.from_numpy(np.asarray(v)) for k, v in zip(names, found, strict=True)}

        difference = _compare(part, run, path)
    return Exported(path, difference)


def _stable_sort() -> Callable[..., Any]:
    """The stable sort in ONNX: `TopK` of all values, of which the first wins a tie."""
    from onnxscript import opset18 as op

    def sort(self: Any, stable: bool, dim: int, descending: bool) -> Any:
        count = op.Shape(self, start=dim, end=dim + 1)
        return op.TopK(self, count, axis=dim, largest=descending)

    return sort


@contextmanager
def _quiet() -> Iterator[None]:
    """Hide what torch tells about torchvision, deprecations and shapes while it exports."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(before)


def _write_wsinfer(predictor: Predictor, net: SelectingNet, out: Path) -> Exported:
    """Write ``torchscript_model.pt`` and ``config.json`` as WSInfer and its QuPath extension do."""
    config, task = predictor.config, predictor.config.readout
    classifier = PatchClassifier(net).eval()
    assert task is not None
    channels, *sides = _shape(net, config)
    if config.patches.mpp is None or channels != 3 or not sides:
        raise ConfigError(
            "wsinfer: such a model takes colour patches at a known resolution: train with "
            "patches.mpp and three channels"
        )
    side = config.patches.size
    example = torch.randn(_SAMPLE, 3, side, side, generator=torch.Generator().manual_seed(0))
    path = out / "torchscript_model.pt"
    with atomic_path(path) as file, torch.no_grad(), _quiet():
        torch.jit.trace(classifier, example).save(str(file))
        loaded = torch.jit.load(str(file))
        part = _Part("patch classifier", classifier, ("x",), ({},), lambda _: (example,))
        difference = _compare(part, lambda x: _named(loaded(x)), path)
    names = build_tasks(config.tasks)[task].class_names
    mean, std = net.normalise.mean.flatten().tolist(), net.normalise.std.flatten().tolist()
    three = {"mean": (mean * 3)[:3], "std": (std * 3)[:3]}
    values = {
        "spec_version": _SPEC,
        "architecture": config.encoder.name,
        "num_classes": len(names),
        "class_names": names,
        "patch_size_pixels": side,
        "spacing_um_px": config.patches.mpp,
        "transform": [
            {"name": "Resize", "arguments": {"size": side}},
            {"name": "ToTensor"},
            {"name": "Normalize", "arguments": three},
        ],
    }
    write_text(out / "config.json", json.dumps(values, indent=2) + "\n")
    return Exported(path, difference)


def _named(result: Tensor | Mapping[str, Tensor]) -> Outputs:
    return {"embeddings": result} if isinstance(result, Tensor) else dict(result)


def _compare(part: _Part, run: Run, path: Path) -> float:
    """The largest difference for inputs of another size; an error if it is too large."""
    worst = 0.0
    inputs = part.draw(_SAMPLE)
    with torch.no_grad():
        expected = _named(part.module(*inputs))
    found = run(*inputs)
    for name, values in expected.items():
        scale = max(1.0, float(values.abs().max()))
        worst = max(worst, float((found[name] - values).abs().max()) / scale)
    if not worst <= TOLERANCE:
        raise IPSError(
            f"{path}: its results differ from the model's by {worst:.1e}, more than "
            f"{TOLERANCE:.0e}, so it was not written: please report it"
        )
    return worst
