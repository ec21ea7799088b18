"""A task of a world in each state in which it waits for something."""

from collections.abc import Callable

from dexaflow.model.states import State
from tests.store.world import World, a_task

__all__ = ["WAITING"]


def scheduled(world: World) -> None:
    world.register(a_task())
    world.trigger()
    world.schedule(parallelism=0)


def held(world: World) -> None:
    world.hold(world.queued())


def launching(world: World) -> None:
    world.launch(world.queued())


def up_for_retry(world: World) -> None:
    world.ended(world.running(a_task(retries=1)), succeeded=False)


WAITING: dict[State, Callable[[World], object]] = {
    State.SCHEDULED: scheduled,
    State.QUEUED: lambda world: world.queued(),
    State.HELD: held,
    State.LAUNCHING: launching,
    State.UP_FOR_RETRY: up_for_retry,
}
