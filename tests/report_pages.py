"""For the tests of the report: pages about predictions made by hand, and what a browser reads."""

from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pandas as pd
from scipy import stats
from scipy.special import entr

from posterax.report.build import page_of
from posterax.report.subject import Subject
from posterax.report.words import cut

VOID = {"meta", "link", "br"}
HOSTILE = [
    "<script>alert(1)</script>",
    "\u202eevil שלום",
    "🙂 \"quote' &amp; $x^2$",
    "x" * 10_000,
    "]]>\n-->",
]


class Page(HTMLParser):
    """What a browser would make of it: tags in order, text by section, and what does not nest."""

    def __init__(self, text: str):
        super().__init__(convert_charrefs=True)
        self.tags, self.open, self.wrong, self.ids = [], [], [], []
        self.text, self.section, self.cells, self.tables = {}, "", [], []
        self.feed(text)
        self.close()
        self.wrong += self.open

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.tags.append((tag, found))
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "section":
            self.section = found.get("id", "verdict")
        if tag == "table":
            self.tables.append((self.section, []))
        if tag == "tr" and self.tables:
            self.tables[-1][1].append([])
        if tag in ("td", "th"):
            self.tables[-1][1][-1].append("")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.wrong.append(tag)

    def handle_data(self, data):
        if "style" in self.open:
            return
        self.text[self.section] = self.text.get(self.section, "") + data
        if {"td", "th"} & set(self.open):
            self.tables[-1][1][-1][-1] += data

    def table(self, section, head):
        """The rows of a section's first table with this head, as dicts."""
        for where, rows in self.tables:
            if where == section and head in rows[0]:
                return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]
        raise AssertionError(f"no table with {head} in {section}")


class Gaussians:
    """Predictions of numbers: means, and two parts of a deviation."""

    kind = "regression"

    def __init__(self, mean, epistemic, aleatoric):
        self.mean, self.epistemic, self.aleatoric = mean, epistemic**2, aleatoric**2
        self.std = np.sqrt(self.epistemic + self.aleatoric)

    def quantile(self, levels):
        return self.mean + stats.norm.ppf(np.asarray(levels))[..., None] * self.std

    def interval(self, level):
        return tuple(self.quantile([(1 - level) / 2, (1 + level) / 2]))

    def cdf(self, y):
        return stats.norm.cdf(y, self.mean, self.std)

    def log_prob(self, y):
        return stats.norm.logpdf(y, self.mean, self.std)


class Classes:
    """Predictions of classes: their probabilities, a tenth of the entropy being epistemic."""

    kind = "classification"

    def __init__(self, p):
        self.mean, self.total = p, entr(p).sum(-1)
        self.epistemic, self.aleatoric = self.total / 10, 0.9 * self.total

    def log_prob(self, y):
        return np.log(np.take_along_axis(self.mean, y[:, None], -1)[:, 0])


class Counts:
    """Predictions of counts by a Poisson distribution."""

    kind = "counts"

    def __init__(self, mean):
        self.mean, self.law = mean, stats.poisson(mean)
        self.std, self.epistemic, self.aleatoric = np.sqrt(mean), 0 * mean, mean

    def quantile(self, levels):
        return self.law.ppf(np.asarray(levels)[..., None])

    def interval(self, level):
        return tuple(self.quantile([(1 - level) / 2, (1 + level) / 2]))

    def cdf(self, y):
        return self.law.cdf(y)

    def log_prob(self, y):
        return self.law.logpmf(y)


def subject_of(predictive, y, train_y, x, *, held_out=True, classes=(), unknown=0, counted="Row"):
    """A subject whose model is of no matter."""
    posterior = SimpleNamespace(
        record=None, history={}, model=SimpleNamespace(bayesian_size=1234)
    )  # fmt: skip
    return Subject(
        fitted=posterior, posterior=posterior, train_x=x, train_y=train_y, x=x, y=y,
        predictive=predictive, held_out=held_out, tested=len(y), unknown=unknown,
        classes=list(classes), target="<i>price</i> $1", numbers=[str(i) for i in range(len(y))],
        inputs=x, counted=counted,
    )  # fmt: skip


def counts(n, seed=0):
    """Counts drawn from the very distributions that are predicted."""
    rng = np.random.default_rng(seed)
    mean = rng.uniform(0.3, 2, n)
    y = rng.poisson(mean).astype(float)
    return subject_of(Counts(mean), y, y, pd.DataFrame({"a": mean}))


def numbers(n=90, *, bias=0.0, narrow=1.0, held_out=True, seed=0, counted="Row"):
    """Numbers predicted as well as can be; or with a bias, or intervals too narrow."""
    rng = np.random.default_rng(seed)
    x = pd.DataFrame(rng.normal(size=(n, 5)), columns=HOSTILE)
    mean, epistemic = 3 * rng.normal(size=n), rng.uniform(0.1, 0.5, n)
    aleatoric = rng.uniform(0.5, 1, n)
    y = mean + np.sqrt(epistemic**2 + aleatoric**2) * rng.normal(size=n)
    predictive = Gaussians(mean + bias, narrow * epistemic, narrow * aleatoric)
    return subject_of(predictive, y, y, x, held_out=held_out, counted=counted)


def labels(n=90, *, power=1.0, seed=0, classes=(*HOSTILE[:2], HOSTILE[4])):
    """Labels drawn from the very probabilities; a power above 1 makes these too sure."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet([0.5] * len(classes), n)
    y = np.array([rng.choice(len(classes), p=row) for row in p])
    x = pd.DataFrame({"a": rng.normal(size=n), HOSTILE[3]: HOSTILE[2:4] * (n // 2)})
    p = p**power + 1e-6
    p /= p.sum(-1, keepdims=True)
    return subject_of(Classes(p), y, y, x, classes=[cut(c, 40) for c in classes])


def page(subject, **more):
    """The page about a subject, with a hostile card."""
    card = {"command": f"posterax fit {HOSTILE[0]}", "note": HOSTILE[2], "sha256": "ab" * 32}
    return page_of(subject, card=card, **more)
