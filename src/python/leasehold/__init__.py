"""Leases on PostgreSQL: through a Leasehold daemon, or in SQL without one.

    client = leasehold.Client("127.0.0.1:7420")                       # or Client(database="postgresql:///app")
    with client.lease("payments", "inv-42", duration=30, wait=5) as lease:
        work(lease.token)
"""
from . import dbapi
from .aio import AsyncClient, AsyncLease
from .arguments import Scope
from .client import Client, Lease
from .declared import AsyncDeclared, Declared
from .errors import Denied, Held, InvalidArgument, LeaseholdError, LeaseLost, Unavailable
from .hand_over import HandOver
from .look import Event, Explanation
from .nested import remaining
from .retry import Retry, Strategy, best_effort, controlled_backoff, fail_fast
from .ticks import AsyncTick, Tick
from .tls import TLS

__all__ = ["TLS", "AsyncClient", "AsyncDeclared", "AsyncLease", "AsyncTick", "Client", "Declared", "Denied", "Event", "Explanation", "HandOver", "Held", "InvalidArgument", "Lease", "LeaseLost", "LeaseholdError",
           "Retry", "Scope", "Strategy", "Tick", "Unavailable", "best_effort", "controlled_backoff", "dbapi", "fail_fast", "remaining"]
