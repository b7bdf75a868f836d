"""A heartbeat races the end of its lease, thousands of times: the reaper's, cron's beside it, or an acquirer's who takes over.

Whole groups of leases are renewed in the moment in which they expire, again and again until each is lost. There must be one truth of each:
the holder heard OK just as often as the database counts renewals, then LOST for good; and the lease ended once, after that.
"""
import collections
import pathlib
import random
import sys
import threading
import time

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "integration"))
import harness  # noqa: E402
from harness import acquire_request, lease_ref, pb, wait_until  # noqa: E402

GROUPS = 6
GROUP = 50
RACES = 300  # of each holder, in as many rounds as that takes
ROUNDS_MAX = 30
SECONDS = 0.5

SETUP = """
select leasehold.set_policy('race', min_duration => '100 ms', grace => '0 s', history => true, free_retention => '1 hour');
create table ended (key text, token bigint, heartbeats bigint);
grant insert on ended to leasehold_owner;
create function note_end(p_event leasehold.lease_event) returns void language sql as $$
  insert into public.ended
  select s.key, p_event.token, s.heartbeats from leasehold.scope s where s.namespace = p_event.namespace and s.key = p_event.key
$$;
"""


@pytest.fixture(scope="module")
def cluster():
    cluster = harness.Cluster(migrated=True)
    yield cluster
    cluster.destroy()


class Holder(threading.Thread):
    """Acquires a group and renews it at the last moment until all of it is lost."""

    def __init__(self, daemon, number, rival):
        super().__init__()
        self.client = harness.Client(daemon.target)
        self.rival = harness.Client(daemon.target) if rival else None
        self.random = random.Random(number)
        self.number = number
        self.early = 0.005  # how long before the expiry to send; moved so that about half are late
        self.told = {}  # key -> (token, times OK)
        self.taken = {}  # key -> token of who took over
        self.races = self.won = self.rounds = 0
        self.problems = []

    def run(self):
        try:
            while self.races < RACES and self.rounds < ROUNDS_MAX:
                self.one_round(self.rounds)
                self.rounds += 1
        except Exception as error:  # noqa: BLE001
            self.problems.append(repr(error))

    def one_round(self, turn):
        calls = [self.client.lease.Acquire.future(acquire_request("race", f"k{self.number}-{turn}-{n}", SECONDS)) for n in range(GROUP)]
        leases = [call.result(30).lease for call in calls]
        rivals = [self.rival.lease.Acquire.future(acquire_request("race", lease.scope.key, 60, wait=30)) for lease in leases] if self.rival else []
        held = {lease.lease_key: (lease, 0) for lease in leases}
        deadlines = {lease.lease_key: lease.deadline.ToNanoseconds() / 1e9 for lease in leases}
        expiry = 0.0  # the first heartbeat gives all of them the same
        while held:
            time.sleep(max(0.0, expiry - self.early - time.time() + self.random.uniform(-0.003, 0.003)))
            response = self.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease) for lease, _ in held.values()]))
            now = time.time()
            outcomes = collections.Counter(result.outcome for result in response.results)
            if expiry:
                self.races += outcomes[pb.OUTCOME_OK] + outcomes[pb.OUTCOME_LOST]
                self.won += outcomes[pb.OUTCOME_OK]
                self.early += 0.004 * (outcomes[pb.OUTCOME_LOST] - outcomes[pb.OUTCOME_OK]) / len(response.results)
            # One machine, one clock: the database's own deadline is when to be there.
            expiry = min((result.deadline.ToNanoseconds() / 1e9 for result in response.results if result.outcome == pb.OUTCOME_OK), default=expiry)
            for result in response.results:
                lease, count = held[result.lease_key]
                if result.outcome == pb.OUTCOME_OK:
                    held[result.lease_key] = (lease, count + 1)
                    deadlines[result.lease_key] = result.deadline.ToNanoseconds() / 1e9
                    if result.heartbeats != count + 1:
                        self.problems.append(f"{lease.scope.key}: OK number {count + 1} is heartbeat {result.heartbeats}")
                elif result.outcome == pb.OUTCOME_LOST:
                    if now < deadlines[result.lease_key]:
                        self.problems.append(f"{lease.scope.key}: lost {deadlines[result.lease_key] - now:.6f} s before its deadline")
                    if result.end_reason not in (pb.END_REASON_EXPIRED, pb.END_REASON_UNSPECIFIED, pb.END_REASON_UNKNOWN):
                        self.problems.append(f"{lease.scope.key}: lost as {result.end_reason}")
                    self.told[lease.scope.key] = (lease.token, count)
                    del held[result.lease_key]
                elif result.outcome != pb.OUTCOME_RETRY:
                    self.problems.append(f"{lease.scope.key}: {result}")
            if outcomes[pb.OUTCOME_LOST]:
                self.ask_again([lease for lease in leases if lease.lease_key not in held])
        for call in rivals:
            lease = call.result(60).lease
            self.taken[lease.scope.key] = lease.token

    def ask_again(self, lost):
        """Who was told LOST is never told OK again."""
        for result in self.client.lease.Heartbeat(pb.HeartbeatRequest(leases=[lease_ref(lease) for lease in lost])).results:
            if result.outcome not in (pb.OUTCOME_LOST, pb.OUTCOME_RETRY):
                self.problems.append(f"{result.lease_key} was lost, then {result.outcome}")


