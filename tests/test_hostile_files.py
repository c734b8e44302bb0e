"""Files that somebody made on purpose: NaN weights, JSON of no sense, cards, counts, formulas."""

import json
import time

import jax.numpy as jnp
import numpy as np
import pytest
from typer.testing import CliRunner

import posterax as px
from posterax._util import memory
from posterax.cli import app
from posterax.commands.writing import safe_frame, safe_text
from posterax.files import container, headers
from tests.data.make_format1 import HERE
from tests.test_files_mutated import signed

pytestmark = pytest.mark.usefixtures("hasty_module")


def edited(path, name, change):
    """A file like one of the first format, changed, with a digest that is right."""
    arrays, header = container.read(HERE / f"{name}.px")
    change(arrays, header)
    path.write_bytes(signed(arrays, json.dumps(header)))
    return path


def refused(path, match, load=px.load):
    began = time.process_time()
    with pytest.raises(px.CheckpointError, match=match) as error:
        load(path)
    assert time.process_time() - began < 5
    assert str(error.value).startswith(f"{path}: ")
    assert len(str(error.value).splitlines()) == 1


# -- numbers that are none

PARTS = [
    ("MeanFieldGaussian", "mu/"), ("MeanFieldGaussian", "rho/"), ("Draws", "draws/"),
    ("Point", "point/"), ("GaussianMixture", "rho/"), ("LowRankGaussian", "array/factor"),
    ("LowRankGaussian", "sigma/"), ("FullGaussian", "array/cholesky"), ("frozen", "fixed/"),
    ("LaplaceGaussian", "array/blocks"), ("DropoutPosterior", "array/rates"),
    ("Factorized", "variational.logits/"), ("WeightedDraws", "array/log_weights"),
    ("Enumerated", "array/log_probs"), ("per_weight", "prior.loc/"), ("per_weight", "prior.scale/"),
    ("pruned", "mu/"), ("BayesianRegressor", "mu/"), ("BayesianClassifier", "rho/"),
    ("BayesianRegressor", "estimator/x_shift"), ("BayesianRegressor", "estimator/y_scale"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "part"), PARTS)
def test_weights_that_are_no_numbers_are_refused_by_name_and_place(name, part, tmp_path):
    def change(arrays, _):
        one = min(n for n in arrays if n.startswith(part))
        arrays[one] = np.array(arrays[one])
        arrays[one].flat[-1] = np.nan if len(name) % 2 else np.inf

    finite = r"is (nan|inf) where a finite number belongs|must be finite"
    place = part.removeprefix("estimator/")
    refused(edited(tmp_path / "a.px", name, change), f"{place}.*({finite})")


@pytest.mark.parametrize("name", ["LinearThompson", "Thompson", "refitted"])
def test_an_agent_of_nan_is_refused(name, tmp_path):
    def change(arrays, _):
        floats = [n for n in sorted(arrays) if arrays[n].dtype.kind == "f" and arrays[n].size]
        one = next(n for n in floats if n.startswith(("agent/", "mu/")))
        arrays[one] = np.full_like(arrays[one], np.nan)

    refused(edited(tmp_path / "a.px", name, change), "is nan where", px.bandits.load)


def test_what_becomes_infinite_in_float32_is_refused(tmp_path):
    def change(arrays, _):
        one = min(n for n in arrays if n.startswith("mu/"))
        arrays[one] = np.full(arrays[one].shape, 1e300)

    refused(edited(tmp_path / "a.px", "MeanFieldGaussian", change), r"mu/0000.* is inf where")


@pytest.mark.parametrize("part", ["prior", "likelihood"])
@pytest.mark.parametrize("wrong", [np.nan, np.inf, [1.0, np.nan]])
def test_priors_and_likelihoods_of_no_numbers_are_refused(part, wrong, tmp_path):
    def change(_, header):
        arguments = header["model"][part]["arguments"]
        name = next(n for n, value in arguments.items() if isinstance(value, float))
        arguments[name] = wrong

    path = edited(tmp_path / "a.px", "MeanFieldGaussian", change)
    refused(path, f"of a {part}.* where a finite number belongs")


