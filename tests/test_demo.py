"""The demo's promises: bands that widen, intervals that cover, digits that are read."""

import numpy as np
import pytest
from typer.testing import CliRunner

import posterax as px
from posterax import cli, demo


def test_curve_band_widens_outside_the_data_and_covers_inside():
    train, test = demo.curve_data(key=0), demo.curve_data(key=1)
    model = demo.curve_model(0, heteroscedastic=True)
    posterior = px.fit(
        model, train, demo.curve_method(),
        epochs=demo.CURVE_EPOCHS, batch_size=demo.BATCH, key=0,
    )  # fmt: skip
    scores = demo.curve_scores(posterior, test)
    assert scores["sd 1"] >= 3 * scores["sd 0.25"]
    assert 0.85 <= scores["cover"] <= 0.95
    # the noise of the curve is 0.063 root mean square
    assert scores["RMSE"] < 0.07


def test_digits_are_read_and_probabilities_mean_what_they_say():
    """The mean over the first three splits: one split of 360 test digits is a coarse measure."""
    warm, cold = [], []
    for split in range(3):
        train, validation, test = demo.digits_data(split)
        posteriors = {
            t: px.fit(
                demo.digits_model(split), train, demo.digits_method(t),
                epochs=demo.DIGITS_EPOCHS, batch_size=demo.BATCH, key=split,
            )
            for t in (1.0, 0.3, 0.1, 0.03)
        }  # fmt: skip
        best = min(posteriors, key=lambda t: demo.digits_scores(posteriors[t], validation)["NLL"])
        warm.append(demo.digits_scores(posteriors[1.0], test))
        cold.append(demo.digits_scores(posteriors[best], test))
    mean = lambda rows, name: np.mean([row[name] for row in rows])  # noqa: E731
    assert mean(warm, "error") <= 0.03
    assert mean(warm, "ECE") <= 0.10
    assert mean(cold, "error") <= 0.03
    assert mean(cold, "ECE") <= 0.04


@pytest.mark.usefixtures("hasty_compiler")
def test_command_line(tmp_path):
    result = CliRunner().invoke(cli.app, ["demo", "--quick", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.stderr
    picture = tmp_path / "new" / "regression.png"
    assert picture.stat().st_size > 10_000
    report = tmp_path / "new" / "diabetes.html"
    assert result.stdout.splitlines()[-2:] == [str(picture), str(report)]
    assert "<!doctype html>" in report.read_text()[:100]
    names = {entry.name for entry in demo.curve_entries(quick=True)}
    assert names == {
        "maximum likelihood", "maximum a posteriori", "Bayes by Backprop",
        "deep ensemble", "NUTS", "importance sampling",
    }  # fmt: skip
    for name in names:
        assert name in result.stdout
        assert f"fitting {name}" in result.stderr  # nobody waits in silence
        assert f"fitting {name}" not in result.stdout
    assert "Digits" in result.stdout


def test_version():
    result = CliRunner().invoke(cli.app, ["--version"])
    assert result.exit_code == 0
    assert px.__version__ in result.stdout


def test_the_curve_is_the_papers():
    x, noise = 0.1, 0.02
    expected = x + 0.3 * np.sin(2 * np.pi * 0.12) + 0.3 * np.sin(4 * np.pi * 0.12) + noise
    assert demo.curve(x, noise) == pytest.approx(expected)
    x, y = demo.curve_data(4000, key=0)
    assert 0 <= x.min() < 0.01
    assert 0.49 < x.max() <= 0.5
    assert np.std(y - demo.curve(x[:, 0])) == pytest.approx(0.063, abs=0.005)
