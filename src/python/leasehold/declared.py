"""The leases of a namespace, declared once: `deploy = client.declare("deploy", duration=60)`, then a key where one is needed."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, AsyncIterator, Awaitable, Callable, Iterator, Mapping, ParamSpec, TypeVar, Unpack

from . import arguments
from .arguments import Options

if TYPE_CHECKING:
    from .aio import AsyncClient, AsyncLease
    from .client import BaseClient, Client, Lease

P = ParamSpec("P")
T = TypeVar("T")


class Declaring:
    """What is wrong with the namespace or the options is told when they are declared; of a key, when it is used. Each method takes the options
    of Client.lease too, which count before those of the declaration."""

    def __init__(self, client: BaseClient, namespace: str, options: Mapping[str, Any]) -> None:
        self.namespace, self._owner, self._options = namespace, client._core.owner, dict(options)
        arguments.asked(self._owner, namespace, "any", **options)

    def _with(self, more: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._options, **more}

    def _leading(self, more: Mapping[str, Any]) -> dict[str, Any]:
        options = {name: value for name, value in self._with(more).items() if name not in ("wait", "while_alive")}
        arguments.asked(self._owner, self.namespace, "any", is_tied=True, **options)
        return options


class Declared(Declaring):
    __doc__ = Declaring.__doc__

    def __init__(self, client: Client, namespace: str, options: Mapping[str, Any]) -> None:
        super().__init__(client, namespace, options)
        self._client = client

    def lease(self, key: str, **more: Unpack[Options]) -> Lease:
        return self._client.lease(self.namespace, key, **self._with(more))

    def acquire(self, key: str, **more: Unpack[Options]) -> Lease:
        return self.lease(key, **more).acquire()

    def leased(self, key: str, *, skip_if_held: bool = False, **more: Unpack[Options]) -> Callable[[Callable[P, T]], Callable[P, T | None]]:
        return self._client.leased(self.namespace, key, skip_if_held=skip_if_held, **self._with(more))

    def lead(self, key: str, **more: Unpack[Options]) -> Iterator[Lease]:
        """It waits for ever: the declaration's wait is for the others."""
        return self._client.lead(self.namespace, key, **self._leading(more))


class AsyncDeclared(Declaring):
    __doc__ = Declaring.__doc__

    def __init__(self, client: AsyncClient, namespace: str, options: Mapping[str, Any]) -> None:
        super().__init__(client, namespace, options)
        self._client = client

    def lease(self, key: str, **more: Unpack[Options]) -> AsyncLease:
        return self._client.lease(self.namespace, key, **self._with(more))

    async def acquire(self, key: str, **more: Unpack[Options]) -> AsyncLease:
        return await self.lease(key, **more).acquire()

    def leased(self, key: str, *, skip_if_held: bool = False,
               **more: Unpack[Options]) -> Callable[[Callable[P, Awaitable[T]]], Callable[P, Awaitable[T | None]]]:
        return self._client.leased(self.namespace, key, skip_if_held=skip_if_held, **self._with(more))

    def lead(self, key: str, **more: Unpack[Options]) -> AsyncIterator[AsyncLease]:
        return self._client.lead(self.namespace, key, **self._leading(more))
