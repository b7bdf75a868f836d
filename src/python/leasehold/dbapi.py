"""A lease in your own transaction, by a cursor of any DB-API driver whose parameters are %s. It exists from the commit on, and is renewed
by nobody but you."""
from __future__ import annotations

import json
import uuid
from dataclasses import dataclass
from typing import Any

from .errors import Held, scope_name
from .runtime import interval


@dataclass(frozen=True)
class Row:
    """A lease as a row of the database."""

    namespace: str
    key: str
    lease_key: str
    token: int

    def _call(self, cursor: Any, function: str, *more: Any) -> Any:
        marks = ", ".join(["%s"] * (2 + len(more)))
        cursor.execute(f"select leasehold.{function}({marks})", (self.namespace, self.key, *more))
        return cursor.fetchone()[0]

    def heartbeat(self, cursor: Any) -> bool:
        """False: it is lost."""
        return self._call(cursor, "heartbeat", self.lease_key) is not None

    def guard(self, cursor: Any) -> None:
        """The driver's error with SQLSTATE LH001 when it is lost."""
        self._call(cursor, "guard", self.token)

    def release(self, cursor: Any, result: Any = None, failure: str | None = None) -> bool:
        """False: it was not held any more."""
        if failure is not None:
            return bool(self._call(cursor, "release_fail", self.lease_key, failure))
        return bool(self._call(cursor, "release_ok", self.lease_key, None if result is None else json.dumps(result)))


def acquire(cursor: Any, namespace: str, key: str, *, duration: float = 30, owner: str | None = None, lease_key: str | None = None) -> Row:
    """Never waits: raises Held, and the transaction can go on. The same lease key renews."""
    lease_key = lease_key or str(uuid.uuid4())
    cursor.execute("select token from leasehold.acquire(%s, %s, %s::interval, %s, %s::uuid)",
                   (namespace, key, interval(duration), owner, lease_key))
    found = cursor.fetchone()
    if found is None:
        cursor.execute("select holder, waiters, advice from leasehold.explain(%s, %s)", (namespace, key))
        holder, waiters, advice = cursor.fetchone()
        raise Held(f"lease {scope_name(namespace, key)} is not free: {advice}", holder, waiters)
    return Row(namespace, key, lease_key, int(found[0]))
