"""Active learning: scores against numpy, batches against brute force, and the loop."""

import itertools

import jax
import numpy as np
import pytest
from matplotlib.figure import Figure
from scipy.special import xlogy

import posterax as px
from experiments import active as experiment
from experiments import active_report, reproduce
from posterax._util.interrupts import _presses
from posterax.active.batches import _drawn
from tests.by_hand import GAUSSIAN, ONE, POISSON, TWO, predictive_of
from tests.test_fit import compilations
from tests.test_predictive import KINDS, X, posterior_of

pytestmark = pytest.mark.usefixtures("hasty_module")
RNG = np.random.default_rng(0)


def close(found, expected, rtol=1e-4, atol=1e-5):
    np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)


def line(prior=1.0, noise=0.1, inputs=1):
    """y = w x + b, whose posterior is exact."""
    network = px.networks.MLP(inputs, 1, (), key=0)
    return px.Model(network, px.priors.Gaussian(prior), px.likelihoods.Gaussian(noise))


def flat(posterior):
    return np.concatenate([np.ravel(a) for a in jax.tree.leaves(posterior.moments()[0])])


# -- scores


def test_scores_of_classes_by_hand():
    predictive = posterior_of(*KINDS["categorical"]).predict(X, samples=5, key=0)
    p = predictive.conditional_means().astype(np.float64)  # (samples, inputs, classes)
    assert p.shape == (5, 11, 3)
    mean = p.mean(0)
    close(predictive.mean, mean)
    total = -xlogy(mean, mean).sum(-1)
    close(px.active.entropy(predictive), total)
    close(px.active.entropy(mean), total)
    close(px.active.bald(predictive), total + xlogy(p, p).sum(-1).mean(0))
    close(px.active.bald(predictive), px.information.information_gain(p))
    close(px.active.variation_ratio(predictive), 1 - mean.max(-1))
    close(px.active.variance(predictive), p.var(0).sum(-1))
    close(px.active.variance(predictive, "total"), (mean * (1 - mean)).sum(-1))


def test_scores_of_values_by_hand():
    predictive = posterior_of(*KINDS["gaussian"]).predict(X, samples=5, key=0)
    f = predictive.conditional_means().astype(np.float64)
    assert f.shape == (5, 11)
    close(px.active.bald(predictive), 0.5 * np.log1p(f.var(0) / 0.09))
    close(px.active.entropy(predictive), 0.5 * np.log(2 * np.pi * np.e * (f.var(0) + 0.09)))
    close(px.active.variance(predictive), f.var(0))
    close(px.active.variance(predictive, "total"), f.var(0) + 0.09)
    # several targets are one label: their errors are correlated over the posterior
    two = predictive_of(GAUSSIAN, 2, TWO)
    f = two.conditional_means().astype(np.float64)
    for i in (0, 7):
        own = np.eye(2) + np.cov(f[:, i].T, bias=True) / 0.09
        close(px.active.bald(two)[i], 0.5 * np.linalg.slogdet(own)[1], rtol=1e-3)


@pytest.mark.slow
def test_scores_of_counts_by_draws():
    """Information lies between nothing and the entropy."""
    counts = predictive_of(POISSON, 1, ONE, spread=1.0)
    assert np.all(px.active.bald(counts) <= px.active.entropy(counts))
    assert px.active.bald(counts).max() > 0.1


def test_scores_stream_and_some_inputs_are_like_all():
    posterior = posterior_of(*KINDS["categorical"])
    x = RNG.normal(size=(900, 1)).astype("float32")
    whole, small = (posterior.predict(x, samples=5, key=0, block_bytes=b) for b in (None, 2**15))
    close(px.active.bald(small), px.active.bald(whole))
    rows = np.array([5, 899, 17])
    few = small.at(rows)
    close(px.active.bald(few), px.active.bald(whole)[rows])
    close(few.conditional_means(), whole.conditional_means()[:, rows])
    wider = posterior_of(*KINDS["gaussian"]).predict(X, samples=5, key=0).widened(2.0)
    close(wider.at([3, 1]).mean, wider.mean[[3, 1]])


# -- batches


def information(p, w, batch):
    """I[y₁ … y_b; w] by listing all labels."""
    joint = -sum(
        xlogy(q, q)
        for labels in itertools.product(range(p.shape[-1]), repeat=len(batch))
        for q in [np.sum(w * np.prod([p[:, i, k] for i, k in zip(batch, labels, strict=True)], 0))]
    )
    return joint - sum(np.sum(w * -xlogy(p[:, i], p[:, i]).sum(-1)) for i in batch)


