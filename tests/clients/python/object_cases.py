"""The cases about leases as objects, which programs copy and drop; cases.py has the others."""
import copy
import gc
import pickle
import weakref

import pytest
from cases import NAMESPACE, fresh
from harness import wait_until


def copy_holds_nothing(place):
    client = place.client()
    lease = client.lease(NAMESPACE, fresh()).acquire()
    for each in (getattr(lease, "lease", lease), getattr(client, "client", client)):
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="belongs to the process that made it"):
                way(each)
    assert lease.is_held() and lease.release()


def dropped_lease_is_renewed(place):
    key, client = fresh(), place.client()
    lease = client.lease(NAMESPACE, key, duration=6).acquire()
    token, facade = lease.token, weakref.ref(lease)
    del lease
    wait_until(lambda: gc.collect() >= 0 and place.heartbeats(key) >= 2)
    assert place.api.name == "threads" or facade() is None
    assert place.row(key, "state, token") == f"held|{token}"
