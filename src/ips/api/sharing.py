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
    from ips.loading import load
    from ips.predictor import Predictor

    predictor = run if isinstance(run, Predictor) else load(run)
    with lock_folder(Path(out), option="output folder"):
        return export_model(predictor, Path(out), formats=formats, patches=patches)


def share(
    run: str | Path,
    *,
    out: str | Path | None = None,
    hub: str | None = None,
    public: bool = False,
    pictures: bool = False,
    licence: str | None = None,
) -> str:
    """Write a model with its card into a folder, or to the hub; return where it is.

    Args:
        run: run folder.
        out: output folder, unless ``hub`` is given.
        hub: OWNER/REPO, a repository of the Hugging Face hub, created if missing.
        public: whether a new repository is public.
        pictures: also share the figure that shows test images, which may be private.
        licence: identifier of the licence of the weights, such as ``apache-2.0``.
    """
    from ips.errors import ConfigError
    from ips.sharing import push_to_hub, save_pretrained

    if (out is None) == (hub is None):
        raise ConfigError("give either --out DIR or --hub OWNER/REPO")
    if hub is not None:
        return push_to_hub(run, hub, private=not public, pictures=pictures, licence=licence)
    assert out is not None
    save_pretrained(run, out, pictures=pictures, licence=licence)
    return str(out)
