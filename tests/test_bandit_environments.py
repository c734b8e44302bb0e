"""Environments, the linear policy and the picture of regret."""

import io
from types import SimpleNamespace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from scipy import stats

import experiments
import posterax as px
from experiments import bandit, bandit_report
from posterax.bandits import LinearThompson, from_csv, from_table, switching, tables, wheel
from posterax.bandits.linear import student
from posterax.bandits.tables import encode

pytestmark = pytest.mark.usefixtures("hasty_module")

RNG = np.random.default_rng(0)


@eqx.filter_jit
def drawn(environment, n, t):
    return jax.vmap(lambda key: environment.draw(key, t))(jax.random.split(jax.random.key(0), n))


def many(environment, n, t=0):
    """Interactions of one moment."""
    return jax.tree.map(np.asarray, drawn(environment, n, jnp.asarray(t)))


@pytest.fixture(scope="module")
def mushrooms(tmp_path_factory):
    """A folder with a table like the mushrooms': an attribute tells, some values lack."""
    edible = np.arange(1000) < 518
    frame = pd.DataFrame({"class": np.where(edible, "e", "p"), "odor": np.where(edible, "n", "f")})
    frame["root"] = np.where(np.arange(1000) % 3 == 0, "?", "b")
    where = tmp_path_factory.mktemp("tables")
    frame.to_csv(where / "mushroom.csv", index=False)
    return where


@pytest.fixture
def mushroom(mushrooms, monkeypatch):
    monkeypatch.setenv("POSTERAX_DATA", str(mushrooms))
    return px.bandits.mushroom()


# -- tables


def test_mushrooms_pay_as_in_the_paper(mushroom):
    assert (mushroom.features, mushroom.actions) == (4, 2)  # two odors, b and missing
    n = 20_000
    found = many(mushroom, n)
    edible = found.context[:, 1] == 1  # f, n
    assert np.all(found.expected[edible] == [0, 5])
    assert np.all(found.expected[~edible] == [0, -15])
    assert np.all(found.rewards[:, 0] == 0)
    assert np.all(found.rewards[edible, 1] == 5)
    assert set(found.rewards[~edible, 1]) == {-35, 5}
    share = np.mean(found.rewards[~edible, 1] == 5)
    assert abs(share - 0.5) < 4 * 0.5 / np.sqrt(np.sum(~edible))
    assert abs(edible.mean() - 0.518) < 4 * np.sqrt(0.518 * 0.482 / n)
    # never eat, always eat, a coin: 2.59, 7.23, 4.91 each time
    lost = found.expected.max(1, keepdims=True) - found.expected
    np.testing.assert_allclose(lost.mean(0), [2.59, 7.23], atol=4 * 7.5 / np.sqrt(n))


def test_a_classification_pays_one_for_the_right_class():
    x, y = RNG.normal(size=(60, 2)), np.repeat(["a", "b", "c"], 20)
    environment = from_table(x, y)
    assert environment.classes == ("a", "b", "c")
    found = many(environment, 300)
    rows = (found.context[:, None] == encode(x)).all(-1).argmax(1)
    assert np.all(np.array(["a", "b", "c"])[found.rewards.argmax(1)] == y[rows])
    assert np.all(found.rewards.sum(1) == 1)
    assert np.all(found.rewards == found.expected)
    assert len(set(rows)) > 50  # all rows are drawn: 300 of 60 miss one with probability 0.6 %


def test_rewards_may_have_other_actions_than_classes():
    environment = from_table(np.eye(2), [0, 1], rewards=[[1, 2, 3], [4, 5, 6]])
    assert environment.actions == 3
    found = many(environment, 50)
    first = found.context[:, 0] > 0
    assert np.all(found.rewards[first] == [1, 2, 3])
    assert np.all(found.rewards[~first] == [4, 5, 6])


def test_columns_become_numbers():
    frame = pd.DataFrame(
        {
            "size": [1.0, 2.0, np.nan, 3.0],
            "colour": ["red", None, "blue", "red"],
            "ripe": [True, False, True, True],
            "same": [7, 7, 7, 7],
        }
    )
    third = 1 / np.std([1, 2, 3])
    expected = [
        [-third, 0, 0, 0, 1, 0, 1, 0],
        [0, 0, 1, 0, 0, 1, 0, 0],
        [0, 1, 0, 1, 0, 0, 1, 0],
        [third, 0, 0, 0, 1, 0, 1, 0],
    ]  # size, its missing; missing, blue, red; False, True; a constant
    np.testing.assert_allclose(encode(frame), expected, rtol=1e-6)


