"""A small world whose every answer is known: what tests/integration/golden has. Answers are taken by a stock client, and what differs
from run to run (times, IDs, tokens, ports) is replaced by a word."""
import json
import os
import pathlib
import re

import grpc
from google.protobuf import json_format

import harness
from access_site import Site, bearer
from harness import duration, pb, scope, status_pb2
from leasehold.v1 import console_pb2 as console
from leasehold.v1 import console_pb2_grpc
from leasehold.v1 import schedule_pb2 as schedule
from leasehold.v1 import schedule_pb2_grpc
from streams import BOUND, queued_event

GOLDEN = pathlib.Path(__file__).parent / "golden"

# Each field that moves, by the name of its value.
MOVES = {
    "TIME": {"deadline", "acquired_at", "heartbeat_at", "ended_at", "next_try_at", "failed_at", "created_at", "expires_at", "since",
             "last_heartbeat_at", "rests_until", "enqueued_at", "wait_until", "at", "started_at", "seen_at", "claimed_at"},
    "DURATION": {"remaining", "waited", "waiting", "seen", "oldest_transaction", "reaper_lag", "rests", "retry_delay", "held", "next_in"},
    "PAGE": {"next_page_token"},
    "HERE": {"server", "pid", "host", "version", "peer", "timeline", "schema_version", "common_path"},
    "TICKET": {"ticket"},
    "SAMPLES": {"grants", "renewals", "latency_p50_us", "latency_p99_us"},
}
WORD = {name: word for word, names in MOVES.items() for name in names}
UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
ID = re.compile(r"\b(?=[0-9a-f]*\d)[0-9a-f]{8}\b")
SECRET = re.compile(r"lht_[A-Za-z0-9_-]{49}")
TOKEN = re.compile(r"\b\d{12,}\b")
STAMP = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d)?")
AGE = re.compile(r"\b\d+(\.\d+)? (us|ms|s|min|m|h)\b( \d+ (s|min|m)\b)?( ago)?")

BOUND_IN_WORDS = re.compile(r"out of bounds|must |it takes ")


def key_of(number):
    """A lease key of a caller's own."""
    return "00000000-0000-4000-8000-%012d" % number


class Still:
    """Answers without what moves; the same token or ID has the same word in all answers of a file."""

    def __init__(self):
        self.words = {}

    def word(self, kind, text):
        known = self.words.setdefault(kind, {})
        return known.setdefault(text, f"{kind}{len(known) + 1}")

    def text(self, text, in_words=False):
        text = SECRET.sub(lambda found: self.word("SECRET", found[0]), text)
        text = UUID.sub(lambda found: found[0] if found[0].startswith("00000000-") else self.word("UUID", found[0]), text)
        text = STAMP.sub("TIME", text)
        text = TOKEN.sub(lambda found: self.word("TOKEN", found[0]), text)
        text = ID.sub(lambda found: self.word("ID", found[0]), text)
        return AGE.sub("AGE", text) if in_words and not BOUND_IN_WORDS.search(text) else text

    def __call__(self, answer, name=None):
        if isinstance(answer, dict):
            # A token's use is written at the end of its minute.
            return {self.text(key): self(value, key) for key, value in answer.items() if key != "last_used_at"}
        if name in WORD and answer not in ("", None):
            return WORD[name]
        if isinstance(answer, list):
            return [self(each, name) for each in answer]
        if name == "token" and str(answer) not in ("0", "5") and not str(answer).startswith("lht_"):
            return self.word("TOKEN", str(answer))
        if isinstance(answer, str):
            return self.text(answer, in_words=name in ("advice", "message"))
        return answer


def as_json(message):
    return json_format.MessageToDict(message, preserving_proto_field_name=True)


def error_json(error):
    """Code, words and each detail of a failed call."""
    answer = {"code": error.code().name, "message": error.details()}
    for key, value in error.trailing_metadata() or ():
        if key == "grpc-status-details-bin":
            answer["details"] = [as_json(detail) for detail in status_pb2.Status.FromString(value).details]
    return answer


