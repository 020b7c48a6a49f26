"""Trainings that score only some patches again, and the audit of what that misses."""

from __future__ import annotations

import copy
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rich.console import Console
from torch import Tensor

import ips
from ips.api.inference import ImagePrediction
from ips.config import Config
from ips.config_io import parse_saved_config
from ips.errors import ConfigError
from ips.models import LOADS, ScoreTable, Selected, SelectingNet
from ips.patches import MemoryPatches, PatchSource
from ips.selection import Selection
from ips.training import build_data, build_model, resolve, train
from ips.training.audit import scored_again
from ips.training.batches import Batch
from ips.training.refresh import CachedScores
from ips.training.score_store import ScoreStore
from ips.training.screening import calibrate_screen
from tests.training.own_images import features, photographs
from tests.training.test_options import config_of
from tests.training.test_run import interrupt, metrics, weights
from tests.training.test_start import lose
from tests.training.tiny import tiny

CONSOLE = Console(quiet=True)
EPOCHS, STEPS = 6, 3


def short(*settings: str) -> Config:
    epochs = f"train.epochs={EPOCHS}"
    grid = ("patches.stride=25", "select.keep=2")  # N = 49
    return tiny(epochs, "data.train=6", "train.batch=2", "data.fresh=false", *grid, *settings)