def test_what_may_be_infinite_stays(tmp_path):
    """The course of a fit, statistics of chains, logarithms of 0."""

    def change(arrays, _):
        for name in arrays:
            if name.startswith(("history/", "array/stats", "array/khat")):
                arrays[name] = np.array(arrays[name])
                if arrays[name].dtype.kind == "f":
                    arrays[name].flat[0] = -np.inf if "log_weight" in name else np.nan
        arrays["array/log_weights"] = np.array(arrays["array/log_weights"])
        arrays["array/log_weights"].flat[0] = -np.inf

    loaded = px.load(edited(tmp_path / "a.px", "WeightedDraws", change))
    assert loaded.particles(None, None).weights[0] == 0


def test_a_network_of_ones_own_may_have_a_mask_of_infinities(tmp_path):
    mask = jnp.array([[0.0, -jnp.inf]])
    network = {"w": jnp.ones((2, 1)), "mask": mask}, lambda p, x: jnp.exp(x + p["mask"]) @ p["w"]
    model = px.Model(network, likelihood=px.likelihoods.Gaussian(0.1), where="w", rest="frozen")
    posterior = px.prior_posterior(model, np.zeros((1, 2), "float32"))
    posterior.save(tmp_path / "a.px")
    again = px.load(tmp_path / "a.px", model=model)
    assert np.isfinite(again.predict(np.zeros((1, 2), "float32"), samples=2).mean).all()


# -- arrays that do not belong together


LOGITS = "variational.logits/0001/network.layers.0.bias"


def set_array(name, value):
    return lambda arrays, _: arrays.update({name: np.array(value(arrays[name]), order="C")})


@pytest.mark.parametrize(
    ("name", "change", "match"),
    [
        ("LowRankGaussian", set_array("array/factor", lambda a: a.astype("int32")), "type int32"),
        ("WeightedDraws", set_array("array/log_weights", lambda a: a[:1]), "draws, others of"),
        ("WeightedDraws", set_array("array/log_weights", lambda a: a - np.inf), "all 0"),
        ("WeightedDraws", set_array("array/khat", lambda a: a[None]), "khat must be one number"),
        ("Factorized", set_array(LOGITS, lambda a: np.repeat(a, 3, 0)), "inconsistent"),
        ("Draws", set_array("array/stats.lp", lambda a: a[:, :2]), "draws, others of"),
        ("DropoutPosterior", set_array("array/rates.layers.1.weight", lambda a: a + 1), "0 and 1"),
        ("DropoutPosterior", set_array("array/units.layers.1.weight", lambda a: a - 1), "units"),
    ],
)  # fmt: skip
def test_parts_that_do_not_fit(name, change, match, tmp_path):
    refused(edited(tmp_path / "a.px", name, change), match)


# -- JSON

TEXTS = {
    "brackets": ("[" * 200_000, "nested deeper"),
    "objects": ('{"a":' * 200_000, "nested deeper"),
    "deep": ("[" * 101 + "]" * 101, "nested deeper"),
    "a long number": ('{"a": 1' + "0" * 5000 + "}", "a number of 5,001 digits"),
    "an endless one": ('{"a": 1e999}', "no number that can be held"),
    "twice": ('{"a": 1, "a": 2}', "'a' is there twice"),
    "half a character": (r'{"a": "\ud800"}', "surrogates not allowed"),
    "many": ("[" + "0," * 10**6 + "0]", "entries, more than"),
    "long": ('"' + "a" * 2**24 + '"', "characters and"),
}


@pytest.mark.parametrize(("text", "match"), TEXTS.values(), ids=TEXTS)
def test_json_that_is_not_believed(text, match):
    with pytest.raises(ValueError, match=match):
        headers.parse(text)