def compare(name, answers):
    """`answers` with those of the file; LEASEHOLD_GOLDEN=write makes the file anew, for a change that is meant."""
    path = GOLDEN / f"{name}.json"
    lines = [f"{json.dumps(call)}: {json.dumps(answers[call], sort_keys=True, ensure_ascii=False)}" for call in sorted(answers)]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    if os.environ.get("LEASEHOLD_GOLDEN") == "write":
        path.write_text(text)
    known = json.loads(path.read_text())
    assert sorted(answers) == sorted(known)
    for call in known:
        assert json.loads(text)[call] == known[call], call


EVERY_SETTING = dict(
    min_duration=duration(2), max_duration=duration(7200), grace=duration(3.5), max_hold=duration(5400), dead_after=duration(4000),
    expiry=pb.Policy.EXPIRY_REAP, reaper=pb.Policy.REAPER_EXTERNAL, frozen={"value": False}, max_leases={"value": 70}, max_waiters={"value": 80},
    history={"value": True}, max_reap_failures={"value": 3}, hook_timeout=duration(0.25), free_retention=duration(3600),
    history_retention=duration(86400), capacity={"value": 4}, at_least=duration(0), end_at_max_hold={"value": True}, hand_over_grace=duration(45))


def namespace(dotted):
    return pb.Namespace(segments=dotted.split(".") if dotted else [])


