"""The cases about errors as types, and about wrong arguments."""
import uuid

import leasehold
import pytest
from cases import NAMESPACE, TABLES, fresh
from harness import wait_until


def denied_is_a_type(place):
    namespace = f"frozen{uuid.uuid4().hex[:8]}"
    place.psql(f"select leasehold.set_policy('{namespace}', frozen => true)")

    def refused():
        try:
            place.client().lease(namespace, "k").acquire().release()
            return None
        except leasehold.Denied as error:
            return error

    assert wait_until(refused).reason == "NAMESPACE_FROZEN"  # a daemon follows within a second


def unavailable_is_a_type(place):
    target = "127.0.0.1:1" if place.transport == "grpc" else "host=/nonexistent dbname=none"
    with pytest.raises(leasehold.Unavailable):
        place.client(target, timeout=1).lease(NAMESPACE, fresh()).acquire()


def invalid_argument_is_told(place):
    with pytest.raises(ValueError, match="duration") as invalid:
        place.client().lease(NAMESPACE, fresh(), duration=0.01).acquire()
    assert isinstance(invalid.value, leasehold.LeaseholdError) and "1 to 86400 s" in str(invalid.value), str(invalid.value)
    with pytest.raises(ValueError, match="key"):
        place.client().lease(NAMESPACE, "").acquire()


def wrong_arguments_are_named(place):
    client = place.client()
    for row in TABLES["wrong_arguments"]:
        name, value = row["argument"], row["value"]
        with pytest.raises(leasehold.InvalidArgument) as wrong:
            if name in ("timeout", "server"):
                client.another(**{name: value})
            elif name == "at_least":
                client.leased(NAMESPACE, fresh(), at_least=value)(print)
            else:
                client.lease(**{"namespace": NAMESPACE, "key": fresh(), "shared": name == "units", name: value}).acquire()
            raise AssertionError(f"{row} was taken")
        assert isinstance(wrong.value, ValueError)
        assert str(wrong.value).startswith(f"{name} must be ") and str(wrong.value).endswith(f", not {value!r}"), str(wrong.value)


def unknown_options_are_named(place):
    key, client = fresh(), place.client()
    for word in ("durationMs", "waitMs", "ttl"):
        with pytest.raises(TypeError, match=word):
            client.lease(NAMESPACE, key, **{word: 5})
        with pytest.raises(TypeError, match=word):
            client.leased(NAMESPACE, key, **{word: 5})(print)
        with pytest.raises(TypeError, match=word):
            client.another(**{word: 5})
    assert place.row(key, "state") == ""
