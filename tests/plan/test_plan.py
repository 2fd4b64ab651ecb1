"""The plan decides the order of what is mounted, whoever adds to it and when."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from sandbox.plan.mount_operations import Bind, Cover, Fuse, Overlay, Tmpfs, Unmount
from sandbox.plan.plan import Plan

ADDED: tuple[Callable[[Plan], object], ...] = (
    lambda plan: plan.show("/home/me/project", "/home/me/project", True),
    lambda plan: plan.scratch.append(("/home/me", 0o700)),
    lambda plan: plan.layers.append(Overlay("/home/me/project", "/.lower", "/.state")),
    lambda plan: plan.covers.append(Cover("/home/me/project/.env", False, rule=".env*")),
    lambda plan: plan.served.append(Fuse("/data", "/.fuse", "fuse:0")),
    lambda plan: plan.after_seal.append(Bind("/etc/ssl/cert.pem", "/etc/bundle", read_only=True)),
)


def test_the_order_does_not_depend_on_who_came_first() -> None:
    orders = set()
    for adding in itertools.permutations(ADDED):
        plan = Plan()
        for add in adding:
            add(plan)
        orders.add(tuple((one.kind, one.path) for one in plan.operations("/.host")))
    assert orders == {
        (
            ("tmpfs", "/home/me"),
            ("bind", "/home/me/project"),
            ("umount", "/.host"),
            ("overlay", "/home/me/project"),
            ("mask", "/home/me/project/.env"),
            ("fuse", "/data"),
            ("remount", "/"),
            ("bind", "/etc/ssl/cert.pem"),
        )
    }


def test_a_plan_without_walls_mounts_nothing() -> None:
    plan = Plan()
    plan.walls = False
    plan.show("/usr", "/usr", False)
    assert plan.setup()["mounts"] == []


def test_covers_name_their_rule_and_staging_has_none() -> None:
    plan = Plan()
    plan.covers += [Cover("/p/.env", False, rule=".env*"), Cover("/proc/kcore", False), Unmount("/.kept-0")]
    assert plan.rules() == {"/p/.env": ".env*"}


def test_files_in_memory_share_what_there_is() -> None:
    plan = Plan()
    plan.scratch = [("/tmp", 0o1777), ("/run", 0o755)]
    plan.scratch_size = 1 << 30
    plan.covers.append(Tmpfs("/home/me/.config", 0o700, 0))
    plan.share_memory(3 << 20)
    assert [one.wire()["size"] for one in plan.operations("") if isinstance(one, Tmpfs)] == [1 << 20] * 3