class World(Site):
    """Authorization with an administrator, a reader and a stranger; policies, a hook that fails, holders, waiters, ended holds."""

    def __init__(self, cluster):
        super().__init__(cluster)
        self.grant("token:ops", "", "admin")
        self.grant("token:reader", "shop", "read")
        self.grant("spiffe://example/*", "shop.orders", "lease", "guard")
        self.tokens = {name: self.token(name)[0] for name in ("ops", "reader", "stranger")}
        self.console = console_pb2_grpc.ConsoleServiceStub(self.client.channel)
        self.schedules = schedule_pb2_grpc.ScheduleServiceStub(self.client.channel)
        self.streams = []
        self.waits_for("OK", "warm", bearer(self.tokens["ops"]))
        self.build()

    def ask(self, stub, method, request, who="ops"):
        """The answer as JSON, or the error."""
        metadata = bearer(self.tokens[who]) if who in self.tokens else ((("authorization", who),) if who else None)
        try:
            return as_json(getattr(stub, method)(request, metadata=metadata, timeout=BOUND))
        except grpc.RpcError as error:
            return error_json(error)

    def lease(self, method, who="ops", **fields):
        return self.ask(self.client.lease, method, getattr(pb, method + "Request")(**fields), who)

    def admin(self, method, who="ops", **fields):
        return self.ask(self.client.admin, method, getattr(pb, method + "Request")(**fields), who)

    def schedule(self, method, who="ops", **fields):
        return self.ask(self.schedules, method, getattr(schedule, method + "Request")(**fields), who)

    def look(self, method, who="ops", **fields):
        made = console.ExplainRequest if method == "Explain" else getattr(console, method + "Request", console.ListRequest)
        answer = self.ask(self.console, method, made(**fields), who)
        if "entries" in answer:  # denials are counted, and written from time to time
            answer["entries"] = [entry for entry in answer["entries"] if entry["action"] != "denied"]
        if "period" in answer:  # samples come with time
            answer = {"period": answer["period"]}
        return answer

    def acquire(self, dotted, key, number, seconds=600, **fields):
        return self.lease("Acquire", scope=scope(dotted, key), duration=duration(seconds), lease_key=key_of(number), **fields)

    def end(self, dotted, key, number, **how):
        ref = pb.LeaseRef(scope=scope(dotted, key), lease_key=key_of(number))
        return self.lease("Release", items=[pb.ReleaseItem(lease=ref, **how)])

    def waiter(self, dotted, key, number, **fields):
        """Its first word that it is queued."""
        request = pb.AcquireRequest(scope=scope(dotted, key), duration=duration(600), wait=duration(3600), lease_key=key_of(number), **fields)
        stream = self.open("AcquireStream", unary=request, metadata=bearer(self.tokens["ops"]))
        self.streams.append(stream)
        return stream, as_json(stream.until(queued_event))

    def build(self):
        self.psql("create schema golden; grant usage on schema golden to public;"
                  "create function golden.refuse(e leasehold.lease_event) returns void language plpgsql as"
                  " $$ begin raise exception 'the bank is closed'; end $$;"
                  "select leasehold.add_hook('shop.failing', 'reap', 'golden.refuse(leasehold.lease_event)')")
        self.made = {
            "SetPolicy every setting": self.admin("SetPolicy", policy=pb.Policy(namespace=namespace("shop.every"), **EVERY_SETTING),
                                                  update_mask={"paths": list(EVERY_SETTING)}),
            "SetPolicy capacity": self.admin("SetPolicy", policy=pb.Policy(namespace=namespace("shop.pool"), capacity={"value": 4}),
                                             update_mask={"paths": ["capacity"]}),
            "SetPolicy history": self.admin("SetPolicy", policy=pb.Policy(namespace=namespace("shop.past"), history={"value": True}),
                                            update_mask={"paths": ["history"]}),
            "SetPolicy reap": self.admin("SetPolicy", policy=pb.Policy(namespace=namespace("shop.failing"), expiry=pb.Policy.EXPIRY_REAP,
                                         reaper=pb.Policy.REAPER_EXTERNAL), update_mask={"paths": ["expiry", "reaper"]}),
            "Acquire": self.acquire("shop.orders", "7", 1, owner="worker 3", labels={"team": "blue", "a": "b"}),
            "Acquire again": self.acquire("shop.orders", "7", 1, owner="worker 3"),
            "Acquire at least": self.acquire("shop.orders", "8", 2, owner="näme", at_least=duration(300)),
            "Acquire shared": self.acquire("shop.pool", "p", 3, mode=pb.MODE_SHARED, units=2, owner="one"),
            "Acquire shared too": self.acquire("shop.pool", "p", 4, mode=pb.MODE_SHARED, owner="two"),
            "Acquire final": self.acquire("shop.every", "final", 5, seconds=7000),
            "AcquireAll": self.lease("AcquireAll", items=[pb.AcquireItem(scope=scope("shop.all", "b")),
                                     pb.AcquireItem(scope=scope("shop.pool", "all"), mode=pb.MODE_SHARED, units=3)],
                                     duration=duration(600), lease_key=key_of(6), owner="both"),
            "Acquire failing": self.acquire("shop.failing", "f", 7, owner="crashed"),
        }
        for number, how in ((10, {"success": '{"rows": 12}'}), (11, {"failure": "why"})):
            self.made[f"Acquire past {number}"] = self.acquire("shop.past", "k", number, owner=f"owner {number}")
            self.made[f"Release {number}"] = self.end("shop.past", "k", number, **how)
        self.waiting, self.made["AcquireStream queued"] = self.waiter("shop.orders", "7", 20, owner="waiter 1")
        self.made["AcquireStream queued behind"] = self.waiter("shop.orders", "7", 21, owner="waiter 2", mode=pb.MODE_SHARED)[1]
        self.made["AcquireStream queued shared"] = self.waiter("shop.pool", "p", 22, mode=pb.MODE_SHARED, units=3)[1]
        self.psql("update leasehold.scope set deadline = deadline - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h',"
                  " acquired_at = acquired_at - interval '1 h' where namespace = 'shop.failing'")

    def close(self):
        for stream in self.streams:
            stream.close()
        super().close()
