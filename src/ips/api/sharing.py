"""Give a trained model to other programs and people."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ips.locks import lock_folder

if TYPE_CHECKING:
    from ips.export import Exported
    from ips.predictor import Predictor


def export(
    run: str | Path | Predictor,
    *,
    out: str | Path,
    formats: Sequence[str] = ("torch",),
    patches: int | None = None,
) -> list[Exported]:
    """Export a model, part by part, and compare every file with it.

    Args:
        run: run folder, or a predictor.
        out: output folder.
        formats: ``torch`` and ``onnx`` write the encoder, the aggregation and, with ``patches``,
            the whole model; ``wsinfer`` writes a classifier of single patches.
        patches: number of patches of an image, for the whole model.
    """
    from ips.export import export_model
    from ips.predictor import Predictor, load

    predictor = run if isinstance(run, Predictor) else load(run)
    with lock_folder(Path(out), option="output folder"):
        return export_model(predictor, Path(out), formats=formats, patches=patches)