def greedy(value, size, n):
    batch = []
    for _ in range(n):
        left = [i for i in range(size) if i not in batch]
        batch.append(max(left, key=lambda i: value([*batch, i])))
    return batch, [value(batch[: b + 1]) for b in range(n)]


def test_batch_bald_is_the_greedy_batch_of_the_joint_information():
    p = RNG.dirichlet(np.full(3, 0.4), size=(6, 80))
    p[:, 10:] = 0.3 * p[:, 10:] + 0.7 / 3  # of which most tell little, and need no second look
    w = RNG.dirichlet(np.full(6, 2.0))
    chosen, told = px.active.batch_bald(p, 4, weights=w)
    expected, values = greedy(lambda batch: information(p, w, batch), 80, 4)
    assert chosen.tolist() == expected
    close(told, values)
    assert chosen[0] == px.information.information_gain(p, w).argmax()


def test_batch_bald_beyond_what_can_be_listed():
    p = RNG.dirichlet(np.full(3, 0.4), size=(6, 9))
    w = RNG.dirichlet(np.full(6, 2.0))
    picked = [4, 1, 7]
    left = _drawn(p[:, picked].transpose(1, 2, 0), w, 4000, np.random.default_rng(1))
    after = np.einsum("cs,sk->ck", left, p[:, 0])
    each = -xlogy(after, after).sum(-1)
    own = np.sum(w * -xlogy(p[:, 0], p[:, 0]).sum(-1))
    exact = information(p, w, [*picked, 0]) - information(p, w, picked)
    assert abs(each.mean() - own - exact) < 4 * each.std() / np.sqrt(len(each))
    # drawn from the third label on: the first ones are exact, and there are no repetitions
    chosen, told = px.active.batch_bald(p, 9, weights=w, configurations=9, key=3)
    assert sorted(chosen.tolist()) == list(range(9))
    close(told[:2], greedy(lambda batch: information(p, w, batch), 9, 2)[1])
    # labels that underflow together
    sure = np.tile(np.array([1e-4, 1 - 1e-4]), (4, 100, 1))
    assert np.all(np.isfinite(px.active.batch_bald(sure, 40, configurations=50)[1]))


@pytest.mark.parametrize("by", ["batch_bald", "diverse"])
def test_a_duplicate_is_not_asked_for_twice(by):
    # three questions with sure answers from each of eight samples; the first, the surest, fills
    # more of the pool than is looked at together
    sure, kinds = np.array([0.49, 0.45, 0.45]), np.repeat([0, 1, 2], [70, 5, 5])
    bits = np.array(list(itertools.product([-1, 1], repeat=3)))
    first = (0.5 + sure * bits)[:, kinds]
    p = np.stack([first, 1 - first], -1)
    if by == "batch_bald":
        chosen, told = px.active.batch_bald(p, 3)
        close(told, np.cumsum(px.information.information_gain(p)[[0, 70, 75]]))
    else:
        chosen, _ = px.active.diverse(p, p.mean(0), 3)
    assert kinds[chosen][0] == 0
    assert sorted(kinds[chosen]) == [0, 1, 2]


def test_diverse_is_the_greedy_determinant():
    f = RNG.normal(size=(9, 12, 2)) @ RNG.normal(size=(2, 2))
    noise = RNG.uniform(0.1, 1, (12, 2))
    w = RNG.dirichlet(np.full(9, 2.0))

    def value(batch):
        apart = ((f - np.tensordot(w, f, 1)) / np.sqrt(noise))[:, batch].reshape(9, -1)
        return 0.5 * np.linalg.slogdet(np.eye(apart.shape[1]) + (apart.T * w) @ apart)[1]

    chosen, told = px.active.diverse(f, noise, 5, weights=w)
    expected, values = greedy(value, 12, 5)
    assert chosen.tolist() == expected
    close(told, values)


