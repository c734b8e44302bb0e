"""Memory: what a process may still take, and arguments that ask for more than that."""

import resource

import numpy as np
import pytest

import posterax as px
from posterax._util import memory
from posterax.demo import curve_data, curve_model

MANY = 10**9
GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine of 64 GiB without limits, as files below a folder; others can be added."""
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)

    def put(**files):
        for name, text in files.items():
            path = tmp_path / name.replace("__", "/").replace("_DOT_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return memory.available_bytes(tmp_path)

    put(proc__meminfo="MemTotal: 90 kB\nMemAvailable: 67108864 kB\n")
    return put


def group(folder, limit, used, stat=""):
    """Files of a control group of the second version."""
    at = f"sys__fs__cgroup__{folder}memory_DOT_"
    return {f"{at}max": f"{limit}\n", f"{at}current": f"{used}\n", f"{at}stat": stat}


def test_the_host_alone(machine):
    assert machine() == 64 * GIB


def test_a_container_has_what_its_group_leaves(machine):
    machine(proc__self__cgroup="0::/\n")
    assert machine(**group("", 2 * GIB, GIB)) == GIB
    # pages of files that were read are given back
    assert machine(**group("", 2 * GIB, GIB, f"inactive_file {GIB // 2}\nanon 7\n")) == 1.5 * GIB
    assert machine(**group("", "max", GIB)) == 64 * GIB
    assert machine(**group("", GIB, 2 * GIB)) == 0
    machine(**group("", "max", 2 * GIB))
    assert machine(sys__fs__cgroup__memory_DOT_high=f"{3 * GIB}\n") == GIB


def test_the_least_of_all_groups_around_counts(machine):
    machine(proc__self__cgroup="1:name=systemd:/a\n0::/outer/inner\n")
    machine(**group("outer__inner__", 8 * GIB, GIB))
    assert machine() == 7 * GIB
    assert machine(**group("outer__", 4 * GIB, 3 * GIB)) == GIB


@pytest.mark.parametrize("path", ["/docker/0123", "/", "/../outside"])
def test_groups_of_the_first_version(machine, path):
    machine(proc__self__cgroup=f"9:cpu,cpuacct:/\n4:memory:{path}\n")
    at = "sys__fs__cgroup__memory__memory_DOT_"
    machine(**{f"{at}limit_in_bytes": f"{GIB}\n", f"{at}usage_in_bytes": f"{GIB // 2}\n"})
    assert machine(**{f"{at}stat": f"total_inactive_file {GIB // 4}\n"}) == 0.75 * GIB
    assert machine(**{f"{at}limit_in_bytes": "9223372036854771712\n"}) == 64 * GIB


def test_own_limits_count(machine, monkeypatch):
    machine(proc__self__status="Name: python\nVmSize: 1048576 kB\nVmData: 524288 kB\n")
    limits = {resource.RLIMIT_AS: 5 * GIB}
    monkeypatch.setattr(resource, "getrlimit", lambda w: (limits.get(w, resource.RLIM_INFINITY), 0))
    assert machine() == 4 * GIB
    limits[resource.RLIMIT_DATA] = GIB
    assert machine() == GIB // 2


def test_nothing_known_and_nonsense(tmp_path, monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (resource.RLIM_INFINITY,) * 2)
    assert memory.available_bytes(tmp_path / "nowhere") is None
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/meminfo").write_bytes(b"\xff\xfe MemAvailable\n")
    (tmp_path / "proc/self/cgroup").write_text("nonsense\n0\n::\n")
    assert memory.available_bytes(tmp_path) is None


# -- arguments that ask for more


@pytest.fixture
def little(monkeypatch):
    monkeypatch.setattr(memory, "available_bytes", lambda: GIB)


@pytest.fixture(scope="module")
def posterior():
    return px.fit(curve_model(), curve_data(8), px.BayesByBackprop(), steps=2, key=0)


X, Y = curve_data(8)
ASKED = {
    "predict": lambda q: q.predict(X, samples=MANY),
    "sample": lambda q: q.sample(0, MANY),
    "expectation": lambda q: q.expectation(lambda w: w.network.layers[0].bias, samples=MANY),
    "draws of y": lambda q: q.predict(X, samples=2).sample(MANY),
    "elbo": lambda q: px.selection.elbo(q, (X, Y), samples=MANY),
    "loo": lambda q: px.selection.loo(q, (X, Y), samples=MANY),
    "predictive_check": lambda q: px.selection.predictive_check(q, (X, Y), "max", samples=MANY),
    "prune": lambda q: px.prune(q, tolerance=0.1, validation=(X, Y), samples=MANY),
    "active": lambda q: px.active.scores(q.predict(X, samples=MANY), by="std"),
}


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
def test_a_thousand_million_draws_are_refused_by_name(ask, posterior):
    with pytest.raises(MemoryError, match=r"(samples|n)=1,000,000,000.* needs [\d,]+ bytes"):
        ask(posterior)


@pytest.mark.usefixtures("little")
def test_stored_draws_are_no_more_than_they_are():
    point = px.fit(curve_model(), (X, Y), px.MaximumAPosteriori(), steps=2, key=0)
    predictive = point.predict(X, samples=MANY)
    assert predictive.samples == 1
    with pytest.raises(MemoryError, match="n=1,000,000,000"):
        predictive.sample()


METHODS = [
    px.SVGD(particles=MANY), px.SMC(particles=MANY), px.NUTS(chains=MANY), px.HMC(chains=MANY),
    px.DeepEnsemble(members=MANY), px.BlackBoxVI(samples=MANY), px.BayesByBackprop(samples=MANY),
    px.IVON(samples=MANY), px.ImportanceSampling(chains=MANY), px.SGLD(chains=MANY),
    px.SGHMC(chains=MANY), px.Metropolis(chains=MANY), px.MCLMC(chains=MANY),
    px.SimulatedAnnealing(chains=MANY), px.Laplace(probes=MANY),
]  # fmt: skip


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("method", METHODS, ids=lambda method: type(method).__name__)
def test_methods_refuse_more_networks_than_memory_holds(method):
    with pytest.raises(MemoryError, match=r"\w+=1,000,000,000 needs [\d,]+ bytes"):
        px.fit(curve_model(), (X, Y), method, key=0)


@pytest.mark.usefixtures("little")
@pytest.mark.parametrize("name", ["samples", "buffer", "batch_size"])
def test_agents_refuse_it_too(name):
    policy = px.bandits.Thompson(hidden=(4,), **{name: MANY})
    with pytest.raises(MemoryError, match=f"{name}=1,000,000,000 needs"):
        px.bandits.Agent(policy, features=2, actions=2)


@pytest.mark.usefixtures("little")
def test_a_linear_agent_of_too_many_features():
    with pytest.raises(MemoryError, match=r"features=1,000,000: .* needs 8,"):
        px.bandits.Agent(px.bandits.LinearThompson(), features=10**6, actions=2)


@pytest.mark.usefixtures("little")
def test_an_estimator_refuses_it():
    rows = np.linspace(0, 1, 20)[:, None]
    estimator = px.BayesianRegressor(method="map", hidden_layer_sizes=(2,), steps=2, samples=MANY)
    with pytest.raises(MemoryError, match="n=1,000,000,000"):
        estimator.fit(rows, rows[:, 0]).sample_y(rows, MANY)
