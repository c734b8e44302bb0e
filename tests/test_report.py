"""The report: a page that is whole, safe, the same every time, and says what the numbers say."""

import dataclasses
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import optax
import pandas as pd
import pytest

import posterax as px
from posterax import report
from posterax._util import writing
from posterax.diagnostics import chance as _chance
from posterax.diagnostics.course import course_of, temperatures
from posterax.posteriors import Record
from posterax.report import build, checks, classes, data, pictures, regression, scores, write_report
from posterax.report.page import Picture, Section
from posterax.report.settled import training
from posterax.report.subject import make_subject
from posterax.report.verdict import worst
from posterax.report.words import cut, fixed, show
from tests import report_pages as made
from tests.report_pages import HOSTILE, Page

pytestmark = pytest.mark.usefixtures("hasty_module")

SECTIONS = [
    "data", "scores", "calibration", "uncertainty", "rows", "drives", "diagnostics", "pruning",
    "settings",
]  # fmt: skip


@pytest.fixture(scope="module")
def fitted():
    """A regressor of columns with hostile names, and rows held out."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(120, 5)), columns=HOSTILE)
    y = pd.Series(3 * X.iloc[:, 0] + rng.normal(size=120) / 3, name="<i>price</i> $1")
    model = px.BayesianRegressor(
        members=1, steps=150, hidden_layer_sizes=4, samples=8, random_state=0
    )
    model.fit(X[:80], y[:80])
    return model, X[:80], y[:80], (X[80:], y[80:])


@pytest.fixture(scope="module")
def pages(fitted, tmp_path_factory):
    model, X, y, held_out = fitted
    path = tmp_path_factory.mktemp("report") / "new" / "r.html"
    assert write_report(path, model, X, y, held_out=held_out, title=HOSTILE[0]) == path
    assert [p.name for p in path.parent.iterdir()] == ["r.html"]
    return {
        "fitted": path.read_text(encoding="utf-8"),
        "numbers": made.page(made.numbers()),
        "labels": made.page(made.labels()),
    }


@pytest.mark.parametrize("name", ["fitted", "numbers", "labels"])
def test_page_is_whole_and_asks_for_nothing(pages, name):
    text = pages[name]
    page = Page(text)
    assert page.wrong == []
    # what drives the predictions is told of an estimator
    right = [section for section in SECTIONS if section != "drives" or name == "fitted"]
    assert [attrs["id"] for tag, attrs in page.tags if tag == "section" and "id" in attrs] == right
    assert len(page.ids) == len(set(page.ids))
    named = set(page.ids)
    for _, attrs in page.tags:
        for where in re.findall(
            r"#([\w-]+)", f"{attrs.get('href', '')} {attrs.get('clip-path', '')}"
        ):
            assert where in named
        assert set(attrs.get("aria-labelledby", "").split()) <= named
        assert not any(key.startswith("on") or key == "src" for key in attrs)
        assert attrs.get("href", "#")[:5] in ("data:", *(f"#{i}"[:5] for i in named), "#")
    (policy,) = [a["content"] for t, a in page.tags if a.get("http-equiv")]
    assert policy == "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    assert "url(http" not in text
    assert "@import" not in text
    assert len(text.encode()) < 1_000_000
    words = " ".join(page.text.values())
    assert not re.search(r"\b(nan|inf|None|Markup)\b", words)


@pytest.mark.parametrize("name", ["fitted", "numbers", "labels"])
def test_foreign_text_stays_text(pages, name):
    page = Page(pages[name])
    known = (
        "html head meta title link style body header p span h1 h2 bdi div section ul li a nav "
        "main figure figcaption svg desc g path defs use clippath rect text pattern table thead "
        "tbody tr th td details summary pre code footer"
    )
    assert {tag for tag, _ in page.tags} <= set(known.split())
    words = " ".join(page.text.values())
    assert "<script>alert(1)</script>" in words
    assert "שלום" in words
    assert "\u202e" not in pages[name]
    assert "x" * 200 not in words


def test_the_same_arguments_give_the_same_bytes(pages):
    assert made.page(made.numbers()) == pages["numbers"]


def test_pictures_are_for_eyes_and_ears_in_both_themes(pages):
    for text, least in ((pages["fitted"], 10), (pages["labels"], 6)):
        drawn = re.findall(r"<svg.*?</svg>", text, re.DOTALL)
        assert len(drawn) >= least
        for svg in drawn:
            assert re.match(r'<svg class="picture" role="img" aria-labelledby="(\w+)-t \1-d"', svg)
            assert re.search(r"<title id=[^>]+>[^<]+</title><desc id=[^>]+>[^<]+</desc>", svg)
            # every colour is a variable of the theme
            inside = " ".join(re.findall(r"<[^>]+>", svg))
            assert re.findall(r"#[0-9a-f]{6}\b|#[0-9a-f]{3}\b|rgb", inside, re.IGNORECASE) == []


def test_scores_are_those_of_numpy(pages, fitted):
    model, _, y, (X, true) = fitted
    rows = {row["Score"]: row for row in Page(pages["fitted"]).table("scores", "Score")}
    mean, (low, high) = model.predict(X), model.predict_interval(X, 0.9)
    rmse = np.sqrt(np.mean((true - mean) ** 2))
    plain = np.sqrt(np.mean((true - y.mean()) ** 2))
    nll = -model.predictive(X).log_prob(true).mean()
    assert rows["RMSE"]["Value"] == f"{rmse:.2f}"
    assert rows["RMSE"]["Baseline"] == f"{plain:.2f}"
    assert (
        rows["Coverage of 90 %"]["Value"]
        == f"{100 * np.mean((low <= true) & (true <= high)):.1f} %"
    )
    assert rows["NLL"]["Value"] == f"{nll:.3f}".replace("-", "−")
    assert rows["R²"]["Value"] == f"{1 - rmse**2 / np.var(true):.3f}"
    least, most = map(float, rows["RMSE"]["95 % interval"].split(" to "))
    assert least < rmse < most


def test_errors_are_of_the_mean_and_absolute_ones_of_the_median():
    """As ``px.metrics`` has them: each of the point that makes it least."""
    from sklearn.metrics import mean_absolute_error, root_mean_squared_error

    subject = made.counts(60)
    true, mean = subject.y, subject.predictive.mean
    median = subject.predictive.law.median()
    assert np.abs(mean - median).max() > 0.3
    rows = {row["Score"]: row for row in Page(made.page(subject)).table("scores", "Score")}
    assert rows["RMSE"]["Value"] == f"{root_mean_squared_error(true, mean):.2f}"
    assert rows["MAE"]["Value"] == f"{mean_absolute_error(true, median):.2f}"


def test_without_inputs_the_command_line_and_the_report_know_the_same():
    from posterax.commands.folds import Study
    from posterax.commands.scoring import score

    y, new = np.array(list("aaaaabbc")), np.array(list("abca"))
    place = lambda labels: np.searchsorted(["a", "b", "c"], labels)  # noqa: E731
    subject = made.labels(4, classes=("a", "b", "c"))
    subject = dataclasses.replace(subject, y=place(new), train_y=place(y))
    by_hand = -np.log(np.array([6, 3, 2, 6]) / 11).mean()  # counts 5, 2, 1 and one more each
    given = SimpleNamespace(
        classes_=np.array(["a", "b", "c"]), predict_proba=lambda X: subject.predictive.mean
    )
    shown = score(given, None, new, train_y=y)
    assert shown["nll"].baseline == pytest.approx(by_hand)
    page = scores.measure(subject, None)
    assert page["nll"].baseline == pytest.approx(by_hand)
    # and every other number of the two is the same, intervals included
    assert page["brier"] == shown["brier"]
    assert page["nll"][:3] == pytest.approx(shown["nll"][:3], nan_ok=True)
    assert 1 - page["accuracy"].baseline == pytest.approx(shown["error"].baseline)
    study = Study(pd.DataFrame({"x": range(12)}), np.r_[y, new], None, "classification", folds=2)
    study.parts = [(np.arange(8), np.arange(8, 12))]
    assert study.baseline().scores["nll"] == pytest.approx([by_hand])


def test_scores_of_classes_are_those_of_scikit_learn(pages):
    from sklearn.metrics import accuracy_score, confusion_matrix, log_loss

    subject = made.labels()
    rows = {row["Score"]: row for row in Page(pages["labels"]).table("scores", "Score")}
    p, true = subject.predictive.mean, subject.y
    right = accuracy_score(true, p.argmax(-1))
    assert rows["Accuracy"]["Value"] == f"{100 * right:.1f} %"
    assert rows["NLL"]["Value"] == f"{log_loss(true, p):.3f}"
    assert rows["Calibration error"]["Value"] == (
        f"{px.metrics.expected_calibration_error(p, true):.3f}"
    )
    common = np.bincount(true).argmax()
    assert rows["Accuracy"]["Baseline"] == f"{100 * np.mean(true == common):.1f} %"
    cells = [list(r.values())[1:-1] for r in Page(pages["labels"]).table("uncertainty", "Found")]
    assert np.array_equal(np.array(cells, int), confusion_matrix(true, p.argmax(-1)))


def test_a_method_is_described_as_data(fitted):
    import json

    from posterax import infer
    from posterax.infer.describe import describe_method

    settings = fitted[0].posterior_.record.settings
    assert settings["method_settings"]["name"] == "BayesByBackprop"
    assert temperatures(settings) == (0.7,)
    assert temperatures({"method": settings["method"]}) == ()  # a file of before says nothing
    ensemble = px.DeepEnsemble(members=2, inside=px.BayesByBackprop(), temperatures=(0.7, 0.1))
    described = describe_method(ensemble)
    assert described["arguments"]["inside"]["name"] == "BayesByBackprop"
    assert temperatures({"method_settings": json.loads(json.dumps(described))}) == (0.7, 0.1)
    for name in ("NUTS", "Laplace", "IVON", "SWAG", "SMC", "Metropolis", "MCDropout"):
        method = getattr(infer, name)()
        assert json.loads(json.dumps(describe_method(method)))["name"] == name
        assert temperatures({"method_settings": describe_method(method)})[0] == 1.0
    own = px.BayesByBackprop(optimizer=optax.sgd(0.1))
    text = describe_method(own)["arguments"]["optimizer"]
    assert text.startswith("GradientTransformation")
    assert "0x" not in text  # an address would make every file another one


def test_the_head_says_how_the_kl_was_weighed(pages):
    assert (
        "by Bayes by Backprop with its KL weighed by 0.7, predicts"
        in Page(pages["fitted"]).text[""]
    )


def test_the_least_certain_rows_come_first(pages, fitted):
    model, _, _, (X, _) = fitted
    std = pd.Series(model.predict(X, return_std=True)[1], index=X.index)
    tables = [rows for where, rows in Page(pages["fitted"]).tables if where == "rows"]
    numbers_of = [[int(row[0]) for row in rows[1:]] for rows in tables]
    assert numbers_of[0] == std.sort_values(ascending=False).index[:10].tolist()
    assert numbers_of[1] == std.sort_values().index[:10].tolist()


def test_bootstrap_intervals_shrink_with_the_root_of_the_rows(rng):
    widths = []
    for n in (100, 1600):
        part = (10 + rng.normal(size=n)) / 2**0.5  # of deviations 10 ± 1
        score = px.metrics.evaluate(made.Gaussians(np.zeros(n), part, part), np.zeros(n))["width"]
        widths.append((score.high - score.low) / (2 * 1.6448536))
    assert widths[0] == pytest.approx(2 * 1.96 / 10, rel=0.2)
    assert widths[0] / widths[1] == pytest.approx(4, rel=0.25)


@pytest.fixture
def no_pictures(monkeypatch):
    """Words alone, which is quicker."""

    def draw(*_, **words):
        return Picture("", " ".join(map(str, words.values())))

    for module in (checks, classes, data, regression):
        monkeypatch.setattr(module, "draw", draw)


def judged(subject, given=None, section=None):
    """The verdict, or what it says of one section."""
    found = build.judged(subject, scores.measure(subject, given), {})
    return [finding for finding in found if section in (None, finding.section)]


@pytest.mark.usefixtures("no_pictures")
def test_verdicts_of_numbers():
    good = judged(made.numbers())
    assert worst(good) == "good"
    assert "clearly better than the baseline" in good[0].text
    # three deviations off: worse than knowing nothing, and outside most intervals
    bad = judged(made.numbers(bias=9.0))
    assert worst(bad) == "bad"
    assert "knows nothing of the inputs, predicts better" in bad[0].text
    narrow = judged(made.numbers(narrow=0.6))
    assert "too narrow" in narrow[0].text
    assert narrow[0].level in ("care", "bad")
    wide = judged(made.numbers(narrow=2.5))
    assert "too wide" in wide[0].text
    alone = judged(made.numbers(held_out=False))
    assert worst(alone) == "care"
    assert "training rows, which flatters" in alone[0].text


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("words", "level"),
    [("misses are one-sided", "care"), ("quantiles are off", "bad"),
     ("further from the truth than the training mean", "bad"), ("too high by 0.", "care")],
)  # fmt: skip
def test_a_verdict_looks_at_more_than_likelihood_and_coverage(words, level):
    rng = np.random.default_rng(0)
    n = 400
    mean = 3 * rng.normal(size=n)
    predictive, y = {
        # all misses above, 90 % of truths inside
        "misses are one-sided": (
            made.Gaussians(mean, np.full(n, 0.3), np.full(n, 0.95)),
            mean - 1 + rng.exponential(size=n),
        ),
        # most of the targets are the same number, and 90 % lie inside
        "quantiles are off": (
            made.Gaussians(np.zeros(n), np.full(n, 0.3), np.full(n, 1.0)),
            np.where(rng.random(n) < 0.6, 0, 1.49 * rng.normal(size=n)),
        ),
        "further from the truth than the training mean": (
            made.Gaussians(-mean, np.full(n, 0.3), np.full(n, 6.0)), mean + rng.normal(size=n)
        ),
        "too high by 0.": (
            made.Gaussians(mean + 0.5, np.full(n, 0.3), np.full(n, 1.0)), mean + rng.normal(size=n)
        ),
    }[words]  # fmt: skip
    found = judged(made.subject_of(predictive, y, y, pd.DataFrame({"a": mean})))
    assert [f.level for f in found if words in f.text] == [level]


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("make", [made.numbers, made.counts])
def test_predictions_from_the_truth_are_seldom_called_anything_but_good(make):
    """Coverage is off by chance in 5 % of tables; the other looks add next to nothing."""
    new = ("one-sided", "quantiles are off", "further from", "on average, which")
    texts = [f.text for seed in range(60) for f in judged(make(150, seed=seed))]
    assert sum(any(word in text for word in new) for text in texts) <= 1


@pytest.mark.usefixtures("no_pictures")
def test_verdicts_of_classes():
    def found(**how):
        subject = made.labels(400, **how)
        return judged(subject, section="calibration")[0]

    assert found().level == "good"
    # off both ways: no direction is named
    p = np.tile([0.75, 0.25], (400, 1))
    p[200:] = [0.55, 0.45]
    y = np.r_[np.arange(200) % 20 >= 11, np.arange(200) % 20 >= 15].astype(int)
    x = pd.DataFrame({"a": np.zeros(400)})
    subject = made.subject_of(made.Classes(p), y, y, x, classes=["a", "b"])
    both = judged(subject, section="calibration")[0]
    assert "of some rows and not" in both.text
    sure = found(power=4.0)
    assert "too sure" in sure.text
    assert sure.level in ("care", "bad")
    assert "not sure enough" in found(power=0.4).text


@pytest.mark.usefixtures("no_pictures")
def test_the_verdict_is_in_words_not_in_colour_alone(pages):
    page = Page(made.page(made.numbers(bias=9.0)))
    assert "✕ Do not rely on it yet" in " ".join(page.text["verdict"].split())
    assert "✓ Good to use" in " ".join(Page(pages["numbers"]).text["verdict"].split())


@pytest.mark.usefixtures("no_pictures")
def test_few_rows_are_never_good():
    for subject in (made.numbers(3), made.numbers(29), made.labels(4), made.labels(28)):
        found = judged(subject)
        assert worst(found) == "care"
        assert any("Too few rows to tell" in finding.text for finding in found)
    # 50 of 60: chance leaves 72 to 91 %, which excludes neither 90 % nor a serious miss
    subject = made.numbers(60)
    given = {"coverage": (50 / 60, *_chance.wilson(50 / 60, 60))}
    found = judged(subject, given, "calibration")[0]
    assert found.level == "care"
    assert "agrees with 90 % as far as 60 rows can tell (72.0 % to 90.7 %)" in found.text
    assert "same for all rows" not in regression._rank_words(np.arange(1.0, 9), np.ones(8))


def test_chance_by_simulation(rng):
    from scipy import stats

    for hits, n in ((0, 7), (7, 7), (50, 60), (900, 1000)):
        ends = stats.binomtest(hits, n).proportion_ci(0.95, "wilson")
        assert _chance.wilson(hits / n, n) == pytest.approx((ends.low, ends.high), abs=1e-6)
    levels = np.arange(1, 100) / 100
    share = (rng.random((2000, 40, 1)) < levels).mean(1)
    above = np.sqrt(np.mean((share - levels) ** 2, -1)) > _chance.of_quantiles(40)
    assert above.mean() == pytest.approx(0.05, abs=0.015)
    p = rng.dirichlet([1, 1, 1], 120)
    drawn = [(rng.random((120, 1)) < p.cumsum(-1)).argmax(-1) for _ in range(400)]
    errors = [px.metrics.expected_calibration_error(p, y) for y in drawn]
    assert _chance.of_classes(p) == pytest.approx(np.quantile(errors, 0.95), rel=0.08)
    many = np.tile(p, (30, 1))  # beyond what is drawn one by one
    assert _chance.of_classes(many) == pytest.approx(_chance.of_classes(p) / 30**0.5, rel=0.1)


def test_a_calibration_error_has_its_chance_and_no_interval(pages):
    for name in ("numbers", "labels"):
        row = Page(pages[name]).table("scores", "Score")[-1]
        assert row["Score"] == "Calibration error"
        assert re.fullmatch(r"by chance up to 0\.\d{3}", row["95 % interval"])


@pytest.mark.usefixtures("no_pictures")
def test_counts_are_held_to_what_whole_numbers_promise():
    subject = made.counts(600)
    measured = scores.measure(subject, None)
    (found,) = judged(subject, section="calibration")
    assert subject.promised > 0.93  # a step of the distribution is wide
    assert found.level == "good"
    assert f"agrees with {100 * subject.promised:.1f} %" in found.text
    assert measured["calibration_error"].value < measured["calibration_error"].chance
    words = scores.section(subject, measured).blocks[0].text
    assert "a Poisson distribution with the mean" in words


@pytest.mark.usefixtures("no_pictures")
def test_training_that_has_not_come_to_rest():
    subject, step = made.numbers(30), np.arange(1000)
    level = 1 + np.exp(-step / 50)
    staircase = np.repeat(np.linspace(40, 10, 63), 16)[:1000]
    for course, kl, levels, words in (
        (np.linspace(3, 1, 1000), None, ["care"], "still falling, by 0.2 over the last tenth"),
        (level, None, ["good"], "level at its end"),
        (level, None, ["good"], "no proof of convergence"),
        (level, staircase, ["care"], "still falling"),
        # as a rate that falls to zero makes it: level at the end, far from it in the middle
        (level, 20 - np.sin(step / 1000 * np.pi / 2) * 3, ["care"], "over the second half"),
        (1 + np.linspace(0, 6, 1000), None, ["bad"], "still rising"),
        (level[:60], None, ["care"], "60 steps are too few"),
        (np.r_[np.ones(500), np.full(500, np.nan)], None, ["bad"], "not finite from step 501"),
    ):
        found = training(checks.Course(course, kl, (0.7, 0.1)))
        assert [found.level] == levels
        assert words in found.more
        part = Section("diagnostics", "")
        part.tell([found])
        assert part.blocks[0].text == found.more
    reports = {"kl": (np.arange(0, 1000, 16), staircase[::16])}
    for record in (
        Record(terms={"nll": level}, reports=reports),
        Record(terms={"nll": level, "kl": staircase}),
    ):  # as files without reports
        course = course_of(record)
        assert course.kl[8] == pytest.approx((staircase[0] + staircase[16]) / 2)
        caption = checks._picture(subject, course._replace(weights=(0.7, 0.1))).caption
        assert "NLL + T · KL, with T from 0.1 to 0.7 for its members" in caption
        assert "anew every 16 steps" in caption


def test_rows_are_counted_as_the_user_does():
    from posterax.commands.reading import split_target

    frame = pd.DataFrame({"a": range(20), "y": [None, *range(19)]})
    frame.attrs["head"] = 1  # as of a CSV file
    parts = split_target(frame, "y").only(np.array([0, 18]))
    assert parts.X.index.tolist() == [3, 21]  # the head is line 1, and the first row lacks its y
    assert parts.X["a"].tolist() == [1, 19]
    table = data._rows_table(made.numbers(30, counted="Line of the file"), np.arange(2), "")
    assert table.heads[0] == "Line of the file"


def test_given_scores_and_what_is_not_finite():
    subject = made.numbers()
    given = {"rmse": (1.25, 1.0, 1.5), "gain": (float("nan"), 0, 1)}
    table = scores.section(subject, scores.measure(subject, given)).blocks[1]
    rows = {row[0]: row for row in table.rows}
    assert rows["RMSE"][1:3] == ["1.25", "1.00 to 1.50"]  # three digits of the RMSE that is shown
    assert rows["gain"][1] == "–"


def test_wrong_use_is_refused_in_words(fitted, tmp_path, monkeypatch):
    model, X, y, _ = fitted
    path = tmp_path / "r.html"
    with pytest.raises(TypeError, match="call fit first"):
        write_report(path, px.BayesianRegressor(), X, y)
    with pytest.raises(TypeError, match="got int"):
        write_report(path, 3, X, y)
    with pytest.raises(ValueError, match="X and y must have the same number of rows"):
        write_report(path, model, X, y[:-1])
    with pytest.raises(ValueError, match="held_out must be a pair"):
        write_report(path, model, X, y, held_out=X)
    with pytest.raises(ValueError, match=r"held_out\[2\] must be a number of 0 or more for each"):
        write_report(path, model, X, y, held_out=(X, y, np.ones(3)))
    with pytest.raises(ValueError, match=r"scores\['RMSE'\] must be \(value, low, high\)"):
        scores.measure(made.numbers(), {"RMSE": 3.0})
    monkeypatch.setattr(build, "render", lambda *given, **more: "half")
    with pytest.raises(IsADirectoryError, match="name a file in it"):
        write_report(tmp_path, model, X, y)
    monkeypatch.setattr(writing, "replace", lambda *_: (_ for _ in ()).throw(OSError("full")))
    with pytest.raises(OSError, match="full"):
        write_report(path, model, X, y)
    assert list(tmp_path.iterdir()) == []


def test_a_plain_posterior_and_a_sample_of_many_rows():
    x = np.random.default_rng(0).normal(size=(2400, 2, 2)).astype("float32")
    network = px.networks.MLP(4, 3, (), key=0)
    model = px.Model(
        (network, lambda net, x: x.reshape(len(x), 4) @ net.layers[0].weight.T),
        px.priors.Gaussian(1.0), px.likelihoods.Categorical(),
    )  # fmt: skip
    y = np.arange(2400) % 3
    subject = make_subject(px.prior_posterior(model, x), x, y, None, None)
    assert subject.x is None  # no table
    assert subject.classes == ["0", "1", "2"]
    assert len(subject.y) == 2000
    assert np.array_equal(subject.y, y[[int(i) for i in subject.numbers]])
    measured = scores.measure(subject, None)
    words = scores.section(subject, measured).blocks[0].text
    assert "2,400 rows that the model was trained on, which flatters it" in words
    assert "Pictures and rows below are of 2,000 of them" in words
    # scores are of all rows, as those of the command line
    assert measured.rows == 2400
    whole = subject.outcome.predictive
    right = np.mean(whole.mean.argmax(-1) == y)
    assert measured["accuracy"].value == pytest.approx(right)
    np.testing.assert_allclose(
        whole.mean[[int(i) for i in subject.numbers]], subject.predictive.mean, rtol=1e-4
    )


def test_many_classes_and_one_row():
    names = [f"class {i}" for i in range(30)]
    many = made.labels(200, classes=names)
    assert "The most frequent confusions" in classes._confusions(many).caption
    for few in (made.numbers(1), made.labels(2)):
        assert Page(made.page(few)).wrong == []


@pytest.mark.slow
def test_labels_weighted_draws_and_chains_from_end_to_end():
    rng = np.random.default_rng(1)
    X = rng.normal(size=(140, 2))
    y = np.array(HOSTILE[:3], dtype=object)[(X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)]
    model = px.BayesianClassifier(members=2, steps=200, random_state=0).fit(X[:100], y[:100])
    true = y[100:].copy()
    true[:3] = "never seen"
    page = Page(report.render(model, X[:100], y[:100], held_out=(X[100:], true)))
    assert page.wrong == []
    assert "3 held-out rows had a label that no training row has" in page.text["verdict"]
    assert "Measured on 37 rows" in page.text["scores"]
    counts = rng.poisson(np.exp(0.5 * X[:, 0]))
    x = X[:, :1].astype("float32")
    prior = px.priors.Gaussian(1.0)
    model = px.Model(px.networks.MLP(1, 1, (), key=0), prior, px.likelihoods.Poisson())
    posterior = px.fit(model, (x, counts), px.ImportanceSampling(), steps=500, key=0)
    assert (
        "weighted draws are worth" in Page(report.render(posterior, x, counts)).text["diagnostics"]
    )
    both = np.stack([X[:, 0], X[:, 1]], 1)
    model = px.Model(px.networks.MLP(1, 2, (), key=0), prior, px.likelihoods.Gaussian(0.5))
    posterior = px.fit(model, (x, both), px.NUTS(warmup=50), steps=400, key=0)
    page = Page(report.render(posterior, x, both))
    assert "The chains agree on the predictions" in page.text["diagnostics"]
    assert "There are 2 targets" in page.text[""]


def test_columns_say_what_was_done():
    frame = pd.DataFrame({
        "when": pd.date_range("2024-01-01", periods=80), "what": ["a", None] * 40,
        "flag": [True, False] * 40, "year": range(1950, 2030),
    })  # fmt: skip
    told = {"columns": [{"name": "what", "done": "one column for each of 1 category"}]}
    rows = {row[0]: row for row in data._columns(frame, data._done(None, told)).rows}
    assert rows["when"][1:] == ["date", "0", "80", "2024-01-01 to 2024-03-20", "–"]
    assert rows["what"][1:4] == ["text", "40", "1"]
    assert rows["what"][4:] == ["\u200e\u2068a\u2069 (100 %)", "one column for each of 1 category"]
    assert rows["flag"][1] == "yes or no"
    assert rows["year"][4] == "1950 to 2029"
    text = pd.DataFrame({"day": ["2024-03-01", "2023-12-24", None]})
    told = {"columns": [{"name": "day", "kind": "date", "done": "days"}]}
    (row,) = data._columns(text, data._done(None, told)).rows
    assert row[1] == "date"
    assert row[4] == "2023-12-24 to 2024-03-01"


def test_words():
    assert show(0.000012345) == "1.23e-5"
    assert show(-1234567.0) == "−1,234,567"
    assert fixed(float("inf"), 2) == "–"
    assert cut("a\u0000b\u202ec\ud800d") == "abcd"
    assert len(cut("🙂" * 500)) == 80


def test_a_user_s_own_matplotlib_settings_change_nothing():
    import matplotlib

    plain = pictures.draw("numbers.parts", lambda axes: axes.plot([0, 1], label="$x$"))
    with matplotlib.rc_context({"font.size": 30, "svg.fonttype": "path", "axes.grid": True}):
        again = pictures.draw("numbers.parts", lambda axes: axes.plot([0, 1], label="$x$"))
    assert plain == again
    assert ">$x$</text>" in plain.svg


def contrast(one: str, other: str) -> float:
    """Of two colours, by WCAG 2."""

    def light(colour: str) -> float:
        parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
        parts = np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)
        return float(parts @ [0.2126, 0.7152, 0.0722])

    low, high = sorted([light(one), light(other)])
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1, 2], ids=["light", "dark", "print"])
def test_contrast_is_that_of_wcag_aa(theme):
    css = (Path(build.__file__).parent / "style.css").read_text()
    block = re.findall(r":root \{(.*?)\}", css, re.DOTALL)[theme]
    colour = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
    for word in ("ink", "muted", "blue"):
        for ground in ("paper", "ground"):
            assert contrast(colour[word], colour[ground]) >= 4.5, (word, ground)
    for level in ("good", "care", "bad"):
        for word in (level, "ink", "blue"):
            assert contrast(colour[word], colour[f"{level}-ground"]) >= 4.5, (word, level)
        assert contrast(colour[level], colour["paper"]) >= 4.5  # the sign on its disc
    assert contrast(colour["ink"], colour["blue-fill"]) >= 4.5  # the darkest cell of a matrix
    for line in ("blue", "amber", "orange", "bad", "muted"):
        assert contrast(colour[line], colour["paper"]) >= 3, line  # what is drawn
