"""Clusters that merge: beside a search of all ways, on random graphs."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from weft.schedule.clusters import Clusters


def random_uses(count: int, chance: float, seed: int) -> Any:
    """Nodes, none of them a view, of which each needs some of those before."""
    rng = random.Random(seed)
    needs = [{j for j in range(i) if rng.random() < chance} for i in range(count)]
    users: list[set[int]] = [set() for _ in range(count)]
    for i, needed in enumerate(needs):
        for j in needed:
            users[j].add(i)
    node = SimpleNamespace(op=SimpleNamespace(view=None))
    return SimpleNamespace(nodes=[node] * count, needs=needs, users=users)


def is_acyclic(uses: Any, of: dict[int, int]) -> bool:
    """Whether clusters can run one after another, found by taking away those that need no other."""
    needs = {c: {of[j] for i in of if of[i] == c for j in uses.needs[i]} - {c} for c in set(of.values())}
    while ready := [c for c, needed in needs.items() if not needed & needs.keys()]:
        for c in ready:
            del needs[c]
    return not needs


@pytest.mark.parametrize("chance", [0.05, 0.15, 0.4])
@pytest.mark.parametrize("gap", [1 << 60, 2])  # with little room between labels they are often given anew
def test_clusters_merge_exactly_where_no_circle_comes_of_it(
    chance: float, gap: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("weft.schedule.clusters._GAP", gap)
    for seed in range(25):
        rng = random.Random(1000 + seed)
        uses = random_uses(rng.randint(2, 24), chance, seed)
        clusters, of = Clusters(uses), {i: i for i in range(len(uses.nodes))}
        for _ in range(40):
            i, j = rng.randrange(len(of)), rng.randrange(len(of))
            if of[i] == of[j]:
                continue
            joined = {k: of[i] if c == of[j] else c for k, c in of.items()}
            wanted = is_acyclic(uses, joined)
            assert clusters.merge(clusters.of[i], clusters.of[j]) is wanted
            of = joined if wanted else of
        parts = {c: sorted(k for k in of if of[k] == c) for c in of.values()}
        assert sorted(clusters.members.values()) == sorted(parts.values())


def test_order_of_clusters_has_each_after_what_it_needs() -> None:
    for seed in range(40):
        rng = random.Random(seed)
        uses = random_uses(30, 0.1, seed)
        clusters = Clusters(uses)
        for _ in range(60):
            i, j = rng.randrange(30), rng.randrange(30)
            if clusters.of[i] != clusters.of[j]:
                clusters.merge(clusters.of[i], clusters.of[j])
        place = {c: k for k, c in enumerate(clusters.in_order())}
        assert place.keys() == set(clusters.of.values())
        for i, needed in enumerate(uses.needs):
            for j in needed:
                assert clusters.of[i] == clusters.of[j] or place[clusters.of[j]] < place[clusters.of[i]]
