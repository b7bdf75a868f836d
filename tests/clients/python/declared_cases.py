"""The cases about declared leases, and the bounds that they are checked against."""
import json
import pathlib

import leasehold
import pytest
from cases import LONG, NAMESPACE, fresh

TEXTS = ("namespace", "key", "owner", "label_name", "label_value")
BOUNDS = [row for row in json.loads((pathlib.Path(__file__).resolve().parents[2] / "lib/bounds.json").read_text()) if row["kind"] in TEXTS]


def declared_lease_is_used_everywhere(place):
    key, client = fresh(), place.client()
    deploy = client.declare(NAMESPACE, duration=LONG, owner="ci-7", labels={"of": "the case"})

    def facts():
        return place.row(key, "owner, labels ->> 'of', extract(epoch from duration)::integer")

    lease = deploy.acquire(key)
    assert facts() == f"ci-7|the case|{LONG}"
    assert lease.release()
    with deploy.lease(key, owner="ci-8"):
        assert facts() == f"ci-8|the case|{LONG}"
        with pytest.raises(leasehold.Held) as held:
            deploy.acquire(key)
        assert held.value.holder == "ci-8"
        assert deploy.leased(key, skip_if_held=True)(facts)() is None
    assert deploy.leased(key)(facts)() == f"ci-7|the case|{LONG}"
    for _ in deploy.lead(key):
        assert facts() == f"ci-7|the case|{LONG}"
        break
    with pytest.raises(ValueError, match="shared must be False for a leader's lease"):
        client.declare(NAMESPACE, shared=True).lead(key)


def bounds_are_told_before_any_request(place):
    nowhere = "127.0.0.1:9"
    client = place.client(nowhere if place.transport == "grpc" else f"host={nowhere.replace(':', ' port=')} user=nobody")
    checked = 0
    for row in BOUNDS:
        kind, value, words = row["kind"], row["value"] * row["times"], row["words"]
        declared = {"namespace": value if kind == "namespace" else NAMESPACE, "owner": value if kind == "owner" else None,
                    "labels": {"label_name": {value: ""}, "label_value": {"of": value}}.get(kind)}
        key = value if kind == "key" else fresh()
        ways = [lambda: client.declare(**declared).lease(key), lambda: client.lease(key=key, **declared)]
        for way in ways:
            checked += 1
            if words is None:
                way()
                continue
            with pytest.raises(leasehold.InvalidArgument) as wrong:
                way()
            assert str(wrong.value) == words
    assert checked > 60
    with pytest.raises(leasehold.InvalidArgument, match="^labels must be at most 16, are 17$"):
        client.declare(NAMESPACE, labels={str(n): "" for n in range(17)})
    with pytest.raises(leasehold.InvalidArgument, match="^duration must be "):
        client.declare(NAMESPACE, duration=0)