def begin_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every training have begun after its first epoch."""
    lose(monkeypatch, [1.0] * EPOCHS)


def test_refreshing_everything_gives_the_weights_of_full_scoring(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at_once(monkeypatch)
    full = train(short(), tmp_path / "full", console=CONSOLE)
    again = train(short("select.refresh=0.9999"), tmp_path / "again", console=CONSOLE)
    part = train(short("select.refresh=0.01"), tmp_path / "part", console=CONSOLE)
    assert torch.equal(weights(full.net), weights(again.net))
    assert not torch.equal(weights(full.net), weights(part.net))
    rows = metrics(tmp_path / "again")
    assert [float(row["scored"]) for row in rows] == [1] * EPOCHS
    assert [row["recall"] for row in rows] == ["nan", "nan", "1", "1", "1", "1"]


@pytest.mark.parametrize("settings", [(), ("train.balance=sampling",)], ids=["", "sampling"])
def test_a_resumed_run_ends_with_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: Sequence[str]
) -> None:
    begin_at_once(monkeypatch)
    if settings:
        config = config_of(
            photographs(tmp_path, count=12, every=3),
            select={"keep": 2, "chunk": 4, "load": "lazy", "refresh": 0.1, "recall": 0.5},
            train={"epochs": EPOCHS, "batch": 3, "warmup": 0, "balance": "sampling"},
        )
    else:
        within = "train.checkpoint_minutes=0"  # saves within an epoch, too
        config = short("select.refresh=0.1", "select.recall=0.5", within)
    whole = train(config, tmp_path / "whole", console=CONSOLE)
    shares = [float(row["scored"]) for row in metrics(tmp_path / "whole")]
    assert shares[:2] == [1, 1]
    assert min(shares[2:-1]) < 1
    assert shares[-1] == 1
    for step in (3 * STEPS + 1, 4 * STEPS):
        run = tmp_path / f"cut-{step}"
        interrupt(monkeypatch, lambda run=run: train(config, run, console=CONSOLE), step=step)  # type: ignore[misc]
        cut = train(config, run, resume=True, console=CONSOLE)
        assert torch.equal(weights(whole.net), weights(cut.net))
        names = ("scored", "recall", "recall_attention", "recall_attention_low")
        stored = [[row[k] for k in names] for row in metrics(run)]
        assert stored == [[row[k] for k in names] for row in metrics(tmp_path / "whole")]
        assert not list((run / "checkpoints").glob("scores-*"))


def test_a_run_whose_scores_are_gone_says_so_and_scores_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at_once(monkeypatch)
    config, run = short("select.refresh=0.1", "select.recall=0.5"), tmp_path / "r"
    interrupt(monkeypatch, lambda: train(config, run, console=CONSOLE), step=3 * STEPS + 1)
    for path in (run / "checkpoints").glob("scores-*"):
        path.unlink()
    text = io.StringIO()
    train(config, run, resume=True, console=Console(file=text, width=200))
    assert "the stored scores of the patches are gone: this epoch scores all" in text.getvalue()
    assert float(metrics(run)[3]["scored"]) == 1


@pytest.mark.parametrize("workers", [0, 1])
def test_all_ways_to_load_give_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    begin_at_once(monkeypatch)
    found = []
    for load in LOADS if not workers else ("eager",):
        config = short("select.refresh=0.1", f"select.load={load}", f"train.workers={workers}")
        found.append(weights(train(config, tmp_path / load, console=CONSOLE).net))
    plain = short("select.refresh=0.1")
    expected = weights(train(plain, tmp_path / "plain", console=CONSOLE).net)
    assert all(torch.equal(one, expected) for one in found)


def test_photographs_with_shifted_grids_and_features_with_different_counts_can_be_cached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at_once(monkeypatch)
    settings = {"epochs": EPOCHS, "batch": 4, "warmup": 0}
    select = {"keep": 2, "chunk": 4, "load": "eager", "refresh": 0.2, "recall": 0.1}
    for make, sections in (
        (photographs, {"augment": {"kind": "photographs"}}),
        (features, {"encoder": {"name": "projector", "dim": 8}, "patches": {}}),
    ):
        folder = tmp_path / make.__name__
        folder.mkdir()
        config = config_of(make(folder), train=settings, select=select, **sections)
        train(config, folder / "run", console=CONSOLE)
        rows = metrics(folder / "run")
        assert min(float(row["scored"]) for row in rows[2:-1]) < 1
        assert all(0 <= float(row["recall"]) <= 1 for row in rows[2:])
        assert all(float(row["recall_low"]) <= float(row["recall_high"]) for row in rows[2:])


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (["data.fresh=true"], "the training images are drawn anew"),
        (["method=rps"], "method=rps does not select among all patches"),
    ],
)
def test_what_cannot_be_cached_is_scored_in_full_with_a_sentence(
    tmp_path: Path, settings: list[str], words: str
) -> None:
    found = {}
    for refresh in (1, 0.5):
        text = io.StringIO()
        config = short(f"select.refresh={refresh}", "train.epochs=1", *settings)
        net = train(config, tmp_path / str(refresh), console=Console(file=text, width=200)).net
        found[refresh] = weights(net), text.getvalue()
    assert f"select.refresh=0.5 has no effect, and all patches are scored: {words}" in found[0.5][1]
    assert "no effect" not in found[1][1]
    assert torch.equal(found[1][0], found[0.5][0])


class FixedScores(SelectingNet):
    """Scores are numbers that a test sets, by image and patch."""

    def __init__(self) -> None:
        torch.nn.Module.__init__(self)
        self.channels = 1
        self.asked: list[tuple[str, list[int]]] = []
        self.values: dict[str, Tensor] = {}

    def empty_table(self, source: Any, channels: int | None = None) -> ScoreTable:
        return ScoreTable(torch.empty(len(source), 1))

    def select_for_training(  # type: ignore[override]
        self, sources: Any, *, tables: Any, **options: Any
    ) -> Selected:
        rows = []
        for source, table in zip(sources, tables, strict=True):
            missing = table.missing()
            self.asked.append((source.name, missing.tolist()))
            table.put(missing, self.values[source.name][missing].unsqueeze(1))
            logits, mask = table.selectable()
            rows.append(logits[:, 0].masked_fill(~mask, -torch.inf).topk(2).indices)
        indices = torch.stack(rows)
        return Selected(Selection(indices, torch.ones_like(indices).bool(), indices.float()))


def epoch_of(cache: CachedScores, net: FixedScores, number: int, *, images: int) -> str | None:
    cache.begin(number)
    for image in range(images):
        source = MemoryPatches(torch.zeros(100, 1), name=str(image))
        batch = Batch([source], {}, [image])
        cache.choose(net, batch, load="eager", seed=0)
    return cache.finish()


def test_winners_the_next_best_the_oldest_and_random_patches_are_scored(tmp_path: Path) -> None:
    images = 12
    store = ScoreStore(tmp_path, images=images, channels=1)
    cache = CachedScores(store, keep=2, share=0.2, floor=0.5, epochs=50, seed=0)
    net = FixedScores()
    rng = torch.Generator().manual_seed(0)
    net.values = {str(i): torch.randn(100, generator=rng) for i in range(images)}
    epoch_of(cache, net, 0, images=images)
    assert all(len(missing) == 100 for _, missing in net.asked)
    last = {str(i): np.zeros(100) for i in range(images)}
    for epoch in range(1, 25):
        net.asked = []
        assert epoch_of(cache, net, epoch, images=images) is None
        partial = [(name, missing) for name, missing in net.asked if len(missing) < 100]
        assert len(partial) == images - 4  # of which none is audited
        for name, missing in partial:
            best = net.values[name].argsort(descending=True)[:8].tolist()
            assert set(best) <= set(missing)  # 2 winners and the next 6
            assert len(missing) == 8 + 2 * 10  # a tenth of 92 each, in turn and at random
        for name, missing in net.asked:
            last[name][missing] = epoch
            assert epoch - last[name].min() <= 10  # all come in turn
    assert cache.metrics()["recall"] == 1
    expected = scored_again(100, 2, 0.2)
    assert expected == pytest.approx(0.03 * 100 + 0.97 * (8 + 0.2 * 92))


def test_below_the_floor_all_patches_are_scored_and_the_shortlist_grows(tmp_path: Path) -> None:
    images = 8
    store = ScoreStore(tmp_path, images=images, channels=1)
    cache = CachedScores(store, keep=2, share=0.01, floor=0.95, epochs=50, seed=0)
    net = FixedScores()
    rng = torch.Generator().manual_seed(0)
    said = []
    for epoch in range(4):
        # All scores change, so that those of earlier epochs say nothing.
        net.values = {str(i): torch.randn(100, generator=rng) for i in range(images)}
        net.asked = []
        said.append(epoch_of(cache, net, epoch, images=images))
        full = [len(missing) for _, missing in net.asked].count(100)
        assert full == (4 if epoch == 1 else images)
    assert said[0] is None
    words = (
        "less than 0.95 of the attention, so the next epoch scores all patches, and the shortlist "
        "grows to"
    )
    assert [
        f"{words} {n} M" in str(sentence) for n, sentence in zip((7, 13), said[1:], strict=False)
    ] == [True] * 2
    assert "audit of 4 images: recall 0." in str(said[1])
    assert "audit of 8 images: recall 0." in str(said[2])
    # scores stay, so that the last ones are right
    later = [epoch_of(cache, net, epoch, images=images) for epoch in range(4, 8)]
    assert any("the shortlist shrinks to" in str(sentence) for sentence in later)


def test_unscored_patches_are_never_selected() -> None:
    listed = torch.tensor([False, True, True, False, True])
    table = ScoreTable(torch.empty(5, 2))
    table.leave_out(~listed)
    assert table.missing().tolist() == [1, 2, 4]
    table.put(torch.tensor([1, 4]), torch.zeros(2, 2))
    table.put(torch.tensor([2]), torch.full((1, 2), -torch.inf))  # blank
    assert table.selectable()[1].tolist() == [False, True, False, False, True]
    blank = ScoreTable(torch.empty(5, 2))
    blank.leave_out(~listed)
    blank.put(listed.nonzero()[:, 0], torch.full((3, 2), -torch.inf))
    logits, mask = blank.selectable()
    assert torch.equal(mask, listed)
    assert not logits.any()


def test_a_partial_pass_selects_the_best_of_the_shortlist() -> None:
    config = short()
    data = build_data(config)
    net = build_model(resolve(config, data))
    assert isinstance(net, SelectingNet)
    net.mode = "exact"
    source = data.train[0][0]
    whole = net.empty_table(source)
    net.select([source], tables=[whole])
    listed = torch.arange(len(source)) % 3 == 0
    part = net.empty_table(source)
    part.leave_out(~listed)
    found = net.select([source], tables=[part], load="lazy").selection.indices[0]
    expected = whole.logits.masked_fill(~listed.unsqueeze(1), -torch.inf).softmax(dim=0).mean(dim=1)
    assert set(found.tolist()) == set(expected.topk(2).indices.tolist())


def test_runs_with_the_former_setting_can_still_be_opened() -> None:
    values = tiny().model_dump(mode="json")
    values["select"]["every"] = 4
    assert parse_saved_config(values, source="old").select.refresh == 1


def test_a_training_teaches_a_screen_that_predictions_use_and_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at_once(monkeypatch)
    text = io.StringIO()
    config = short("select.screen=true", "select.recall=0.05")
    train(config, tmp_path / "run", console=Console(file=text, width=300))
    assert "screen: predictions score at least 1% of the patches (on " in text.getvalue()
    predictor = ips.load(tmp_path / "run")
    assert "screened in predictions (1% scored" in predictor.net.describe()["selected patches"]
    source = build_data(config).test[0][0]
    explanation = predictor.predict(source)
    assert explanation.screened is not None
    scored = explanation.screened.scored
    assert scored.sum() < len(source)
    assert scored[explanation.indices.numpy()].all()
    assert not explanation.mean_attention[~scored].any()
    values = ImagePrediction("a", {}, explanation).as_dict()["screened"]
    assert values["scored"] == scored.sum()
    for found in (values["recall"], values["recall_attention"]):
        assert 0 <= found["low"] <= found["value"] <= found["high"] <= 1


@pytest.mark.parametrize("better", ["best epoch", "last epoch"])
def test_the_better_screen_of_the_best_and_the_last_epoch_is_kept(better: str) -> None:
    config = short("select.screen=true")
    data = build_data(config)
    net = build_model(resolve(config, data)).eval()
    assert isinstance(net, SelectingNet)
    assert net.screen is not None
    screens = {"best epoch": net.screen, "last epoch": copy.deepcopy(net.screen)}

    def right(source: PatchSource) -> Tensor:
        table = net.empty_table(source)
        net.select([source], tables=[table])
        return table.logits

    def wrong(source: PatchSource) -> Tensor:
        return -right(source)

    for name, screen in screens.items():
        screen.estimate = right if name == better else wrong  # type: ignore[method-assign]
    sentence = calibrate_screen(net, config, data, last=screens["last epoch"])
    assert net.screen is screens[better]
    assert "predictions score at least 1% of the patches" in str(sentence)


def test_the_gradient_of_a_screen_stays_in_it(tmp_path: Path) -> None:
    found = []
    for screen in ("false", "true"):
        config = short(f"select.screen={screen}", "train.epochs=2", "train.clip=0.1")
        found.append(train(config, tmp_path / screen, console=CONSOLE).net.encoder.state_dict())
    assert all(torch.equal(weight, found[1][name]) for name, weight in found[0].items())


@pytest.mark.parametrize("fresh", ["false", "true"])
def test_a_screen_chooses_the_patches_that_a_training_scores_once_it_finds_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fresh: str
) -> None:
    begin_at_once(monkeypatch)
    config = short("select.screen=true", "select.recall=0.05", f"data.fresh={fresh}")
    whole = train(config, tmp_path / "whole", console=CONSOLE)
    shares = [float(row["scored"]) for row in metrics(tmp_path / "whole")]
    assert shares[:2] == [1, 1]  # before it begins, and before the first audit
    assert min(shares[2:-1]) < 1
    assert shares[-1] == 1
    run = tmp_path / "cut"
    interrupt(monkeypatch, lambda: train(config, run, console=CONSOLE), step=3 * STEPS + 1)
    cut = train(config, run, resume=True, console=CONSOLE)
    assert torch.equal(weights(whole.net), weights(cut.net))


def test_a_screen_that_overlooks_patches_is_not_used_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at_once(monkeypatch)
    blind = lambda self, source: torch.zeros(len(source), self.head.out_features)  # noqa: E731
    monkeypatch.setattr("ips.models.screen.Screen.estimate", blind)
    text = io.StringIO()
    config = short("select.screen=true")
    train(config, tmp_path, console=Console(file=text, width=300))
    assert "less than 0.95 of the attention, so the next epoch scores all" in text.getvalue()
    assert [float(row["scored"]) for row in metrics(tmp_path)][:3] == [1, 1, 1]


def test_fresh_images_have_a_screen_instead_of_old_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_at_once(monkeypatch)
    text = io.StringIO()
    settings = ("select.screen=true", "select.refresh=0.1", "data.fresh=true", "select.recall=0.05")
    train(short(*settings), tmp_path, console=Console(file=text, width=300))
    assert "select.refresh=0.1 has no effect, and patches are chosen by select.screen" in (
        text.getvalue()
    )
    lines = [line for line in text.getvalue().splitlines() if line.startswith("epoch 1/")]
    assert "scored 1.000" in lines[0]
    assert "recall" not in lines[0]  # undefined in an epoch that scores all patches
    assert min(float(row["scored"]) for row in metrics(tmp_path)) < 1


@pytest.mark.parametrize("method", ["rps", "cnn"])
def test_methods_that_do_not_select_among_all_patches_have_no_screen(method: str) -> None:
    config = short(f"method={method}", "select.screen=true")
    with pytest.raises(ConfigError, match=f"select.screen=true with method={method}"):
        build_model(resolve(config, build_data(config)))