# Promise 3, promise 11.
@pytest.mark.parametrize("ender", ["reaper", "hooks", "takeover"])
def test_a_heartbeat_races_the_end_of_its_lease_and_there_is_one_truth(cluster, ender):
    database = cluster.create_database(migrated=True)
    daemon = harness.Daemon(database=cluster.url(database))
    cluster.psql(SETUP, database)
    if ender == "hooks":
        cluster.psql("select leasehold.add_hook('race', 'reap', 'public.note_end(leasehold.lease_event)')", database)
    elif ender == "takeover":
        cluster.psql("select leasehold.set_policy('race', reaper => 'external')", database)
    holders = [Holder(daemon, number, ender == "takeover") for number in range(GROUPS)]
    for holder in holders:
        holder.start()
    cron = cluster.session(database)
    while any(holder.is_alive() for holder in holders):
        cron.run("select count(*) from leasehold.reap()")
    cron.close()
    assert [problem for holder in holders for problem in holder.problems] == []
    told = {key: value for holder in holders for key, value in holder.told.items()}
    assert len(told) == GROUP * sum(holder.rounds for holder in holders)
    races, won = (sum(getattr(holder, name) for holder in holders) for name in ("races", "won"))
    assert races > 1000 and won > races / 20, f"{won} of {races} heartbeats came in time: that was no race"

    ended = lambda: cluster.psql("select count(*) from leasehold.history", database)  # noqa: E731
    wait_until(lambda: int(ended()) >= len(told), what="the end of each lease")
    rows = [row.split("|") for row in cluster.psql("select key, token, outcome from leasehold.history", database).splitlines()]
    assert sorted(rows) == sorted([key, str(token), "expired"] for key, (token, _) in told.items()), "each ended once, as expired"
    if ender == "takeover":
        taken = {key: token for holder in holders for key, token in holder.taken.items()}
        assert taken.keys() == told.keys() and all(taken[key] > told[key][0] for key in told)
    else:
        source = "ended" if ender == "hooks" else "leasehold.scope where namespace = 'race'"
        rows = [row.split("|") for row in cluster.psql(f"select key, token, heartbeats from {source}", database).splitlines()]
        assert sorted(rows) == sorted([key, str(token), str(count)] for key, (token, count) in told.items()), "renewed as often as its holder was told"
    print(f"{races} heartbeats at the last moment, {won} in time")
    assert daemon.stop() == 0
