"""The verdict: tables of known truth, good to use and not, and small fits from a file to a card."""

import re

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import posterax as px
from posterax.commands.fitting import fit_table
from posterax.metrics.baseline import Constant
from posterax.metrics.evaluate import QUICK
from posterax.report.outcome import Outcome
from posterax.report.page import Finding
from posterax.report.verdict import in_words, judge, worst
from posterax.tables.cards import check_card
from tests.report_pages import Classes, Page

TRAIN = 4000  # rows that the baseline knows
NORMAL = stats.norm
# a wrong call: a good situation that is not called good, or another one that is
MOST_WRONG = 1


def signal(rng, n, size=2.0):
    """Means of the targets, and targets that the baseline knows."""
    return size * rng.normal(size=n), size * rng.normal(size=TRAIN) + rng.normal(size=TRAIN)


def told(law, y, train, kind="regression"):
    """Predictions, one law for each row, beside what came true."""
    return Constant(law, y.shape, kind), y, train


def homoscedastic(rng, n, *, wide=1.0, off=0.0, size=2.0):
    """Gaussian noise of deviation 1, told ``wide`` times as wide and off by so much."""
    mean, train = signal(rng, n, size)
    return told(NORMAL(mean + off, wide), mean + rng.normal(size=n), train)


def heteroscedastic(rng, n, *, known=True):
    mean, train = signal(rng, n)
    spread = np.exp(0.5 * mean)
    y = mean + spread * rng.normal(size=n)
    return told(NORMAL(mean, spread if known else np.sqrt(np.mean(spread**2))), y, train)


def heavy(rng, n, df):
    mean, train = signal(rng, n)
    return told(stats.t(df, mean, 0.7), mean + 0.7 * rng.standard_t(df, size=n), train)


def skewed(rng, n, *, known):
    """Exponential noise, which a Gaussian of the same moments does not describe."""
    mean, train = signal(rng, n)
    y = mean - 1 + rng.exponential(size=n)
    return told(stats.expon(mean - 1) if known else NORMAL(mean, 1.0), y, train)


def lognormal(rng, n):
    mean, train = rng.normal(size=n), np.exp(np.hypot(1, 0.4) * rng.normal(size=TRAIN))
    return told(
        stats.lognorm(0.4, scale=np.exp(mean)), np.exp(mean + 0.4 * rng.normal(size=n)), train
    )


def counts(rng, n, *, rate=5.0, spread=0.0):
    """Poisson counts; with a spread their rate varies more than is told."""
    mean = rate * np.exp(0.6 * rng.normal(size=n))
    true = mean * rng.gamma(1 / spread, spread, n) if spread else mean
    train = rng.poisson(rate * np.exp(0.6 * rng.normal(size=TRAIN)))
    return told(stats.poisson(mean), rng.poisson(true).astype(float), train, "counts")


def one_sided(rng, n):
    """As many inside as promised, and nearly all of the others above."""
    mean, train = signal(rng, n)
    y = mean - 1 + rng.exponential(size=n)
    return told(NORMAL(mean, 1.0), y, train)


def shifted(rng, n):
    prediction, y, train = homoscedastic(rng, n)
    return prediction, y + 2.0 * (rng.random(n) < 1 / 3), train


def two_peaks(rng, n):
    mean, train = signal(rng, n)
    y = mean + rng.choice([-1, 1], n) + 0.2 * rng.normal(size=n)
    return told(NORMAL(mean, 1.02), y, train)


def another_mean(rng, n):
    """Intervals so wide that they hold, around means that are the wrong way round."""
    mean, train = signal(rng, n, 1.0)
    y = mean + 0.3 * rng.normal(size=n)
    return told(NORMAL(-0.5 * mean, 1.53), y, train)


def nothing_learned(rng, n):
    """What the baseline says, with another draw of means."""
    y, train = rng.normal(size=n), rng.normal(size=TRAIN)
    return told(NORMAL(0.1 * rng.normal(size=n), 1.0), y, train)


def nonsense(rng, n):
    mean, train = signal(rng, n)
    return told(NORMAL(rng.permutation(mean), 1.0), mean + rng.normal(size=n), train)