def test_json_that_is():
    assert headers.parse(r'{"a": [1, -2.5e3, "\ud83d\ude00"], "b": NaN}')["a"][2] == "\U0001f600"
    with pytest.raises(ValueError, match="NaN is not JSON"):
        headers.parse('{"a": NaN}', finite=True)


GOOD = {"format": "posterax recalibration 1", "kind": "Spread", "values": {"value": 1.5, "n": 9}}
KNOTS = {"places": [0, 0.5, 1], "levels": [0, 0.4, 1], "n": 9}
RECALIBRATIONS = {
    "null": "null",
    "settings": '{"settings": null}',
    "scores": '{"scores": 3}',
    "no kind": {"kind": ...},
    "kind is null": {"kind": None},
    "kind is a list": {"kind": ["Spread"]},
    "an abstract kind": {"kind": "Conformal"},
    "no values": {"values": ...},
    "values are a list": {"values": [1.5, 9]},
    "other values": {"values": {"os": 1}},
    "empty": {"values": {"value": [], "n": 9}},
    "ragged": {"values": {"value": [[1.0, 2.0], [3.0]], "n": 9}},
    "words": {"values": {"value": "1.5", "n": 9}},
    "truths": {"values": {"value": True, "n": 9}},
    "infinite": {"values": {"value": "inf", "n": 9}},
    "n is huge": {"values": {"value": 1.5, "n": 10**30}},
    "no knots": {"kind": "Isotonic", "values": KNOTS | {"places": []}},
    "one level": {"kind": "Isotonic", "values": KNOTS | {"levels": 1.0, "places": 0.0}},
    "brackets": "[" * 200_000,
    "NaN": json.dumps(GOOD | {"values": {"value": np.nan, "n": 9}}),
    "twice": json.dumps(GOOD)[:-1] + ', "kind": "Spread"}',
    "half a character": json.dumps(GOOD | {"kind": "\ud800"}),
}


@pytest.mark.parametrize("content", RECALIBRATIONS.values(), ids=RECALIBRATIONS)
def test_recalibrations_of_no_sense(content, tmp_path):
    if isinstance(content, dict):
        content = json.dumps({k: v for k, v in (GOOD | content).items() if v is not ...})
    (tmp_path / "it.json").write_text(content)
    refused(tmp_path / "it.json", ".", px.recalibrate.load)


def test_a_recalibration_of_whole_numbers_and_one_of_an_infinite_score(tmp_path):
    (tmp_path / "it.json").write_text(json.dumps(GOOD | {"values": {"value": [2, 1], "n": 9}}))
    assert px.recalibrate.load(tmp_path / "it.json").value == (2.0, 1.0)
    before = px.recalibrate.Temperature(1.5, 9, before=np.inf, after=0.3)
    before.save(tmp_path / "it.json")
    assert repr(px.recalibrate.load(tmp_path / "it.json")) == repr(before)  # "inf" was a word


def test_a_directory_and_a_file_too_long(tmp_path, monkeypatch):
    refused(tmp_path, "is a directory", px.recalibrate.load)
    monkeypatch.setattr(headers, "CHARACTERS", 2)
    (tmp_path / "it.json").write_text("[" * 9)
    refused(tmp_path / "it.json", "more than 8 bytes", px.recalibrate.load)


# -- cards

CARDS = {
    "no card": 3,
    "settings": {"settings": None},
    "weight": {"settings": {"weight": [1]}},
    "scores": {"scores": 3},
    "a score": {"scores": {"nll": 3}},
    "two numbers": {"scores": {"nll": [1, 2]}},
    "words": {"scores": {"nll": ["a", "b", "c"]}},
    "baseline": {"scores": {"nll": [1, 2, 3]}, "baseline": {"nll": [1]}},
    "chance": {"chance": []},
    "columns": {"columns": [1]},
    "names": {"columns": [{"name": 3}]},
    "target": {"target": ["y"]},
    "held out": {"held_out": "all"},
}


