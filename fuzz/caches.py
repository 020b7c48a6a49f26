"""Journals and caches of ours: unfinished scores, answers of the viewer, states, drawn folders."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
import torch

import ips.loading
import ips.predictor
from fuzz.family import Family, Reading, Seed
from fuzz.formats import edit_safetensors
from fuzz.runs import RUN, data_folder, run_folder
from fuzz.tables import TEXT
from fuzz.text import edit_text
from ips.api import feature_status
from ips.data.synthetic.folder import write_folder
from ips.explain import Explanation
from ips.predictor import Predictor
from ips.scores import ScoreFile
from ips.viewer.answers import Answer, cache_name
from ips.viewer.library import Library
from ips.viewer.renderer import Renderer
from ips.viewer.tiles import MapStyle

_SECONDS = 20.0  # to wait for a prediction
_SETTINGS = {"version": 2, "seed": 0, "slides": 3, "sizes": [100, 200]}
_NUMBERS = "its bytes are the numbers, without a checksum"


def _predictor(folder: Path) -> Predictor:
    return ips.loading.load(folder / RUN)


def _explained(explanation: Explanation) -> Reading:
    attention = {k: v.tolist() for k, v in explanation.all_attention.items()}
    return Reading(explanation.patches, (explanation.class_probabilities, attention))


def _resume_scores(path: Path) -> Reading:
    """Predict an image whose unfinished scores are in ``path``, as `ips predict` does."""
    ips.predictor._LARGE = 1  # patches from which on scores are stored
    image = data_folder() / "c.png"
    predictor = _predictor(path.parent)
    target = predictor._score_file([image])
    target.parent.mkdir()
    path.rename(target)
    return _explained(predictor.predict(image))


def _scores(folder: Path) -> bytes:
    """The scores of a prediction that was interrupted before its last patch was scored."""
    predictor, image = _predictor(folder), data_folder() / "c.png"
    source = predictor.open(image)
    table = predictor.net.empty_table(source)
    predictor.net.predict(source, load="lazy", table=table)
    file = ScoreFile(folder / "scores", *table.logits.shape)
    done = np.arange(len(source) - 1)
    file.put(torch.from_numpy(done), table.logits[:-1])
    return (folder / "scores").read_bytes()


def _view(path: Path) -> Reading:
    """Show an image whose answer is cached in ``path``, as the page of `ips view` does."""
    image, run = data_folder() / "c.png", path.parent / RUN
    predictor = _predictor(path.parent)
    (run / "viewer").mkdir()
    path.rename(run / "viewer" / cache_name(predictor, [image]))
    library = Library(predictor, run, {str(image): [str(image)]})
    (entry,) = library.entries.values()
    library.predict_next(entry)  # as the page does when an image is opened
    library.start()
    with library._changed:
        library._changed.wait_for(lambda: entry.state in ("ready", "failed"), timeout=_SECONDS)
    renderer = Renderer(library)
    answer: dict[str, Any] = renderer.answer(entry)
    tile = renderer.attention_tile(entry, 0, 0, 0, 0, MapStyle(task=0))
    patch = renderer.patch(entry, 0)
    if not answer:  # damaged: the page waits until it is predicted again
        with library._changed:
            library._changed.wait_for(lambda: entry.state in ("ready", "failed"), timeout=_SECONDS)
        answer = renderer.answer(entry)
        tile = renderer.attention_tile(entry, 0, 0, 0, 0, MapStyle(task=0))
        patch = renderer.patch(entry, 0)
    json.dumps(answer, allow_nan=False)
    library.close()
    facts = (answer["patches"], answer["count"]) if answer else None
    return Reading(facts, (answer, tile, patch))


def _answer(folder: Path) -> bytes:
    explanation = _predictor(folder).predict(data_folder() / "c.png")
    Answer.from_explanation(explanation).save(folder / "answer")
    return (folder / "answer").read_bytes()


def _read_states(path: Path) -> Reading:
    """List the slides of a feature folder."""
    states = feature_status(path.parent)
    return Reading([(s.name, s.state) for s in states], [s.note for s in states])


def _read_folder(path: Path) -> Reading:
    """Continue to draw a synthetic data set."""
    drawn: list[int] = []
    write_folder(
        *(path.parent, "slides"),
        labels={"tumor": lambda number: 0},
        rows=[(PurePosixPath("slides/a.tif"), "train")],
        subfolders=["slides"],
        settings=_SETTINGS,
        draw=drawn.append,
    )
    return Reading(drawn)


def families() -> list[Family]:
    """All families of journals and caches."""
    run = {name: data for name, data in run_folder().items() if "checkpoints" not in name}
    with tempfile.TemporaryDirectory(prefix="fuzz-") as name:
        folder = Path(name)
        (folder / RUN).mkdir()
        for file, data in run.items():
            (folder / file).parent.mkdir(exist_ok=True, parents=True)
            (folder / file).write_bytes(data)
        scores, answer = _scores(folder), _answer(folder)
    note = "a.svs cannot be read (é): copy it again".encode()
    return [
        Family(
            "scores",
            (Seed("unfinished", "c.scores", scores, _resume_scores, run),),
            values=_NUMBERS,
        ),
        Family(
            "answers",
            (Seed("viewer", "answer.safetensors", answer, _view, run),),
            *(edit_safetensors, _NUMBERS, _NUMBERS),
        ),
        Family(
            "states",
            (
                Seed("failed", "slide_a.failed", note, _read_states),
                Seed("empty", "slide_a.empty", note, _read_states),
            ),
            *(edit_text, TEXT, TEXT),
        ),
        Family(
            "drawn-settings",
            (Seed("json", "slides.json", json.dumps(_SETTINGS).encode(), _read_folder),),
            *(edit_text, TEXT, TEXT),
        ),
    ]
