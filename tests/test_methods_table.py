"""One table of methods by name, and whatever has names of methods has them from there."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

import posterax as px
from benchmarks import methods
from posterax import _methods, commands
from posterax.files import named
from posterax.infer import Method
from posterax.tables.settings import make_method

# what the command line has made of these names from the start; the rest are the classes' defaults
OWN_SETTINGS = {
    "bayes_by_backprop": px.DeepEnsemble(
        6,
        px.BayesByBackprop(
            learning_rate=1e-2, initial_rho=-4.0, rho_rate=1.0, schedule="cosine",
            estimator="weight",
        ),
        tuple(np.geomspace(0.7, 0.1, 6).tolist()),
    ),
    "deep_ensemble": px.DeepEnsemble(6, learning_rate=1e-2),
    "mc_dropout": px.MCDropout(learning_rate=1e-2),
    "maximum_a_posteriori": px.MaximumAPosteriori(1e-2),
    "maximum_likelihood": px.MaximumLikelihood(1e-2),
}  # fmt: skip


def test_every_method_has_a_row_and_the_page_is_as_measured():
    public = [getattr(px, name) for name in px.__all__]
    known = {type(row.method) for row in methods.TABLE.values()}
    assert known == {m for m in public if isinstance(m, type) and issubclass(m, Method)}
    result = json.loads(methods.RESULT.read_text())
    assert list(result["methods"]) == list(methods.TABLE)
    assert methods.PAGE.read_text() == methods.page(result)
    for row in methods.TABLE.values():
        assert (Path(methods.PAGE).parent / f"{row.page}.md").exists()


def test_the_table_has_every_method_and_no_other():
    public = {name: getattr(px, name) for name in px.__all__}
    classes = {n for n, c in public.items() if isinstance(c, type) and issubclass(c, Method)}
    assert set(_methods.CLASSES) == classes
    assert named.METHODS.keys() == classes
    assert set(_methods.SHORT_NAMES.values()) <= _methods.METHODS.keys()
    assert not _methods.SHORT_NAMES.keys() & _methods.METHODS.keys()
    assert set(commands.METHODS) <= {_methods.AUTO, *_methods.ESTIMATOR_METHODS}
    page = (Path(methods.PAGE).parents[1] / "tables.md").read_text()
    listed = re.search(r"Names are (.*?);", page, re.DOTALL)[1]
    assert re.findall("`(.*?)`", listed) == list(_methods.ESTIMATOR_METHODS)


@pytest.mark.parametrize("name", _methods.ESTIMATOR_METHODS)
def test_a_name_is_the_method_with_the_settings_for_tables(name):
    regressor = px.BayesianRegressor()
    made = make_method(name, None, regressor.members, regressor.temperature)
    kind = getattr(px, _methods.METHODS[name][0])
    assert made == (OWN_SETTINGS[name] if name in OWN_SETTINGS else kind())


def test_short_names_and_learning_rates():
    assert make_method("MAP", 0.1, 6, 1.0) == px.MaximumAPosteriori(0.1)
    assert make_method("Dropout", None, 6, 1.0) == OWN_SETTINGS["mc_dropout"]
    assert make_method("laplace", 0.1, 6, 1.0) == px.Laplace(learning_rate=0.1)
    assert make_method("nuts", 0.1, 6, 1.0) == px.NUTS()


@pytest.mark.parametrize("name", [*_methods.NOT_FOR_TABLES, "bayes", "", 3, None, ["nuts"]])
def test_a_name_without_a_meaning_for_tables_is_refused_with_those_that_have_one(name):
    with pytest.raises(ValueError, match=r"method must be one of .*'swag'.* got"):
        px.BayesianRegressor(name).fit(np.zeros((4, 1)), np.arange(4.0))


def test_swag_by_name_is_swag():
    x = np.linspace(-1, 1, 30)[:, None]
    options = {"hidden_layer_sizes": 4, "steps": 30, "random_state": 0, "verbose": False}
    by_name, by_object = (
        px.BayesianRegressor(m, **options).fit(x, x[:, 0]).predict(x) for m in ("swag", px.SWAG())
    )
    np.testing.assert_array_equal(by_name, by_object)
