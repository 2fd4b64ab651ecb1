"""bench/scale: the simulation keeps its books, agrees with known results of queueing theory, and repeats itself."""

from __future__ import annotations

import json
import random
from dataclasses import asdict, replace

import pytest
import simpy

from bench.scale.__main__ import RESULTS
from bench.scale.compare import AGREED, CLIENTS, Moment, fitted, simulate
from bench.scale.costs import Costs, Step
from bench.scale.measure import FULL
from bench.scale.model import Cluster, Shape, Steps
from bench.scale.queues import Servers, SharedCores, erlang_c, mean_wait
from bench.scale.scenarios import limits, loss, rollout, small, steady

COSTS = Costs(
    start=Step(0.004, 0.008, 0.001, 0.002),
    exec=Step(0.001, 0.001, 0.001, 0.0),
    close=Step(0.002, 0.005, 0.001, 0.001),
    ask=Step(0.0005, 0.0, 0.0002, 0.0),
    memory_mb=0.3,
    server_mb=60.0,
    kernel=0.0,
    machine="made up",
)
SHAPE = Shape(nodes=20, cores=4, most=10, place=0.001, life=5.0)


# -- queues


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.8), (2, 0.7), (8, 0.8), (32, 0.9)])
def test_the_mean_wait_is_erlangs(servers: int, load: float) -> None:
    draw, queue, now, count = random.Random(servers), Servers(servers), 0.0, 400_000
    rate = load * servers  # of work that takes one second in the mean
    for _ in range(count):
        now += draw.expovariate(rate)
        queue.take(now, draw.expovariate(1.0))
    assert queue.waited / count == pytest.approx(mean_wait(servers, rate, 1.0), rel=0.1)
    assert queue.used(now) == pytest.approx(load, rel=0.02)


def test_erlangs_formula_has_its_known_values() -> None:
    assert erlang_c(1, 0.5) == pytest.approx(0.5)  # M/M/1: the chance to wait is the load
    assert erlang_c(2, 1.0) == pytest.approx(1 / 3)
    assert mean_wait(1, 0.5, 1.0) == pytest.approx(1.0)
    assert erlang_c(4, 5.0) == 1.0


def test_first_come_is_first_served() -> None:
    queue = Servers(1)
    assert [queue.take(0.0, 2.0), queue.take(1.0, 2.0), queue.take(10.0, 2.0)] == [2.0, 4.0, 12.0]
    assert queue.waited == 1.0


def test_work_of_less_than_no_time_is_an_error() -> None:
    with pytest.raises(ValueError):
        Servers(1).take(0.0, -1.0)
    with pytest.raises(ValueError):
        Servers(0)


def shared(cores: int, others: float, costs: list[float]) -> list[float]:
    """When each is through, of work that begins together on shared cores."""
    env = simpy.Environment()
    cluster = SharedCores(env, cores, others)
    ends: list[float] = []

    def one(cost: float) -> Steps:
        yield cluster.work(cost)
        ends.append(env.now)

    for cost in costs:
        env.process(one(cost))
    env.run()
    return ends


def test_shared_cores_are_shared_equally() -> None:
    assert shared(2, 0.0, [1.0, 1.0]) == pytest.approx([1.0, 1.0])
    assert shared(1, 0.0, [1.0, 2.0]) == pytest.approx([2.0, 3.0])  # half each, then the rest alone
    assert shared(1, 1.0, [1.0]) == pytest.approx([2.0])
    assert shared(2, 2.0, [1.0, 1.0]) == pytest.approx([2.0, 2.0])  # two of four, on two cores: half a core each


def test_a_machine_is_found_again_from_what_one_server_does_on_it() -> None:
    for there in (Moment(1.0, 1.0, 0.0), Moment(2.0, 0.3, 12.0)):
        alone, full = (simulate(clients, COSTS, there, 1).rate for clients in (1, FULL))
        found = fitted(COSTS, alone, full, there.others)
        assert found.slower == pytest.approx(there.slower, rel=0.1)
        three = [simulate(12, COSTS, one).rate for one in (found, there)]
        assert three[0] == pytest.approx(three[1], rel=0.1)


def test_the_last_comparison_with_three_nodes_of_ray_agreed_and_the_page_says_so() -> None:
    """Measured by `scripts/cluster --scale`, which fails by itself when it does not."""
    told = json.loads(RESULTS.read_text(encoding="utf-8"))["compared_ray"]
    assert [one["clients"] for one in told] == list(CLIENTS)
    assert [one for one in told if abs(one["off"]) > AGREED] == []
    page = (RESULTS.parents[2] / "docs" / "scale.md").read_text(encoding="utf-8")
    for one in told:
        off = f"{one['off']:+.0%}".replace("-", "−").replace("%", " %")
        assert f"| {one['clients']} | {one['measured']:.1f} | {one['simulated']:.1f} | {off} |" in page


def test_three_servers_get_more_of_a_busy_machine_than_one() -> None:
    busy = Moment(1.0, 0.3, 20.0)
    assert simulate(12, COSTS, busy, 3).rate > 1.5 * simulate(12, COSTS, busy, 1).rate