def labels(rng, n, k=2, *, power=1.0, rare=0.0, size=2.0, raised=1.0):
    """Labels drawn from probabilities, which are told with another power, or a class raised."""

    def draw(n):
        logits = size * rng.normal(size=(n, k))
        logits[:, -1] += np.log(rare) if rare else 0
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True)
        return p, (rng.random((n, 1)) > p.cumsum(1)).sum(1).clip(0, k - 1)

    (p, y), (_, train) = draw(n), draw(TRAIN)
    p = p**power
    p[:, -1] *= raised
    return Classes(p / p.sum(1, keepdims=True)), y, train


GOOD = {
    "homoscedastic, 100 rows": lambda rng: homoscedastic(rng, 100),
    "homoscedastic, 500 rows": lambda rng: homoscedastic(rng, 500),
    "homoscedastic, 5,000 rows": lambda rng: homoscedastic(rng, 5000),
    "a weak signal, 1,000 rows": lambda rng: homoscedastic(rng, 1000, size=0.4),
    "3 % too narrow, 2,000 rows": lambda rng: homoscedastic(rng, 2000, wide=0.97),
    "heteroscedastic, 300 rows": lambda rng: heteroscedastic(rng, 300),
    "heteroscedastic, 3,000 rows": lambda rng: heteroscedastic(rng, 3000),
    "heavy tails, 400 rows": lambda rng: heavy(rng, 400, 3),
    "heavy tails, 2,000 rows": lambda rng: heavy(rng, 2000, 5),
    "exponential noise, known": lambda rng: skewed(rng, 700, known=True),
    "lognormal targets": lambda rng: lognormal(rng, 600),
    "counts, 200 rows": lambda rng: counts(rng, 200),
    "counts, 3,000 rows": lambda rng: counts(rng, 3000),
    "rare counts": lambda rng: counts(rng, 1500, rate=0.5),
    "2 classes, 150 rows": lambda rng: labels(rng, 150),
    "2 classes, 2,000 rows": lambda rng: labels(rng, 2000),
    "5 classes, 400 rows": lambda rng: labels(rng, 400, 5),
    "5 classes, 5,000 rows": lambda rng: labels(rng, 5000, 5),
    "a class of 5 %, 1,000 rows": lambda rng: labels(rng, 1000, rare=0.02),
    "a class of 1 %, 5,000 rows": lambda rng: labels(rng, 5000, rare=0.002),
}
BAD = {
    "over-confident by 1.5, 100 rows": lambda rng: homoscedastic(rng, 100, wide=1 / 1.5),
    "over-confident by 1.5, 1,000 rows": lambda rng: homoscedastic(rng, 1000, wide=1 / 1.5),
    "over-confident by 2": lambda rng: homoscedastic(rng, 300, wide=0.5),
    "under-confident by 2, 100 rows": lambda rng: homoscedastic(rng, 100, wide=2.0),
    "under-confident by 2, 1,000 rows": lambda rng: homoscedastic(rng, 1000, wide=2.0),
    "half a deviation too high, 150 rows": lambda rng: homoscedastic(rng, 150, off=0.5),
    "half a deviation too low, 2,000 rows": lambda rng: homoscedastic(rng, 2000, off=-0.5),
    "one-sided misses, 300 rows": lambda rng: skewed(rng, 300, known=False),
    "one-sided misses, 3,000 rows": lambda rng: skewed(rng, 3000, known=False),
    "a third of the rows shifted": lambda rng: shifted(rng, 300),
    "noise of two peaks": lambda rng: two_peaks(rng, 500),
    "one noise for all, 2,000 rows": lambda rng: heteroscedastic(rng, 2000, known=False),
    "worse than the baseline": lambda rng: nonsense(rng, 300),
    "worse than the training mean": lambda rng: another_mean(rng, 300),
    "nothing learned": lambda rng: nothing_learned(rng, 500),
    "counts that vary more": lambda rng: counts(rng, 500, spread=0.5),
    "over-confident, 2 classes": lambda rng: labels(rng, 400, power=2.0, size=1.0),
    "over-confident, 5 classes": lambda rng: labels(rng, 800, 5, power=1.7, size=1.0),
    "under-confident classes": lambda rng: labels(rng, 800, 3, power=0.5),
    "a rare class thrice as likely": lambda rng: labels(rng, 2000, rare=0.02, raised=4.0),
}