def test_pick():
    predictive = posterior_of(*KINDS["categorical"]).predict(X, samples=5, key=0)
    for by in ("bald", "entropy", "variation_ratio", "variance"):
        scores = getattr(px.active, by)(predictive)
        assert px.active.pick(predictive, 3, by=by).tolist() == np.argsort(-scores)[:3].tolist()
        assert px.active.pick(scores, 1).tolist() == [scores.argmax()]
    best = px.active.pick(predictive, 1)[0]
    p, own = predictive.conditional_means(), px.active.entropy
    for by in ("batch_bald", "diverse"):
        whole = px.active.pick(predictive, 4, by=by)
        assert len(set(whole.tolist())) == 4
        few = px.active.pick(predictive, 4, by=by, candidates=4)
        assert set(few.tolist()) == set(px.active.pick(predictive, 4).tolist())
        assert best not in px.active.pick(predictive, 4, by=by, exclude=[best])
    assert px.active.pick(predictive, 4, by="batch_bald").tolist() == (
        px.active.batch_bald(p, 4)[0].tolist()
    )
    assert px.active.pick(predictive, 2, by=own).tolist() == (
        px.active.pick(predictive, 2, by="entropy").tolist()
    )
    # equal scores: no place of the pool is favoured
    ties = {int(px.active.pick(np.zeros(50), 1, key=k)[0]) for k in range(20)}
    assert len(ties) > 5
    drawn = px.active.pick(predictive, 11, by="random", key=1)
    assert sorted(drawn.tolist()) == list(range(11))


# -- learning


POOL = np.concatenate([RNG.normal(0, 0.05, 60), np.linspace(-2, 2, 9)]).astype("float32")[:, None]
SLOPE = 3 * POOL[:, 0] + 1


@pytest.fixture(scope="module")
def learner():
    """Not to be taught."""
    return line_learner([0], "random")


def line_learner(rows, by):
    return px.active.Learner(line(10.0), px.Conjugate(), POOL[rows], SLOPE[rows], by=by)


def test_a_line_is_learned_from_its_ends():
    """By BALD from three labels; at random nearly all would lie in the middle."""
    test = (np.linspace(-2, 2, 30)[:, None].astype("float32"), np.linspace(-5, 7, 30))
    curves = {}
    for by in ("bald", "random", "diverse"):
        learner = line_learner([0], by)
        curves[by] = px.active.run(learner, POOL, SLOPE, rounds=3, n=1, test=test)
        assert curves[by].labels.tolist() == [1, 2, 3, 4]
        assert learner.posterior.targets.given == ()
    asked = POOL[curves["bald"].chosen[0], 0]
    assert np.abs(asked) == 2.0  # the end of the pool
    for by in ("bald", "diverse"):
        assert curves[by].scores[1] < curves["random"].scores[-1]
        assert curves[by].scores[-1] < 0.02
    # asking a function is the same; n at once, none twice, and nothing twice
    learner = line_learner([0], "diverse")
    once = px.active.run(learner, POOL, lambda rows: SLOPE[rows], rounds=2, n=8, test=test)
    assert len(set(np.concatenate(once.chosen).tolist())) == 16


@pytest.mark.parametrize("update", ["refit", "posterior_as_prior"])
def test_one_after_another_is_all_at_once(update):
    """Of orthogonal inputs the posterior is independent Gaussians, as what becomes a prior is."""
    x = np.tile(np.array([[1, 1], [1, -1], [-1, 1], [-1, -1]], "float32"), (3, 1))
    y = x @ [0.5, -2.0] + 0.3 + RNG.normal(0, 0.1, 12)
    model = line(1.0, 0.2, inputs=2)
    learner = px.active.Learner(model, px.Conjugate(), x[:4], y[:4], update=update)
    learner.teach(x[4:8], y[4:8])
    last = learner.teach(x[8:], y[8:])
    joint = px.fit(model, (x, y), px.Conjugate())
    close(flat(last), flat(joint))
    deviations = [jax.tree.leaves(p.moments()[1]) for p in (last, joint)]
    for a, b in zip(*deviations, strict=True):
        close(a, b)
    assert len(learner) == 12


def test_room_to_grow_changes_nothing():
    x = RNG.normal(size=(20, 1)).astype("float32")
    data, method = (x, 2 * x[:, 0]), px.MaximumAPosteriori(1e-2)
    full = px.fit(line(), data, method, steps=30, key=0)
    # a minibatch that is larger than the data has the others go round, where they do not count
    wide = px.fit(line(), px.data.Padded(data, 64), method, steps=30, batch_size=50, key=0)
    close(flat(wide), flat(full), rtol=1e-5)


def two_moons(n, seed=0):
    random = np.random.default_rng(seed)
    angle, y = np.pi * random.random(n), random.integers(0, 2, n)
    x = np.stack([np.cos(angle) * (1 - 2 * y) + y, np.sin(angle) * (1 - 2 * y) + 0.5 * y], 1)
    return (x + random.normal(0, 0.1, x.shape)).astype("float32"), y.astype(np.int32)