# -- the cluster


def check_books(cluster: Cluster) -> None:
    """At any moment: nobody is lost from the books, and nothing is negative."""
    counts, most = cluster.counts, cluster.shape.most
    assert counts.arrived == counts.done + counts.lost + counts.inside
    assert 0 <= counts.waiting <= counts.inside and 0 <= counts.alive <= counts.inside
    assert counts.alive == sum(len(node.running) for node in cluster.nodes)
    for node in cluster.nodes:
        assert 0 <= node.room <= most and len(node.running) + node.room <= most and node.warm >= 0
    assert all(delay >= 0 for delay in counts.delays)


@pytest.mark.parametrize("rate", [5.0, 30.0, 100.0])
def test_every_sandbox_that_was_asked_for_is_somewhere_at_any_moment(rate: float) -> None:
    cluster = Cluster(SHAPE, COSTS)
    cluster.env.process(cluster.arrive(rate, 30.0))
    for second in range(1, 40):
        cluster.env.run(until=second)
        check_books(cluster)
    cluster.env.run()
    check_books(cluster)
    assert (cluster.counts.inside, cluster.counts.alive, cluster.counts.waiting) == (0, 0, 0)
    assert all(node.room == SHAPE.most for node in cluster.nodes)


def test_a_full_cluster_makes_people_wait_and_never_has_more_than_it_may() -> None:
    cluster = Cluster(replace(SHAPE, nodes=2), COSTS)
    cluster.env.process(cluster.arrive(50.0, 20.0))
    cluster.env.run()
    assert cluster.counts.most_alive == 20
    assert cluster.counts.most_waiting > 100
    assert cluster.counts.done == cluster.counts.arrived


def test_what_ran_on_a_lost_node_is_asked_for_again_and_ends() -> None:
    told = loss(SHAPE, COSTS, 20.0, 60.0, 0.5)
    assert told.again > 0 and told.done + told.lost == told.asked
    assert told.p99 > steady(SHAPE, COSTS, 20.0, 60.0).p99


def test_the_books_are_right_in_the_middle_of_losses_and_rollouts() -> None:
    cluster = Cluster(SHAPE, COSTS)
    cluster.env.process(cluster.arrive(30.0, 60.0))
    cluster.env.process(cluster.roll_out(5, 1.0, 10.0, 10.0))
    for second in range(1, 60):
        cluster.env.run(until=second)
        if second % 10 == 0:
            cluster.lose(cluster.nodes[second % len(cluster.nodes)])
        check_books(cluster)
    for node in cluster.nodes:
        if not node.up:
            cluster.bring_back(node)
    cluster.env.run()
    assert cluster.counts.done + cluster.counts.lost == cluster.counts.arrived


def test_a_rollout_loses_nobody() -> None:
    told = rollout(SHAPE, COSTS, 20.0, 60.0, 5, 100.0)
    assert (told.lost, told.again) == (0, 0) and told.done == told.asked


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    one, two, other = (asdict(steady(SHAPE, COSTS, 20.0, 30.0, seed)) for seed in (1, 1, 2))
    assert one == two != other


def test_more_to_do_never_makes_it_quicker() -> None:
    waits = [steady(SHAPE, COSTS, rate, 60.0).p99 for rate in (5.0, 40.0, 80.0)]
    assert waits == sorted(waits)


def test_what_waits_goes_down_with_more_nodes() -> None:
    waits = [steady(replace(SHAPE, nodes=nodes), COSTS, 60.0, 30.0).p99 for nodes in (10, 20, 80)]
    assert waits == sorted(waits, reverse=True)


def test_the_part_that_is_full_first_is_where_the_wait_begins() -> None:
    narrow = replace(SHAPE, place=0.05, most=1000)  # 20 placements a second
    found = limits(narrow, COSTS)
    assert min(found, key=lambda part: found[part]) == "control plane"
    below, above = (steady(narrow, COSTS, share * found["control plane"], 120.0) for share in (0.5, 1.3))
    assert below.control < 0.7 and above.control > 1.1
    assert above.p99 > 10 * below.p99


def test_a_warm_pool_hands_out_what_it_has_and_starts_the_rest() -> None:
    cluster = Cluster(replace(SHAPE, warm=2), COSTS)
    cluster.env.process(cluster.arrive(20.0, 30.0))
    cluster.env.run()
    assert 0 < cluster.counts.warm <= cluster.counts.arrived
    assert all(node.warm == 2 for node in cluster.nodes)


def test_a_hundredth_of_a_cluster_is_full_at_a_hundredth_of_the_rate() -> None:
    big = Shape(nodes=1000, schedulers=4)
    whole, part = limits(big, COSTS), limits(small(big, 100), COSTS)
    assert part == pytest.approx({name: rate / 100 for name, rate in whole.items()})


def test_the_measured_costs_can_be_read() -> None:
    costs = Costs.load()
    assert costs.start.cpu > costs.exec.cpu > 0 and costs.memory_mb > 0
