"""A faster copy of an encoder for evaluation, with BatchNorms folded into convolutions.

In evaluation mode a BatchNorm is an affine map per channel, so a convolution followed by one is a
single convolution with other weights. They are folded again before every pass, which takes far less
time than the pass.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, fx, nn

from ips.nn.efficientnet import HalvingConv2d

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, HalvingConv2d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.SyncBatchNorm)


class FoldedEncoder:
    """A copy of ``encoder`` in evaluation mode, with folded BatchNorms.

    Not an ``nn.Module``, so that its weights stay out of the state_dict of the model that holds it.

    Args:
        encoder: the original, whose weights are copied.
        compile: compile the copy.

    Raises:
        ValueError: if the encoder cannot be traced or has no BatchNorm to fold.
    """

    def __init__(self, encoder: nn.Module, *, compile: bool = False) -> None:
        self._original = encoder
        self._copy, self._pairs = _fold(encoder)
        self._run = torch.compile(self._copy) if compile else self._copy

    def refresh(self) -> None:
        """Copy the current weights of the original."""
        tensors = dict(self._original.named_parameters()) | dict(self._original.named_buffers())
        first = next(iter(tensors.values()))
        self._copy.to(first).to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        with torch.no_grad():
            for name, target in self._copy.named_parameters():
                owner = name.rpartition(".")[0]
                if owner not in self._pairs:
                    target.copy_(tensors[name])
            for name, buffer in self._copy.named_buffers():
                if name in tensors:  # otherwise a constant that tracing turned into a buffer
                    buffer.copy_(tensors[name])
            for name, norm in self._pairs.items():
                self._fold_pair(name, norm)

    def _fold_pair(self, name: str, norm_name: str) -> None:
        layer, norm = (self._original.get_submodule(n) for n in (name, norm_name))
        target = self._copy.get_submodule(name)
        assert isinstance(layer, _CONVOLUTIONS)
        assert isinstance(norm, _NORMS)
        assert isinstance(target, _CONVOLUTIONS)
        assert norm.running_mean is not None
        assert norm.running_var is not None
        assert target.bias is not None
        scale = (norm.running_var + norm.eps).rsqrt()
        if norm.weight is not None:
            scale = scale * norm.weight
        shift = -norm.running_mean if layer.bias is None else layer.bias - norm.running_mean
        shift = shift * scale
        if norm.bias is not None:
            shift = shift + norm.bias
        target.weight.copy_(layer.weight * scale.view(-1, *[1] * (layer.weight.dim() - 1)))
        target.bias.copy_(shift)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the output of the original in evaluation mode, up to rounding."""
        embedding: Tensor = self._run(x)
        return embedding


def has_hooks(encoder: nn.Module) -> bool:
    """Whether the encoder has forward hooks, which a copy would not run."""
    return any(part._forward_hooks or part._forward_pre_hooks for part in encoder.modules())


class _Tracer(fx.Tracer):
    """Keeps convolutions whole, also ours."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return isinstance(m, HalvingConv2d) or super().is_leaf_module(m, module_qualified_name)


def _fold(encoder: nn.Module) -> tuple[fx.GraphModule, dict[str, str]]:
    """Trace the encoder without its BatchNorms; return it with the pairs (layer, BatchNorm)."""
    if has_hooks(encoder):
        raise ValueError("the encoder has forward hooks, which a traced copy would not run")
    if not any(isinstance(part, _NORMS) for part in encoder.modules()):  # spare a copy of it
        raise ValueError("the encoder has no BatchNorm to fold")
    try:
        inner = copy.deepcopy(encoder).eval()
        graph = fx.GraphModule(inner, _Tracer().trace(inner))
    except Exception as error:  # tracing fails in many ways
        raise ValueError(f"the encoder cannot be traced: {error}") from error
    modules = dict(graph.named_modules())
    called = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    weights = [id(part.weight) for part in encoder.modules() if isinstance(part, _CONVOLUTIONS)]
    pairs: dict[str, str] = {}
    for node in list(graph.graph.nodes):
        before = node.args[0] if node.args else None
        if (
            node.op == "call_module"
            and isinstance(norm := modules[node.target], _NORMS)
            and norm.track_running_stats
            and isinstance(before, fx.Node)
            and before.op == "call_module"
            # exactly this type: a subclass or a parametrized layer may behave differently
            and type(layer := modules[str(before.target)]) in _CONVOLUTIONS
            and weights.count(id(encoder.get_submodule(str(before.target)).weight)) == 1
            and len(before.users) == 1
            and called.count(before.target) == called.count(node.target) == 1
        ):
            if layer.bias is None:
                layer.bias = nn.Parameter(layer.weight.new_zeros(layer.weight.shape[0]))
            node.replace_all_uses_with(before)
            graph.graph.erase_node(node)
            pairs[str(before.target)] = str(node.target)
    if not pairs:
        raise ValueError("the encoder has no BatchNorm to fold")
    graph.delete_all_unused_submodules()
    graph.recompile()
    return graph.requires_grad_(False), pairs