def moons_learner(**options):
    x, y = two_moons(8, seed=1)
    network = px.networks.MLP(2, 2, (16,), key=0)
    model = px.Model(network, px.priors.Gaussian(3.0), px.likelihoods.Categorical())
    settings = {"steps": 40, "samples": 10, "batch_size": 16} | options
    return px.active.Learner(model, px.MCDropout(0.2, learning_rate=1e-2), x, y, **settings)


@pytest.mark.slow
def test_later_rounds_compile_nothing(tmp_path):
    pool, labels = two_moons(200)
    learner = moons_learner(by="batch_bald", init="last")
    run = {"n": 3, "test": two_moons(50, seed=2), "candidates": 60}
    with compilations() as first:
        curve = px.active.run(learner, pool, labels, rounds=2, **run)
    assert first
    with compilations() as later:
        curve = px.active.run(learner, pool, labels, rounds=6, after=curve, **run)
    assert later == []
    assert curve.labels.tolist() == list(range(8, 33, 3))
    assert len(set(np.concatenate(curve.chosen).tolist())) == 24
    # what was saved goes on the same way
    learner.save(tmp_path)
    again = px.active.Learner.load(
        tmp_path, learner.model, learner.method, by="batch_bald", init="last", samples=10, steps=40,
        batch_size=16,
    )  # fmt: skip
    assert len(again) == 32
    assert again.query(pool, 5).tolist() == learner.query(pool, 5).tolist()


def test_a_learner_in_a_file_goes_on_the_same_way(tmp_path):
    learner = line_learner([0], "diverse")
    learner.teach(POOL[[60, 65]], SLOPE[[60, 65]])
    learner.save(tmp_path)
    again = px.active.Learner.load(tmp_path, learner.model, learner.method, by="diverse")
    assert len(again) == 3
    assert again.query(POOL, 5).tolist() == learner.query(POOL, 5).tolist()


def test_ctrl_c_leaves_what_there_is():
    learner = line_learner([0], "bald")
    calls = []

    def error(predictive, y):
        calls.append(len(learner))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return np.abs(predictive.mean - y).mean()

    run = {"n": 2, "test": (POOL, SLOPE), "metric": error}
    curve = px.active.run(learner, POOL, SLOPE, rounds=5, **run)
    assert curve.labels.tolist() == [1, 3]
    assert len(curve.scores) == 2
    assert len(learner) == 5  # labels that were paid for are not lost
    assert sum(map(len, curve.chosen)) == 4
    after = px.active.run(learner, POOL, SLOPE, rounds=1, after=curve, **run)
    assert after.labels.tolist() == [1, 3, 5, 7]  # the score that was missing, and the next
    assert len(set(np.concatenate(after.chosen).tolist())) == 6


def no_fit(monkeypatch, error):
    """From now on fits end with an error."""

    def fail(*arguments, **options):
        raise error

    monkeypatch.setattr("posterax.active.learner.fit", fail)


