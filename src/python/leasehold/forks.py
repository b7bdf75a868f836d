"""What a child has of the clients of its parent after a fork.

A client that was never used, as that of a server which loads the program before it forks, has neither threads nor connections: it is the child's.
Another one stays the parent's, whose connections must end with the parent.
"""
from __future__ import annotations

import os
import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .core import Core

CORES: weakref.WeakSet[Core] = weakref.WeakSet()


def after_fork() -> None:
    """In the child, of which only this thread is there yet."""
    for core in list(CORES):
        if core.loop is None:
            core.live_here()
        else:
            core.transport.forget()


os.register_at_fork(after_in_child=after_fork)
