"""Leases that end in each way, and what OpenTelemetry hears of them, as JSON: telemetry_program.py API TRANSPORT TARGET NAMESPACE.

Without the SDK it tells which modules of it were imported. It prints "held" when the lease `forced` is there to be ended by others.
"""
import asyncio
import contextlib
import json
import sys
import threading

import leasehold
from leasehold import grpc_transport

API, TRANSPORT, TARGET, NAMESPACE = sys.argv[1:]
TARGETS = {"server": TARGET} if TRANSPORT == "grpc" else {"database": TARGET}
NOWHERE = {"server": "127.0.0.1:1"} if TRANSPORT == "grpc" else {"database": "host=127.0.0.1 port=1"}
ARE_ASYNC = API == "asyncio"
sent = {}  # method: each traceparent that went with it


def looked_at(transport):
    """Notes what each call of this transport carries."""
    for name in ("unary", "stream"):
        def wrapped(method, *arguments, original=getattr(transport, name), **more):
            def metadata(real=type(transport).metadata):
                carried = real(transport)
                sent.setdefault(method, []).append(dict(carried).get("traceparent"))
                return carried

            transport.metadata = metadata
            return original(method, *arguments, **more)

        setattr(transport, name, wrapped)


async def result(value):
    """Of either client."""
    return await value if ARE_ASYNC else value


@contextlib.asynccontextmanager
async def body(lease):
    if ARE_ASYNC:
        async with lease:
            yield
    else:
        with lease:
            yield


async def come(event):
    """A bound, not a measurement."""
    async with asyncio.timeout(60):
        while not event.is_set():
            await asyncio.sleep(0.01)


async def work(client, nowhere):
    renewed, lost = threading.Event(), threading.Event()
    async with body(client.lease(NAMESPACE, "plain", duration=9, on_renewed=lambda lease: renewed.set())):
        with contextlib.suppress(leasehold.Held):
            await result(client.lease(NAMESPACE, "plain").acquire())
        await come(renewed)
    lease = client.lease(NAMESPACE, "forced", duration=9, on_lost=lambda reason: lost.set())
    await result(lease.acquire())
    print("held", flush=True)
    await come(lost)
    await result(lease.release())
    with contextlib.suppress(leasehold.Unavailable):
        await result(nowhere.lease(NAMESPACE, "nowhere").acquire())
    shared = client.lease(NAMESPACE, "downgraded")
    await result(shared.acquire())
    await result(shared.downgrade())
    shared.try_release()
    await result(client.lease(NAMESPACE, "left").acquire())


async def main(tracer=None):
    kind = leasehold.AsyncClient if ARE_ASYNC else leasehold.Client
    client, nowhere = kind(**TARGETS), kind(**NOWHERE, timeout=0.2)
    if TRANSPORT == "grpc":
        looked_at(client._core.transport)
    with tracer.start_as_current_span("caller") if tracer else contextlib.nullcontext():
        await work(client, nowhere)
    await result(client.close())
    await result(nowhere.close())


try:
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
except ImportError:
    asyncio.run(main())
    print(json.dumps({"modules": [name for name in sys.modules if name.startswith("opentelemetry")], "sent": sent}))
    sys.exit()

exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
metrics.set_meter_provider(MeterProvider([reader]))
asyncio.run(main(trace.get_tracer("program")))
spans = [{"name": each.name, "id": f"{each.context.span_id:016x}", "trace": f"{each.context.trace_id:032x}", "parent": each.parent and f"{each.parent.span_id:016x}",
          "attributes": dict(each.attributes), "error": each.status.status_code is trace.StatusCode.ERROR, "words": each.status.description}
         for each in exporter.get_finished_spans()]
points = [{"name": metric.name, "unit": metric.unit, "labels": dict(point.attributes), "value": getattr(point, "value", None), "count": getattr(point, "count", None)}
          for resource in reader.get_metrics_data().resource_metrics for scope in resource.scope_metrics for metric in scope.metrics
          for point in metric.data.data_points]
print(json.dumps({"spans": spans, "points": points, "sent": sent, "at": grpc_transport.__file__}))
