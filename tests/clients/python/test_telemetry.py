"""OpenTelemetry's real SDK, the oldest and the newest that the package is for, each in a process of its own."""
import json
import os
import pathlib
import subprocess
import sys
import uuid

import pypi
import pytest
from harness import wait_until

HERE = pathlib.Path(__file__).resolve().parent


def run(site, api, transport, modules=None):
    """What telemetry_program.py tells; the namespace."""
    namespace = f"telemetry-{uuid.uuid4()}"
    is_sql = transport == "sql"
    target = site.cluster.url(site.database) if is_sql else site.service.daemon.target
    environment = {**os.environ, "PYTHONPATH": str(modules)} if modules else None
    process = subprocess.Popen([sys.executable, "-B", str(HERE / "telemetry_program.py"), api, transport, target, namespace], env=environment,
                               stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    forced = f"select leasehold.force_release('{namespace}', 'forced', 'a test')"
    site.cluster.psql(forced, site.database if is_sql else site.service.database)
    said = process.stdout.read()
    assert process.wait(60) == 0, said
    wait_until(lambda: not site.cluster.psql("select pid from pg_stat_activity where application_name = 'leasehold'", site.database), 30)
    return json.loads(said), namespace


@pytest.fixture(scope="module", params=["oldest", "newest"])
def modules(request, tmp_path_factory):
    return pypi.unpacked(HERE / f"telemetry-{request.param}.txt", tmp_path_factory.mktemp("modules"))


@pytest.mark.parametrize("transport", ["grpc", "sql"])
@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_spans_and_metrics_tell_of_each_lease(site, modules, api, transport):
    found, namespace = run(site, api, transport, modules)
    (caller,) = (each for each in found["spans"] if each["name"] == "caller")
    spans = {}
    for each in found["spans"]:
        if each is not caller:
            assert (each["parent"], each["trace"]) == (caller["id"], caller["trace"]) and each["attributes"]["leasehold.namespace"] == namespace
            spans.setdefault((each["name"], each["attributes"]["leasehold.key"]), []).append(each)
    granted, refused = sorted(spans["leasehold.acquire", "plain"], key=lambda each: "error.type" in each["attributes"])
    assert granted["attributes"]["leasehold.token"] > 0 and 0 < granted["attributes"]["leasehold.waited"] < 60 and not granted["error"]
    assert refused["attributes"]["error.type"] == "held" and not refused["error"]  # an outcome
    (nowhere,) = spans["leasehold.acquire", "nowhere"]
    assert nowhere["attributes"]["error.type"] == "unavailable" and nowhere["error"] and nowhere["words"]
    ends = {key: (each["error"], each["words"], each["attributes"]["leasehold.mode"]) for (name, key), (each, *more) in spans.items()
            if name == "leasehold.hold" and not more}
    assert ends == {"plain": (False, None, "exclusive"), "forced": (True, "lost: forced", "exclusive"), "downgraded": (False, None, "shared"),
                    "left": (True, "lost: closed", "exclusive")}
    assert {key for name, key in spans if name == "leasehold.release"} == {"plain", "downgraded"}
    assert len(found["spans"]) == 1 + 6 + 4 + 2

    points = {(each["name"], *sorted(each["labels"].items())): each for each in found["points"]}
    labels = [("leasehold.mode", "exclusive"), ("leasehold.namespace", namespace)]
    assert {key: each["value"] for key, each in points.items() if each["value"] is not None} == {
        ("leasehold.waiting", *labels): 0, ("leasehold.held", *labels): 0, ("leasehold.held", ("leasehold.mode", "shared"), labels[1]): 0,
        ("leasehold.acquire.failures", ("error.type", "held"), *labels): 1, ("leasehold.acquire.failures", ("error.type", "unavailable"), *labels): 1}
    assert {key: (each["count"], each["unit"]) for key, each in points.items() if each["count"] is not None} == {
        ("leasehold.acquire.duration", *labels): (4, "s"), ("leasehold.acquire.duration", ("error.type", "held"), *labels): (1, "s"),
        ("leasehold.acquire.duration", ("error.type", "unavailable"), *labels): (1, "s")}

    if transport == "grpc":
        def carried(name):
            return {f"00-{each['trace']}-{each['id']}-{flags}" for (kind, _), many in spans.items() if kind == name for each in many
                    for flags in ("01", "03")}  # sampled; newer ones add that the trace's number is random
        assert len(set(found["sent"]["AcquireStream"])) == 5 and set(found["sent"]["AcquireStream"]) < carried("leasehold.acquire")
        assert set(found["sent"]["Release"]) - {None} <= carried("leasehold.release") and any(found["sent"]["Release"])
        assert set(found["sent"]["Heartbeat"]) == {None}  # of all leases: of nobody's span


@pytest.mark.parametrize("transport", ["grpc", "sql"])
@pytest.mark.parametrize("api", ["threads", "asyncio"])
def test_without_opentelemetry_nothing_is_imported(site, api, transport):
    found, _ = run(site, api, transport)
    assert found["modules"] == [] and not any(any(each) for each in found["sent"].values())
