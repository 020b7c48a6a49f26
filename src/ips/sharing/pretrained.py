"""A model in a folder or on the hub.

model.safetensors    weights, with the settings in the header
config.json          version of this layout, and the settings again, for people and search engines
README.md            model card
training.png         curves of the training
attention.png        where the model looked on some test images, if asked for
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ips._version import __version__
from ips.config import Config, TableConfig
from ips.errors import ConfigError
from ips.files import atomic_path, write_text
from ips.loading import CONFIG, FORMAT, load
from ips.locks import lock_folder
from ips.nn.weights import HUB_FILE, is_name
from ips.predictor import Ensemble
from ips.sharing.card import Picture, model_card
from ips.training import RunFolder
from ips.training.folder import save_model

_CURVES = Picture("training.png", "Loss and scores of each epoch")
_ATTENTION = Picture("attention.png", "Where the model looked on some test images")


def save_pretrained(
    run: str | Path, folder: str | Path, *, pictures: bool = False, licence: str | None = None
) -> None:
    """Write the model of a run into a folder that `ips.load` takes, with its model card.

    Args:
        run: run folder.
        folder: output folder.
        pictures: also copy the figure that shows test images, which may be private.
        licence: identifier of the licence of the weights, such as ``apache-2.0``.
    """
    run, folder = Path(run), Path(folder)
    source = RunFolder(run)
    if folder.resolve() == run.resolve():
        raise ConfigError(f"{folder}: is the run folder: give another output folder")
    predictor = load(run)
    if isinstance(predictor, Ensemble):
        raise ConfigError(f"{run}: a cross-validation has several models: share one of its runs")
    with lock_folder(folder, option="output folder"):
        shown = [_CURVES, _ATTENTION] if pictures else [_CURVES]
        shown = [picture for picture in shown if (source.figures / picture.file).is_file()]
        for picture in shown:
            _copy(source.figures / picture.file, folder / picture.file)
        config = _without_paths(predictor.config)
        save_model(predictor.net, config, folder / HUB_FILE, epoch=source.model_epoch())
        about = {"format": FORMAT, "library": "iterative-patch-selection", "version": __version__}
        values = about | {"config": config.model_dump(mode="json")}
        write_text(folder / CONFIG, json.dumps(values, indent=2) + "\n")
        card = model_card(predictor, test=source.test, pictures=shown, licence=licence)
        write_text(folder / "README.md", card)


def push_to_hub(
    run: str | Path,
    repository: str,
    *,
    private: bool = True,
    pictures: bool = False,
    licence: str | None = None,
) -> str:
    """Upload the model of a run to the Hugging Face hub, and return its address.

    Args:
        run: run folder.
        repository: OWNER/REPO, created if missing.
        private: whether a new repository is private.
        pictures, licence: see `save_pretrained`.
    """
    from huggingface_hub import HfApi

    with TemporaryDirectory() as temporary:
        folder = Path(temporary) / "model"
        save_pretrained(run, folder, pictures=pictures, licence=licence)
        try:
            api = HfApi()
            address = api.create_repo(repository, private=private, exist_ok=True)
            api.upload_folder(repo_id=repository, folder_path=folder, ignore_patterns=[".*"])
        except Exception as error:  # its network library raises types that change with versions
            reason = str(error).partition("\n")[0] or type(error).__name__
            raise ConfigError(
                f"{repository}: could not be uploaded to the Hugging Face hub ({reason}): log in "
                "with `hf auth login`, and check the name"
            ) from error
    return str(address)


def _without_paths(config: Config) -> Config:
    """A config without folders and files of this machine, whose names may be private."""
    update: dict[str, Any] = {}
    if isinstance(data := config.data, TableConfig):
        names: dict[str, Any] = {
            "csv": Path(data.csv.name),
            "root": None,
            "objects": None,
            "exclude": [],
        }
        update["data"] = data.model_copy(update=names)
    if (weights := config.encoder.weights) is not None and not is_name(weights):
        update["encoder"] = config.encoder.model_copy(update={"weights": Path(weights.name)})
    return config.model_copy(update=update)


def _copy(source: Path, target: Path) -> None:
    with atomic_path(target) as file:
        shutil.copyfile(source, file)