def verdict(predictive, y, train, weight=None, **more):
    scores = px.metrics.evaluate(predictive, y, weight, train_y=train, only=QUICK)
    return judge(Outcome(predictive=predictive, y=y, weight=weight), scores, train, **more)


def wrong_calls(seed):
    """Names of good situations that are not called good, and of others that are."""
    return [
        name
        for name, make in (GOOD | BAD).items()
        if (worst(verdict(*make(np.random.default_rng([seed, *name.encode()])))) == "good")
        != (name in GOOD)
    ]


def test_there_are_forty_situations():
    assert (len(GOOD), len(BAD), len({*GOOD, *BAD})) == (20, 20, 40)


@pytest.mark.parametrize("seed", range(3))
def test_at_most_one_call_of_forty_is_wrong(seed):
    assert len(wrong_calls(seed)) <= MOST_WRONG, wrong_calls(seed)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3, 30))
def test_at_most_one_call_of_forty_is_wrong_over_more_seeds(seed):
    assert len(wrong_calls(seed)) <= MOST_WRONG, wrong_calls(seed)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda rng: homoscedastic(rng, 500, wide=0.6), "they are too narrow"),
        (lambda rng: homoscedastic(rng, 500, wide=2.0), "they are too wide"),
        (lambda rng: homoscedastic(rng, 500, off=0.5), "too high by 0."),
        (lambda rng: skewed(rng, 2000, known=False), "misses are one-sided"),
        (lambda rng: two_peaks(rng, 800), "too wide"),
        (lambda rng: heteroscedastic(rng, 3000, known=False), "where the predictions are lowest"),
        (lambda rng: nonsense(rng, 400), "baseline, which knows nothing"),
        (lambda rng: another_mean(rng, 400), "further from the truth than the training mean is"),
        (lambda rng: labels(rng, 2000, power=2.0, size=1.0), "too sure of itself"),
        (lambda rng: labels(rng, 2000, 3, power=0.5), "not sure enough of itself"),
        (lambda rng: labels(rng, 3000, rare=0.02, raised=4.0), "came true in"),
    ],
)  # fmt: skip
def test_reasons_name_what_is_wrong(make, words):
    found = verdict(*make(np.random.default_rng(0)))
    assert worst(found) != "good"
    assert any(words in f.text for f in found if f.level != "good"), in_words(found)


def test_classes_that_are_wrong_more_often_than_the_most_frequent_one():
    rng = np.random.default_rng(0)
    y = (rng.random(600) < 0.1).astype(int)
    p = np.where(rng.random((600, 1)) < 0.5, [0.45, 0.55], [0.9, 0.1])
    found = verdict(Classes(p), y, y)
    assert any("wrong more often than the most frequent class" in f.text for f in found)


def test_small_misses_of_many_rows_are_tolerated():
    """What is known to be off by little is good enough, whatever chance explains."""
    rng = np.random.default_rng(0)
    assert worst(verdict(*homoscedastic(rng, 60_000, wide=0.98))) == "good"
    assert worst(verdict(*homoscedastic(rng, 60_000, wide=0.8))) == "care"


def test_rows_count_by_their_weight():
    rng = np.random.default_rng(0)
    predictive, y, train = homoscedastic(rng, 800)
    y = y + np.where(np.arange(800) < 400, 3.0, 0)
    assert worst(verdict(predictive, y, train)) != "good"
    weight = np.where(np.arange(800) < 400, 0.0, 1.0)
    assert worst(verdict(predictive, y, train, weight)) == "good"


def test_another_model_than_the_one_scored_is_told():
    good = homoscedastic(np.random.default_rng(0), 500)
    assert worst(verdict(*good, drift=1.1)) == "good"
    wide, narrow = (verdict(*good, drift=times)[0] for times in (1.3, 0.7))
    assert wide.level == narrow.level == "care"
    assert "shipped model's intervals are 1.3 times as wide as those scored" in wide.text
    assert "--no-refit" in narrow.text


def test_few_rows_unknown_labels_and_the_fit_itself():
    rng = np.random.default_rng(0)
    few = verdict(*homoscedastic(rng, 20))
    assert worst(few) == "care"
    good = homoscedastic(rng, 500)
    assert worst(verdict(*good, unknown=3)) == "care"
    assert worst(verdict(*good, held_out=False)) == "care"
    fit = [Finding("bad", "The training met numbers that are not finite.", "diagnostics")]
    found = verdict(*good, fit=fit)
    assert found[0] == fit[0]
    assert in_words(found) == "Do not rely on it yet: The training met numbers that are not finite."


