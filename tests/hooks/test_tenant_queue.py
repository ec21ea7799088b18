"""Where many wait for a hook, tenants take turns (R6.2)."""

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dexaflow.hooks.tenant_queue import TenantQueue

TENANTS = ("acme", "globex", "initech")
MOVES = st.lists(st.one_of(st.sampled_from(TENANTS), st.sampled_from(("take", "leave"))), max_size=60)


@given(MOVES)
def test_nobody_is_lost_or_overtaken_within_a_tenant_and_none_waits_for_more_than_one_of_each_other(
    moves: list[str],
) -> None:
    queue, waiting = TenantQueue[int](), {tenant: deque[int]() for tenant in TENANTS}
    since = {tenant: deque[str]() for tenant in TENANTS}  # by tenant that waits: whose were taken since it had its turn
    for number, move in enumerate(moves):
        if move in TENANTS:
            if not waiting[move]:
                since[move] = deque()
            queue.append(move, number)
            waiting[move].append(number)
        elif move == "take" and any(waiting.values()):
            item = queue.popleft()
            (tenant,) = [tenant for tenant in TENANTS if waiting[tenant] and waiting[tenant][0] == item]
            waiting[tenant].popleft()
            since[tenant] = deque()
            for other in TENANTS:
                if other != tenant and waiting[other]:
                    since[other].append(tenant)
                    assert len(set(since[other])) == len(since[other]), "somebody was served twice meanwhile"
        elif move == "leave" and any(waiting.values()):
            tenant = next(tenant for tenant in TENANTS if waiting[tenant])
            item = waiting[tenant][number % len(waiting[tenant])]
            waiting[tenant].remove(item)
            queue.remove(tenant, item)
        assert len(queue) == sum(map(len, waiting.values()))


def test_of_nobody_there_is_nobody_to_take_or_to_let_go() -> None:
    queue = TenantQueue[str]()
    with pytest.raises(IndexError):
        queue.popleft()
    with pytest.raises(ValueError, match=r"not in deque"):
        queue.remove("acme", "a")
    queue.append("acme", "a")
    with pytest.raises(ValueError, match=r"not in deque"):
        queue.remove("acme", "b")
    assert (len(queue), bool(queue)) == (1, True)
