"""The gallery's CO₂ forecast: gaps stay gaps, the future stays unseen, intervals mean something.

Forecasts are scored on an earlier window than the page's: its held-out weeks were used once.
"""

import importlib.util
import re
import textwrap
from pathlib import Path

import numpy as np
import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"
START = 1987


@pytest.fixture(scope="module")
def co2():
    spec = importlib.util.spec_from_file_location("gallery_co2", GALLERY / "co2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def record(co2, data_dir):
    if not (data_dir / "mauna_loa_co2_weekly.csv").exists():
        pytest.skip("POSTERAX_DATA has no mauna_loa_co2_weekly.csv")
    return co2.load(data_dir)


@pytest.fixture(scope="module")
def fitted(co2, record):
    return co2.forecast(record[0], START, warmup=150, draws=75, max_doublings=6)


class Seen(Exception):
    """Carries what a fit was given, in place of a fit."""


def what_fit_gets(co2, monkeypatch, *args):
    def spy(model, data, *rest, **options):
        raise Seen(data)

    monkeypatch.setattr(co2.px, "fit", spy)
    with pytest.raises(Seen) as seen:
        co2.forecast(*args)
    return seen.value.args[0]


def test_gaps_are_not_filled(co2, record, data_dir):
    weeks, missing = record
    rows = (data_dir / "mauna_loa_co2_weekly.csv").read_text().split()[1:]
    values = [row.split(",")[1] for row in rows]
    assert len(rows) == 2284
    assert len(missing) == values.count("") == 59
    assert weeks.ppm.tolist() == [float(value) for value in values if value]
    assert not np.isin(missing, weeks.year).any()
    apart = np.diff(weeks.year)
    assert apart.max() > 18 / 52.2  # the spring of 1964
    assert np.median(apart) == pytest.approx(7 / 365.25, rel=0.01)


def test_fit_gets_the_measured_weeks_before_the_forecast_and_no_others(co2, record, monkeypatch):
    weeks, missing = record
    x, y = what_fit_gets(co2, monkeypatch, weeks, co2.HELD_OUT)
    before = weeks.year < co2.HELD_OUT
    assert len(y) == before.sum() == sum(weeks.year < 1997)
    np.testing.assert_allclose(y, weeks.ppm[before] - weeks.ppm[before].mean(), atol=1e-4)
    # time is -1 at the record's first year and 1 where the forecast begins
    year = co2.FIRST + (x["time"][:, 0] + 1) / 2 * (co2.HELD_OUT - co2.FIRST)
    np.testing.assert_allclose(year, weeks.year[before], atol=1e-3)
    assert x["time"].max() < 1
    assert np.abs(year - missing[:, None]).min() > 5 / 365


def test_ramps_cover_the_years_to_come_and_leave_the_trend_alone(co2):
    year = np.linspace(co2.FIRST, START, 2000)
    x = co2.features(year, START)
    assert x["growth"].shape[1] == 2 * (START + co2.AHEAD - co2.FIRST)
    assert np.abs(x["growth"][:, -2 * co2.AHEAD :]).max() < 1e-6  # no data speak of these
    assert np.abs(x["trend"].T @ x["growth"]).max() / len(year) < 1e-5


def test_forecast_beats_last_year_plus_growth_and_covers(co2, record, fitted):
    weeks = record[0]
    window = weeks.between(START, START + co2.AHEAD)
    predictive = fitted.at(window.year)
    scores = co2.score(predictive, window.ppm)
    naive = co2.naive(weeks, START, window.year)
    assert scores["RMSE"] < np.sqrt(np.mean(np.square(naive - window.ppm)))
    assert scores["RMSE"] < 1.4
    assert 0.75 <= scores["coverage"] <= 1
    assert 1 < scores["width"] < 6  # a season swings by 6 ppm: wider would say nothing
    assert scores["NLL"] < 1.8
    # the further ahead, the less is known
    ahead = np.sqrt(predictive.epistemic)
    assert np.mean(ahead[-52:]) > 2 * np.mean(ahead[:52])


def test_picture(co2, record, fitted, tmp_path):
    co2.draw(fitted, *record, tmp_path / "co2.png")
    assert 50_000 < (tmp_path / "co2.png").stat().st_size < 300_000
    assert (GALLERY / "co2.png").stat().st_size < 300_000


def test_the_page_shows_the_script():
    script = (GALLERY / "co2.py").read_text()
    blocks = re.findall(r"^```py\n(.*?)^```$", (GALLERY / "co2.md").read_text(), re.M | re.S)
    assert blocks
    for block in blocks:
        places = (block, textwrap.indent(block, "    "))
        assert any(place in script for place in places), block