def test_labels_of_a_fit_that_fails_are_not_learned(learner, monkeypatch):
    before = learner.posterior, learner.rounds, learner.x, learner.y
    no_fit(monkeypatch, KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        learner.teach(POOL[[3]], SLOPE[[3]])
    now = learner.posterior, learner.rounds, learner.x, learner.y
    assert all(a is b for a, b in zip(before, now, strict=True))


def test_labels_asked_for_in_vain_are_not_asked_for_again(monkeypatch):
    asked = []

    def ask(rows):
        asked.extend(rows.tolist())
        return SLOPE[rows]

    run = {"n": 2, "test": (POOL, SLOPE)}
    learner = line_learner([0], "bald")
    with monkeypatch.context() as patch:
        no_fit(patch, KeyboardInterrupt)
        curve = px.active.run(learner, POOL, ask, rounds=2, **run)
    assert curve.labels.tolist() == [1]
    assert curve.pending[0].tolist() == asked
    curve = px.active.run(learner, POOL, ask, rounds=2, after=curve, **run)
    assert curve.pending is None
    assert len(asked) == len(set(asked)) == 4
    # as if nothing had happened
    other = px.active.run(line_learner([0], "bald"), POOL, SLOPE, rounds=2, **run)
    assert np.concatenate(curve.chosen).tolist() == np.concatenate(other.chosen).tolist() == asked
    close(curve.scores, other.scores)


@pytest.mark.parametrize("update", ["refit", "posterior_as_prior"])
def test_half_a_fit_is_no_prior(learner, update, monkeypatch):
    """Where the posterior is the next prior, Ctrl-C raises in the place of ending a fit early."""
    whole = []

    def fit(*arguments, **options):
        whole.append(bool(_presses.raising))
        return learner.posterior

    monkeypatch.setattr("posterax.active.learner.fit", fit)
    one = px.active.Learner(
        learner.model, learner.method, POOL[:2], SLOPE[:2], update=update,
        posterior=learner.posterior,
    )  # fmt: skip
    one.teach(POOL[[3]], SLOPE[[3]])
    assert whole == [update == "posterior_as_prior"]
    assert not bool(_presses.raising)
    px.active.run(one, POOL, SLOPE, rounds=1, n=1, test=(POOL, SLOPE))
    assert whole[1]  # nor does the loop ask what half a fit wants to know


@pytest.mark.parametrize(
    ("message", "x", "y"),
    [
        ("^x of shape", np.zeros((2, 3)), np.zeros(2)),
        ("^x and y must have the same number", POOL[:2], np.zeros(3)),
        ("^x", np.full((1, 1), np.nan), np.zeros(1)),
        ("^y", POOL[:1], np.full(1, np.nan)),
        ("^y has shape", POOL[:2], np.zeros((2, 3))),
        ("^y must be like those before", POOL[:2], np.zeros((2, 1))),
        ("^x of shape", (POOL[:2],), np.zeros(2)),
    ],
)
def test_labels_that_do_not_fit_are_not_stored(learner, message, x, y):
    before = len(learner), learner.rounds
    with pytest.raises(ValueError, match=message):
        learner.teach(x, y)
    assert (len(learner), learner.rounds) == before


def test_which_scores_are_good():
    labels, scores = np.array([1, 2, 3]), np.array([0.5, 0.2, 0.4])
    curve = px.active.Curve(labels, scores, (), "negative_log_likelihood")
    assert (curve.first(0.45), curve.first(0.6)) == (2, 1)
    assert curve._replace(metric="accuracy").first(0.45) == 1
    own = curve._replace(metric="surprise")
    with pytest.raises(ValueError, match="lower_is_better: whether less or more of 'surprise'"):
        own.first(0.3)
    assert own._replace(lower_is_better=True).first(0.45) == 2
    assert own._replace(lower_is_better=False).first(0.45) == 1
    named = set(px.active.loop.LOWER_IS_BETTER) - {"rmse"}
    assert named <= set(px.metrics.__all__)


def test_inputs_that_are_excluded(learner):
    scores = np.arange(5.0)
    mask = np.array([False, True, False, False, True])
    for exclude in ([1, 4], mask, mask.tolist(), np.array([4, 1, 1])):
        assert px.active.pick(scores, 3, exclude=exclude).tolist() == [3, 2, 0]
    refused = {"no input 5 in a pool of 5": [5], "no input -1": [-1], "each of 5": [True, False]}
    for message, exclude in refused.items():
        with pytest.raises(ValueError, match=f"^exclude: .*{message}"):
            px.active.pick(scores, 1, exclude=exclude)
    with pytest.raises(TypeError, match="exclude must be numbers"):
        px.active.pick(scores, 1, exclude=[1.0])
    only = np.ones(len(POOL), bool)
    only[7] = False
    assert learner.query(POOL, 1, exclude=only).tolist() == [7]
    assert learner.query(POOL, 1, exclude=only, candidates=5).tolist() == [7]


# -- what is refused


def test_errors_name_the_argument():
    predictive = posterior_of(*KINDS["categorical"]).predict(X, samples=5, key=0)
    values = posterior_of(*KINDS["gaussian"]).predict(X, samples=5, key=0)
    point = posterior_of(*KINDS["categorical"]).predict(X, samples=1, key=0)
    pick = px.active.pick
    refused = [
        ("by must be one of", lambda: pick(predictive, 1, by="bold")),
        ("n=12 is more", lambda: pick(predictive, 12)),
        ("n must be a whole", lambda: pick(predictive, 0)),
        ("by='bald' needs posterior samples", lambda: pick(point, 1)),
        ("by: variation_ratio is for classes", lambda: pick(values, 1, by="variation_ratio")),
        ("by='batch_bald' is for classes", lambda: pick(values, 1, by="batch_bald")),
        ("by must give one number", lambda: pick(predictive, 1, by=lambda p: p.mean)),
        ("part must be", lambda: px.active.variance(values, "aleatoric")),
        ("probabilities must have shape", lambda: px.active.batch_bald(np.ones((2, 3)), 1)),
        ("weights must have", lambda: px.active.batch_bald(np.ones((2, 3, 1)), 1, weights=[1])),
        ("noise must be above 0", lambda: px.active.diverse(np.ones((2, 3)), 0.0, 1)),
        ("noise must be a number", lambda: px.active.diverse(np.ones((2, 3)), [1, 2], 1)),
    ]
    for message, call in refused:
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="by='bald' needs a Predictive"):
        pick(np.full((2, 2), 0.5), 1)
    start = line(), px.Conjugate(), POOL[:2], SLOPE[:2]
    with pytest.raises(ValueError, match="update must be one of"):
        px.active.Learner(*start, update="later")
    with pytest.raises(ValueError, match="init must be one of"):
        px.active.Learner(*start, init="warm")
    with pytest.raises(TypeError, match="checkpoint: the learner"):
        px.active.Learner(*start, checkpoint="here")
    learner = px.active.Learner(*start)
    prior = px.active.Learner(
        line(), px.IVON(), *start[2:], update="posterior_as_prior", posterior=learner.posterior
    )
    assert prior.init == "last"  # where it is the prior, it is the start too
    test = (POOL, SLOPE)
    with pytest.raises(ValueError, match="rounds × n = 70 is more than the pool"):
        px.active.run(learner, POOL, SLOPE, rounds=7, n=10, test=test)
    with pytest.raises(ValueError, match="labels must be"):
        px.active.run(learner, POOL, SLOPE[:3], rounds=1, n=1, test=test)