def test_a_csv_leaves_out_rows_without_a_label():
    text = "a,label\n1,x\n2,?\n3,y\n4,\n"
    environment = from_csv(io.StringIO(text), "label")
    assert environment.contexts.shape == (2, 1)
    assert environment.classes == ("x", "y")


def test_words_for_nothing_are_values_but_among_numbers():
    text = "a,b,label\nNone,1,NA\nx,NA,None\n?,3,NA\n"
    environment = from_csv(io.StringIO(text), "label")
    assert environment.classes == ("NA", "None")
    # None, x, missing; b, its missing
    half = np.sqrt(1.0)
    expected = [[0, 1, 0, -half, 0], [0, 0, 1, 0, 1], [1, 0, 0, half, 0]]
    np.testing.assert_allclose(environment.contexts, expected, atol=1e-6)


def test_numbers_in_arrays_of_objects_are_numbers():
    x = np.array([[1.0, "u"], [3.0, "v"]], object)
    np.testing.assert_array_equal(encode(x), [[-1, 1, 0], [1, 0, 1]])


def test_tables_that_cannot_be_read_are_refused():
    frame = pd.DataFrame([[1, 2], [3, 4]], columns=["a", "a"])
    with pytest.raises(ValueError, match="more than one column 'a'"):
        from_table(frame, [0, 1])
    with pytest.raises(ValueError, match="more than one column 'b'"):
        from_csv(io.StringIO("a,b,b\n1,2,2\n"), "b")
    for missing in (None, np.nan):
        with pytest.raises(ValueError, match=r"y: no class in 1 rows \(1\)"):
            from_table(np.eye(2), np.array([1.0, missing], object))