def test_a_card_of_a_file_has_a_verdict_or_is_refused():
    right = {"level": "care", "words": "Use with care", "reasons": ["Too few rows."]}
    assert check_card({"verdict": right, "drift": 1.2})["verdict"] == right
    for wrong in (3, {}, right | {"level": "fine"}, right | {"reasons": [1]}, right | {"words": 2}):
        with pytest.raises(px.CheckpointError, match="its card"):
            check_card({"verdict": wrong})
    with pytest.raises(px.CheckpointError, match="'drift' in its card"):
        check_card({"drift": "wide"})


# -- small fits, from a file to a card


def houses(n, seed, *, noise="normal", size=2.0):
    rng = np.random.default_rng(seed)
    x, kind = rng.normal(size=(n, 3)), rng.choice(list("abc"), n)
    mean = size * (x[:, 0] + 0.5 * np.sin(2 * x[:, 1]) + 0.5 * (kind == "b"))
    noises = {
        "normal": 0.5 * rng.normal(size=n),
        "uneven": 0.5 * np.exp(0.4 * x[:, 2]) * rng.normal(size=n),
        "skewed": 2 * rng.exponential(size=n) ** 1.5,
    }
    return pd.DataFrame({"a": x[:, 0], "b": x[:, 1], "c": x[:, 2], "kind": kind}).assign(
        y=mean + noises[noise]
    )


def yes_or_no(n, seed):
    frame = houses(n, seed)
    right = np.random.default_rng(seed + 1).random(n) < 1 / (1 + np.exp(-1.2 * frame["y"]))
    return frame.assign(y=np.where(right, "yes", "no"))


def later(n, seed):
    """The last fifth is another world, and the dates say which rows are last."""
    frame = houses(n, seed)
    frame["y"] += np.where(np.arange(n) >= 0.8 * n, 1.5, 0)
    days = pd.date_range("2024-01-01", periods=n).strftime("%Y-%m-%d")
    return frame.assign(day=days)


def fitted(frame, **more):
    frame.to_csv("table.csv", index=False)
    options = {"method": "map", "out": "m.px", "force": True, "verbose": False} | more
    return fit_table("table.csv", "y", tell=lambda line: None, **options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "level", "words"),
    [
        (lambda: houses(1000, 0, noise="uneven"), "good", "clearly better than the baseline"),
        (lambda: yes_or_no(1000, 0), "good", "as often right as they say"),
        (lambda: houses(600, 0, size=0.0), "bad", "baseline, which knows nothing"),
        (lambda: houses(1500, 0, noise="skewed"), "care", "misses are one-sided"),
        (lambda: later(600, 0), "bad", "too low by 1."),
    ],
)
def test_small_fits_from_end_to_end(make, level, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    verdict = fitted(make()).card["verdict"]
    assert verdict["level"] == level, verdict
    assert any(words in reason for reason in verdict["reasons"]), verdict


@pytest.mark.slow
def test_rows_of_another_world_in_another_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    houses(300, 9).assign(a=lambda f: f["a"] + 3, y=lambda f: f["y"] - 1).to_csv("t.csv")
    verdict = fitted(houses(600, 0), test="t.csv").card["verdict"]
    assert verdict["level"] == "bad"


@pytest.mark.usefixtures("hasty_compiler")
@pytest.mark.parametrize("make", [houses, yes_or_no])
def test_command_line_and_report_say_the_same(make, tmp_path, monkeypatch):
    """Of the same rows, weighted, and of more than the pictures show."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("posterax.report.subject.MOST_ROWS", 30)
    frame = make(260, 3).assign(w=np.arange(260) % 3 + 0.5)
    more = {"quick": True, "weight": "w", "report": "r.html"}
    card = fitted(frame, **more).card
    page = Page((tmp_path / "r.html").read_text())
    told = " ".join(page.text["verdict"].split())
    assert card["verdict"]["words"] in told
    for reason in card["verdict"]["reasons"]:
        assert " ".join(reason.split()) in told
    assert len(re.findall("More", told)) >= len(card["verdict"]["reasons"])
    assert px.load("m.px").card_["verdict"] == card["verdict"]