@pytest.mark.parametrize("card", CARDS.values(), ids=CARDS)
def test_cards_of_no_sense(card, tmp_path):
    def change(_, header):
        header["estimator"]["card"] = card

    path = edited(tmp_path / "a.px", "columns", change)
    refused(path, "card|baseline")
    shown = CliRunner().invoke(app, ["explain", str(path)])
    assert shown.exit_code == 1
    assert isinstance(shown.exception, SystemExit)


@pytest.mark.parametrize("entry", ["estimator", "agent"])
def test_explain_refuses_an_entry_that_is_no_dictionary(entry, tmp_path):
    def change(_, header):
        header.update({entry: [1], "model": header["model"] | {"network": None}})

    path = edited(tmp_path / "a.px", "columns", change)
    shown = CliRunner().invoke(app, ["explain", str(path)])
    assert shown.exit_code == 1
    assert isinstance(shown.exception, SystemExit)
    assert "damaged or inconsistent" in shown.output or "must be dict" in shown.output


# -- counts


def test_counts_of_a_file_are_bounded(tmp_path):
    def estimator(_, header):
        header["estimator"]["params"]["samples"] = {"value": 10**9}

    def agent(_, header):
        header["agent"]["policy"]["with"]["samples"] = 10**9

    refused(edited(tmp_path / "a.px", "BayesianRegressor", estimator), "its samples would be 1,000")
    path = edited(tmp_path / "b.px", "Thompson", agent)
    refused(path, "its samples would be 2,000", px.bandits.load)


def test_a_file_larger_than_memory_is_not_read(tmp_path):
    with (tmp_path / "a.px").open("wb") as file:
        file.truncate(2**40)  # which takes no room on the disk
    with pytest.raises(MemoryError, match=r"reading .*a.px needs 1,099,511,627,776 bytes"):
        px.load(tmp_path / "a.px")


def test_the_command_says_what_is_large(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: 2**30)
    table = tmp_path / "rows.csv"
    table.write_text("a,b\n1,2\n3,4\n")
    asked = ["predict", str(HERE / "BayesianRegressor.px"), str(table), "--samples", str(10**9)]
    shown = CliRunner().invoke(app, asked)
    assert shown.exit_code == 1
    assert "samples=1,000,000,000 needs" in shown.output


# -- formulas

RUN = [
    "=1+1", "+cmd|' /C calc'!A0", "-2+3+cmd", "@SUM(A1)", "\t=1", "\r=1", " =1", "\n=1", "\n\t =1",
    "\u00a0=1", "\u200b=1", "\ufeff=1", "\u2060@x", "\u202e=1", "\uff1d1+1", "\uff0b1+x", "\uff0dx",
    "\uff20x", "\ufe66x", "\ufe6bx", "\x00=1", "\u3000=1", "\u2028=1", "\u115f=1", "\u2800=1",
    "\ufe0f=1", "\u034f=1", "\x0b=1", "\x1f-x",
]  # fmt: skip
HARMLESS = [
    "-1.5",
    "+3",
    "-1e-5",
    "-1,5",
    "+41 31",
    "plain",
    "a=b",
    "1+1",
    "",
    " ",
    "'=1",
    "é",
    "—",
]


@pytest.mark.parametrize("text", RUN)
def test_formulas_are_defused_wherever_they_hide(text):
    assert safe_text(text) == "'" + text


@pytest.mark.parametrize("text", [*HARMLESS, -1.5, None, 3])
def test_other_cells_stay(text):
    assert safe_text(text) is text


def test_tables_are_written_without_formulas():
    import pandas as pd

    frame = safe_frame(pd.DataFrame({"\u00a0=A1": ["\n=b", None], "x": [-1.5, 2.0]}))
    assert frame.columns[0] == "'\u00a0=A1"
    assert frame.iloc[0].tolist() == ["'\n=b", -1.5]