def test_tables_from_openml_are_kept_in_the_form_of_the_files(tmp_path, monkeypatch):
    monkeypatch.delenv("POSTERAX_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    asked = []

    def fetch(data_id, as_frame):
        asked.append(data_id)
        if data_id == tables.OPENML["mushroom"]:
            data = pd.DataFrame({"bruises%3F": ["t", "f"], "odor": ["a", None]})
            return SimpleNamespace(data=data, target=pd.Series(["e", "p"]))
        data = pd.DataFrame({"Elevation": [2000, 2100]})
        for i in range(1, 5):
            data[f"Wilderness_Area{i}"] = [int(i == 2), int(i == 3)]
        for i in range(1, 41):
            data[f"Soil_Type{i}"] = [int(i == 40), int(i == 1)]
        return SimpleNamespace(data=data, target=pd.Series([1, 7]))

    monkeypatch.setattr("sklearn.datasets.fetch_openml", fetch)
    for _ in range(2):
        found = tables.table("mushroom")
        assert list(found) == ["bruises", "odor", "class"]
        assert found["odor"].isna().tolist() == [False, True]
        forest = tables.table("covertype")
        assert list(forest) == ["Elevation", "wilderness-area", "soil-type", "cover-type"]
        assert forest["soil-type"].tolist() == ["40", "1"]
        assert px.bandits.covertype().features == 5
    assert len(asked) == 2

    def unreachable(data_id, as_frame):
        raise OSError("no route")

    monkeypatch.setattr("sklearn.datasets.fetch_openml", unreachable)
    with pytest.raises(FileNotFoundError, match=r"adult\.csv.*no route.*POSTERAX_DATA"):
        px.bandits.adult()


# -- the wheel, and change


def test_the_wheel_pays_at_the_rim():
    found = many(wheel(0.8), 20_000)
    radius = np.hypot(*found.context.T)
    assert np.all(radius <= 1 + 1e-6)
    # uniform on the disc: P(radius < r) = r²
    assert abs(np.mean(radius > 0.8) - 0.36) < 4 * np.sqrt(0.36 * 0.64 / 20_000)
    inside = radius <= 0.8
    assert np.all(found.expected[inside] == np.float32([1.2, 1, 1, 1, 1]))
    best = found.expected[~inside].argmax(1)
    assert np.all(found.expected[~inside].max(1) == 50)
    quadrant = 1 + 2 * (found.context[~inside, 0] < 0) + (found.context[~inside, 1] < 0)
    assert np.all(best == quadrant)
    noise = found.rewards - found.expected
    assert abs(noise.std() - 0.01) < 4 * 0.01 / np.sqrt(2 * noise.size)


def test_switching_actions_rolls_what_is_paid():
    still, moving = wheel(0.5), switching(wheel(0.5), every=10)
    before = many(still, 20)
    for t, places in ((9, 0), (10, 1), (49, 4), (50, 0)):
        after = many(moving, 20, t)
        assert np.all(after.context == before.context)
        assert np.all(after.expected == np.roll(before.expected, places, 1))
        assert np.all(after.rewards == np.roll(before.rewards, places, 1))


def test_switching_classes_makes_poison_of_food(mushroom):
    moving = switching(mushroom, every=5, what="classes")
    found = many(moving, 200, 5)
    edible = found.context[:, 1] == 1
    assert np.all(found.expected[edible] == [0, -15])
    assert np.all(found.expected[~edible] == [0, 5])
    again = many(moving, 200, 10)
    assert np.all(again.expected[edible] == [0, 5])


# -- the linear policy


def course(policy, x, actions, rewards):
    """The state after all these interactions, in one program."""
    start = policy.init(x.shape[1], int(actions.max()) + 1, jax.random.key(0))

    def one(state, seen):
        return policy.update(state, *seen, jax.random.key(0)), None

    seen = (jnp.asarray(x), jnp.asarray(actions), jnp.asarray(rewards))
    return jax.tree.map(np.asarray, jax.jit(lambda s: jax.lax.scan(one, s, seen)[0])(start))


def batch(x, rewards, weight, scale, shape=6.0):
    """Mean, covariance (in units of the noise), k and v of all data at once, in float64."""
    ones = np.c_[x, np.ones(len(x))].astype(np.float64)
    prior = np.eye(ones.shape[1]) / scale**2
    covariance = np.linalg.inv(prior + (ones * weight[:, None]).T @ ones)
    mean = covariance @ ((ones * weight[:, None]).T @ rewards)
    left = weight @ (rewards * (rewards - ones @ mean))
    k = shape + weight.sum() / 2
    return mean, covariance, k, (shape + left / 2) / k


def test_fifty_thousand_updates_in_float32_are_the_batch_solution():
    n, d = 50_000, 30
    x = np.zeros((n, d), np.float32)  # zeros and ones: with the intercept they are collinear
    for group in range(6):
        x[np.arange(n), 5 * group + RNG.integers(0, 5, n)] = 1
    actions = RNG.integers(0, 2, n)
    w = 5 * RNG.normal(size=(2, d + 1))
    r = np.sum(w[actions, :-1] * x, 1) + w[actions, -1] + 3 * RNG.normal(size=n)
    r = r.astype(np.float32)
    state = course(LinearThompson(prior_scale=3.0), x, actions, r)
    for a in range(2):
        mine = actions == a
        mean, covariance, k, v = batch(x[mine], r[mine], np.ones(mine.sum()), 3.0)
        root = state.root[a].astype(np.float64)
        seen = np.c_[x[:50], np.ones(50)]  # what is predicted, where no direction is free
        deviation = np.sqrt(v * np.einsum("ni,ij,nj->n", seen, covariance, seen))
        # rounding has to be nothing beside what is not known anyway
        assert np.all(np.abs(seen @ (state.mean[a] - mean)) < 0.1 * deviation)
        got = np.einsum("ni,ij,nj->n", seen, root @ root.T, seen)
        np.testing.assert_allclose(got, deviation**2 / v, rtol=0.02)
        np.testing.assert_allclose(np.diag(root @ root.T), np.diag(covariance), rtol=0.02)
        assert state.shape[a] == k
        np.testing.assert_allclose(state.noise[a], v, rtol=1e-3)


def test_few_updates_are_the_batch_solution_closely():
    x, r = RNG.normal(size=(40, 3)).astype(np.float32), RNG.normal(size=40).astype(np.float32)
    state = course(LinearThompson(), x, np.zeros(40, int), r)
    mean, covariance, k, v = batch(x, r, np.ones(40), 2.0)
    np.testing.assert_allclose(state.mean[0], mean, atol=1e-5)
    np.testing.assert_allclose(state.root[0] @ state.root[0].T, covariance, atol=1e-6)
    np.testing.assert_allclose([state.shape[0], state.noise[0]], [k, v], rtol=1e-5)


def test_forgetting_is_weighted_least_squares():
    n, keep = 400, 0.95
    x, r = RNG.normal(size=(n, 2)).astype(np.float32), RNG.normal(size=n).astype(np.float32)
    state = course(LinearThompson(forgetting=keep), x, np.zeros(n, int), r)
    # the prior is forgotten as well: after 400 steps 0.95^400 = 1e-9 of it is left
    mean, covariance, _, _ = batch(x, r, keep ** np.arange(n)[::-1], 1e6)
    np.testing.assert_allclose(state.mean[0], mean, atol=1e-4)
    np.testing.assert_allclose(state.root[0] @ state.root[0].T, covariance, rtol=1e-3, atol=1e-5)


def test_what_is_not_tried_is_forgotten_but_no_further_than_the_prior():
    n = 2000
    actions = np.r_[np.ones(50, int), np.zeros(n - 50, int)]
    x = RNG.normal(size=(n, 2)).astype(np.float32)
    r = x.sum(1)
    lasting = course(LinearThompson(), x, actions, r)
    passing = course(LinearThompson(forgetting=0.99), x, actions, r)
    for action, root in ((1, lasting.root[1]), (0, passing.root[0])):
        assert np.all(np.sum(root**2, 1) < 0.05), action
    np.testing.assert_allclose(np.sum(passing.root[1] ** 2, 1), 4.0, rtol=1e-5)


def test_choices_follow_the_posterior():
    """Two actions that are equally known: each is taken as often as its draw is the larger one."""
    policy = LinearThompson(noise=1.0, intercept=False)
    state = policy.init(1, 2, jax.random.key(0))
    state = state._replace(mean=jnp.array([[0.0], [1.0]]), root=jnp.array([[[1.0]], [[0.5]]]))
    keys = jax.random.split(jax.random.key(1), 20_000)
    taken = jax.jit(jax.vmap(lambda k: policy.choose(state, jnp.ones(1), k)))(keys)
    p = 0.81445  # Φ(1 / √1.25)
    assert abs(float(taken.mean()) - p) < 4 * np.sqrt(p * (1 - p) / 20_000)


def test_student_by_two_uniforms():
    for freedom in (3.0, 12.0, 50_000.0):
        found = student(jax.random.key(0), jnp.full(4000, freedom))
        assert stats.kstest(np.asarray(found), stats.t(freedom).cdf).pvalue > 1e-3


def test_linear_thompson_learns_and_forgetting_follows_a_change():
    x = RNG.normal(size=(500, 2))
    still = from_table(x, x[:, 0] > 0, rewards=[[1, -1], [-1, 1]])
    moving = switching(still, every=400)
    lost = {}
    for keep in (1.0, 0.97):
        policy = LinearThompson(noise=0.5, forgetting=keep)
        lost[keep] = px.bandits.play(moving, policy, 800, runs=1, key=0).regret[0]
    coin = 400.0  # in 400 interactions: half of the actions lose 2
    assert lost[1.0][:400].sum() < 0.25 * coin
    assert lost[0.97][400:].sum() < 0.5 * lost[1.0][400:].sum()


# -- refusals


def test_refusals():
    x, y = np.ones((3, 2)), [0, 1, 1]
    refused = {
        "y must have one class": lambda: from_table(x, y[:2]),
        "rewards must have a row": lambda: from_table(x, y, rewards=[[1, 2]]),
        "otherwise must": lambda: from_table(x, y, otherwise=[[1], [2]]),
        "must be finite": lambda: from_table(x, y, rewards=[[1, np.nan], [0, 0]]),
        "chance must lie": lambda: from_table(x, y, otherwise=[[0, 0], [0, 0]], chance=2),
        "at least one row": lambda: from_table(x[:0], []),
        "infinite": lambda: from_table([[np.inf], [0], [1]], y),
        "label must be one of": lambda: from_csv(io.StringIO("a,b\n1,2\n"), "c"),
        "delta must lie": lambda: wheel(1.5),
        "every must be": lambda: switching(wheel(), 0),
        "what must be": lambda: switching(wheel(), 5, what="all"),
        "for tables": lambda: switching(wheel(), 5, what="classes"),
        "prior_scale must be": lambda: LinearThompson(prior_scale=0),
        "noise must be": lambda: LinearThompson(noise=-1),
        "forgetting must lie": lambda: LinearThompson(forgetting=1.5),
        "name must be one of": lambda: tables.table("iris"),
    }
    for message, call in refused.items():
        with pytest.raises(ValueError, match=message):
            call()
    with pytest.raises(TypeError, match="environment must be"):
        switching(3, 5)


# -- the experiment


def test_the_experiment_is_told_and_goes_on_where_it_was(mushrooms, monkeypatch, tmp_path):
    monkeypatch.setenv("POSTERAX_DATA", str(mushrooms))
    small = bandit.Budget(150, 1, 40, 1, worlds=("wheel",))
    monkeypatch.setitem(bandit.BUDGETS, "quick", small)
    made = []

    def policy(name, settings, size, updates):  # what is told does not depend on who plays
        made.append(name)
        return px.bandits.Uniform()

    monkeypatch.setattr(bandit, "policy", policy)
    store = experiments.reproduce("bandit", tmp_path, budget="quick", seeds=2)
    page = (tmp_path / "bandit.md").read_text()
    for name in (*bandit.MUSHROOM, "never eat", "wheel", "10³ to 10⁴"):
        assert name in page
    assert "below 10,000" not in page  # which is asked of 50,000 interactions only
    runs = store.runs["mushroom/uniform"]
    assert list(runs["regret"]) == ["100", "150"]
    assert np.shape(runs["curves"]) == (2, len(runs["after"]))
    assert np.array(runs["curves"])[:, -1].tolist() == runs["regret"]["150"]
    assert (tmp_path / "bandit.png").stat().st_size > 10_000

    def refuse(*given):
        raise AssertionError("nothing is played again")

    monkeypatch.setattr(bandit, "one", refuse)
    again = experiments.reproduce("bandit", tmp_path, budget="quick", seeds=2)
    assert again.runs == store.runs
    assert len(made) == 2 * len(store.runs)


def test_policies_of_the_experiment():
    size, chosen = bandit.BUDGETS["full"], bandit.CHOSEN
    thompson = bandit.policy("Bayes by Backprop", chosen, size, 64)
    assert (thompson.samples, thompson.buffer, thompson.batch_size) == (2, 4096, 64)
    assert thompson.hidden == (100, 100)
    for prior, kind in (((0.1,), px.priors.Gaussian), ((0.5, 1.0, 0.1), px.priors.ScaleMixture)):
        made = bandit.policy("Bayes by Backprop", chosen._replace(prior=prior), size, 64)
        assert isinstance(made.prior, kind)
    for name, epsilon in (("greedy", 0), ("1 % greedy", 0.01), ("5 % greedy", 0.05)):
        greedy = bandit.policy(name, chosen, size, 64)
        assert greedy.epsilon == epsilon
        assert (greedy.hidden, greedy.updates) == (thompson.hidden, thompson.updates)
        assert greedy.reward_scale == thompson.reward_scale


def test_the_verdict_tells_what_is_missed():
    def told(own, *greedy):
        values = dict(zip(("Bayes by Backprop", *bandit.GREEDY), (own, *greedy), strict=True))
        found = {name: {"50000": {"mean": value}} for name, value in values.items()}
        return bandit_report._verdict(found, "50000")

    assert "below every ε-greedy in the mean, and below 10,000" in told(900, 1000, 2000, 3000)
    assert "**not** below greedy in the mean, and below" in told(1500, 1000, 2000, 3000)
    assert "**not** below 10,000" in told(10_500, 11_000, 12_000, 13_000)


# -- the picture


def test_regret_is_drawn():
    axes = Figure().subplots()
    lost = np.array([[1.0, 0, 0, 1], [3.0, 0, 2, 0]])
    assert px.plot.regret(axes, {"a": lost, "b": 10 * lost}, log=False, title="t") is axes
    first, second = axes.get_lines()
    np.testing.assert_allclose(first.get_ydata(), [2, 2, 3, 3.5])
    np.testing.assert_allclose(first.get_xdata(), [1, 2, 3, 4])
    np.testing.assert_allclose(second.get_ydata(), [20, 20, 30, 35])
    band = axes.collections[0].get_paths()[0].vertices
    assert (band[:, 1].min(), band[:, 1].max()) == (1, 5)
    assert sorted(text.get_text() for text in axes.texts) == ["a", "b"]
    assert axes.get_title() == "t"
    assert "least to largest" in axes.get_ylabel()

    axes = Figure().subplots()
    px.plot.regret(axes, {"a": (np.array([10, 20]), [[1.0, 2], [3, 6]])}, band="error")
    assert axes.get_yscale() == "log"
    np.testing.assert_allclose(axes.get_lines()[0].get_ydata(), [2, 4])
    top = axes.collections[0].get_paths()[0].vertices[:, 1].max()
    np.testing.assert_allclose(top, 4 + 2)  # ± the deviation 2√2 over √2
    for bad in ({}, np.zeros((2, 0)), (np.arange(3), np.ones((2, 2)))):
        with pytest.raises(ValueError, match="played"):
            px.plot.regret(axes, bad)
    with pytest.raises(ValueError, match="band must be"):
        px.plot.regret(axes, lost, band="all")


def test_names_beside_the_lines_do_not_meet():
    axes = Figure().subplots()
    px.plot.regret(axes, {f"policy {i}": np.full((1, 10), 1 + i / 100) for i in range(8)})
    heights = np.sort([text.xy[1] for text in axes.texts])
    assert np.all(np.diff(heights) > 0.05)
    assert heights[-1] <= 1 + 1e-9
