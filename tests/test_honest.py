"""The study of methods beside the truth: its splits, measures, budgets and summaries."""

import math

import numpy as np
import pytest

from benchmarks.honest import contenders, data, measure, report, summary
from benchmarks.honest.contenders import Cell


def moments(mean, epistemic, total):
    return {"mean": np.array(mean), "epistemic": np.array(epistemic), "total": np.array(total)}


def test_means_count_in_deviations_of_the_reference_and_deviations_by_their_ratio():
    reference = moments([0.0, 0.0], [1.0, 4.0], [4.0, 16.0])
    own = moments([2.0, 4.0], [4.0, 16.0], [5.0, 20.0])
    found = measure.distance(own, reference)
    assert found["mean"] == pytest.approx(1)
    assert found["log_ratio"] == pytest.approx(math.log(2))
    assert found["log_ratio_rms"] == pytest.approx(math.log(2))


def test_a_single_network_has_no_ratio():
    reference = moments([0.0], [1.0], [1.0])
    assert measure.distance(moments([1.0], [0.0], [1.0]), reference) == {"mean": 1.0}


def test_classes_count_by_total_variation_and_nats():
    reference = moments([[1.0, 0.0], [0.5, 0.5]], [0.1, 0.3], [0.2, 0.7])
    own = moments([[0.0, 1.0], [0.5, 0.5]], [0.0, 0.2], [0.2, 0.7])
    found = measure.distance(own, reference)
    assert found["variation"] == pytest.approx(0.5)
    assert found["information"] == pytest.approx(0.1)
    assert found["information_off"] == pytest.approx(-0.1)


def test_standardised_by_the_rows_that_are_fitted():
    values = np.array([[0.0, 5.0], [2.0, 5.0], [9.0, 5.0]])
    np.testing.assert_allclose(
        data.standardised(values, np.array([0, 1])), [[-1, 0], [1, 0], [8, 0]]
    )


@pytest.mark.parametrize("name", ["breast_cancer", "digits", "curve_gap"])
def test_parts_of_a_split_share_no_row(name):
    split = data.load(name, 1)
    assert len(split.x) == len(split.y) <= data.MOST_ROWS
    assert len(split.x_test) == len(split.y_test)
    seen = [{row.tobytes() for row in x} for x in (split.x, split.x_val, split.x_test)]
    shared = (seen[0] & seen[1]) | (seen[0] & seen[2]) | (seen[1] & seen[2])
    assert not shared
    assert not np.array_equal(split.x, data.load(name, 2).x)


def test_an_ensemble_takes_the_steps_of_the_single_fit():
    single = Cell("boston", "unit", "BayesByBackprop")
    found = {single.key: {"steps": 3968}}
    assert contenders.budget(single, {}) == {}
    assert contenders.budget(single._replace(method="ensemble"), found) == {"steps": 3968}
    assert contenders.budget(single._replace(method="long"), found) == {"steps": 4 * 3968}
    assert contenders.budget(single._replace(temperature=0.1), found) == {
        "steps": contenders.COLD_STEPS
    }


def test_no_cell_twice():
    phases = ("reference", "methods", "sampler", "length", "cold", "settled")
    keys = [c.key for name in data.NAMES for p in phases for c in contenders.cells(name, p)]
    assert len(keys) == len(set(keys))


def fits(nlls):
    """Bayes by Backprop on three splits of Boston housing, by temperature."""
    made = {}
    for t, values in nlls.items():
        for i, nll in enumerate(values):
            cell = Cell("boston", "unit", "BayesByBackprop", i, t)
            scores = {"nll": nll, "error": 0.0, "calibration": 0.0}
            made[cell.key] = cell._asdict() | {"validation": scores, "test": scores}
    return made


def test_the_temperature_is_chosen_where_all_were_tried():
    found = fits({0.01: [3.0], 0.03: [2.0], 0.1: [0.5], 0.3: [1.0], 1.0: [2.0]})
    assert summary.best_temperature(found, "boston", "unit", "BayesByBackprop") == 0.1
    del found[Cell("boston", "unit", "BayesByBackprop", 0, 0.3).key]
    assert summary.best_temperature(found, "boston", "unit", "BayesByBackprop") is None


def test_means_and_spreads():
    found = fits({1.0: [1.0, 2.0, 3.0]})
    told = summary.over_splits(found, "test.nll", data="boston", method="BayesByBackprop")
    assert told == (2.0, 1.0, 3)
    assert told.text() == "2.00 ± 1.00"
    assert summary.spread([-0.5]).text() == "−0.50"
    assert summary.spread([]).text() == "–"


def test_the_page_is_as_measured():
    import json

    found = json.loads(report.RESULTS.read_text())
    assert report.PAGE.read_text() == report.page(found)
