"""`ips init` recognises numbers to predict, and times until an event."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from ips import api
from ips.advice.targets import is_measurement, survival_pairs
from ips.config_io import parse_config
from ips.errors import DataError
from ips.training import build_data
from tests.advice.pictures import COST, find, store, write_table


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ips.advice.init.measure", lambda *_: COST)
    monkeypatch.setattr("ips.advice.init.available_bytes", lambda: 8 * 2**30)


def table(folder: Path, **columns: list[str]) -> Path:
    """A table of 30 feature files with these columns."""
    rows = [",".join(["path", *columns])]
    for number, cells in enumerate(zip(*columns.values(), strict=True)):
        store(folder / f"{number}.h5", seed=number)
        rows.append(",".join([f"{number}.h5", *cells]))
    return write_table(folder / "t.csv", rows)


AGES = [f"{20 + 1.5 * number:g}" for number in range(30)]
EVENTS = [str(number % 2) for number in range(30)]


def test_many_different_numbers_are_a_regression(tmp_path: Path) -> None:
    new = api.init(table(tmp_path, age=AGES), out=tmp_path / "c.yaml")
    assert "age is a regression task: numbers from 20 to 63.5, mean 41.75" in new.notes
    values = yaml.safe_load(new.path.read_text())
    assert values["tasks"] == {"age": {"kind": "regression"}}
    assert "readout" not in values
    data = build_data(parse_config(values, source="c.yaml"))
    assert data.validation is not None
    # Every part has images of every quarter.
    for part in (data.validation, data.test):
        ages = [float(part[i][1]["age"]) for i in range(len(part))]
        assert min(ages) < 32
        assert max(ages) > 52


def test_times_and_events_are_survival(tmp_path: Path) -> None:
    times = ["" if number == 3 else age for number, age in enumerate(AGES)]
    status = ["1:DECEASED" if event == "1" else "0:LIVING" for event in EVENTS]
    new = api.init(table(tmp_path, OS_MONTHS=times, OS_STATUS=status), out=tmp_path / "c.yaml")
    values = yaml.safe_load(new.path.read_text())
    assert values["tasks"] == {"OS_MONTHS": {"kind": "survival", "event": "OS_STATUS"}}
    assert values["train"]["batch"] == 16
    assert values["data"]["exclude"] == ["3.h5"]
    data = build_data(parse_config(values, source="c.yaml"))
    found = [data.test[i][1]["OS_MONTHS"].tolist() for i in range(len(data.test))]
    assert min(time for time, _ in found) >= 20
    assert {event for _, event in found} == {0, 1}


@pytest.mark.parametrize(
    ("time", "event"),
    [("time", "event"), ("OS.time", "OS"), ("days_to_death", "vital_status"), ("pfs_time", "died")],
)
def test_names_of_times_and_events(time: str, event: str) -> None:
    rows = [{time: t, event: e, "age": t} for t, e in zip(AGES, EVENTS, strict=True)]
    assert survival_pairs([time, event, "age"], rows) == {time: event}


def test_classes_come_before_measurements(tmp_path: Path) -> None:
    grades = ["low", "high"] * 15
    assert find(table(tmp_path, age=AGES, grade=grades)).tasks == ["grade"]
    assert find(tmp_path / "t.csv", labels=["age"]).tasks == ["age"]


def test_one_of_two_measurements_must_be_given(tmp_path: Path) -> None:
    other = [f"{float(age) * 2}" for age in AGES]
    with pytest.raises(DataError, match="the label could be one of age, weight"):
        find(table(tmp_path, age=AGES, weight=other))


def test_numbers_of_rows_are_no_measurement() -> None:
    assert not is_measurement([{"n": str(i)} for i in range(7, 40)], "n")
    assert not is_measurement([{"n": "12.5"}, {"n": "high"}], "n")