# -- pictures, experiment


def test_learning_curves_are_drawn():
    labels = [20, 30, 40, 50]
    seeds = [(labels, [0.5, 0.6 + s, 0.7 + s, 0.8]) for s in (0, 0.1)]
    curves = {
        "random": (labels, [0.5, 0.6, 0.7, 0.74]),
        "BALD": seeds,
        "third": (labels, [0.7] * 4),
    }
    axes = px.plot.learning_curve(Figure().subplots(), curves, baseline="random", mark="BALD")
    close(axes.lines[1].get_ydata(), [50, 65, 75, 80])
    assert len(axes.collections) == 1  # one band: the others have one seed
    texts = {text.get_text(): text for text in axes.texts}
    assert set(texts) == {"random", "BALD", "third", "40 labels"}
    heights = sorted(texts[name].xy[1] for name in curves)
    assert min(np.diff(heights)) > 0.059  # of the height of the axes
    with pytest.raises(ValueError, match="baseline must be one of"):
        px.plot.learning_curve(axes, curves, baseline="chance")
    with pytest.raises(ValueError, match="'BALD' must have one score"):
        px.plot.learning_curve(axes, {"BALD": (labels, [0.5])})


def test_the_report_says_what_was_reached(tmp_path):
    size = experiment.BUDGETS["quick"]
    random, by_bald = [0.2, 0.5, 0.6, 0.8], [0.2, 0.6, 0.9, 0.9]
    runs = {f"study/{experiment.name(s)}": {"accuracy": [0.1 * i], "seconds": 1.0}
            for i, s in enumerate(size.grid)}  # fmt: skip
    for arm, scores in (("random", random), ("BALD", by_bald)):
        for seed in (0, 1):
            shifted = [s + 0.02 * seed for s in scores]
            runs[f"{arm}/{seed}"] = {
                "labels": [20, 30, 40, 50], "accuracy": shifted, "seconds": 2.0
            }  # fmt: skip
    store = experiment.Store(None, {"budget": "quick", **size._asdict()})
    store.content["runs"] = runs
    found = active_report.summary(store)
    close(found["goal"], 0.81)
    assert found["arms"]["BALD"]["reaches"] == 40
    assert found["arms"]["BALD"]["reaches by seed"] == [40, 40]
    assert not found["holds"]  # 40 of 50 are more than a half
    text = active_report.page(store)
    assert "with 40" in text
    assert experiment.chosen(store, size) == size.grid[-1]
    active_report.draw(store, tmp_path / "curves.png")
    assert (tmp_path / "curves.png").stat().st_size > 5000


@pytest.mark.slow
def test_the_experiment_runs(tmp_path):
    store = reproduce("active", tmp_path, budget="quick", seeds=2)
    assert set(store.content["summary"]["arms"]) == {"random", "BALD"}
    first = {
        tuple(store.runs[f"{arm}/{experiment.FIRST_SEED}"]["accuracy"][:1])
        for arm in ("random", "BALD")
    }
    assert len(first) == 1  # the same start
