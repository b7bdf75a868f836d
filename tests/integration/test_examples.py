"""The examples of deploy/examples, run as their READMEs say, against a real daemon."""
import os
import pathlib
import signal
import subprocess

import pytest

import harness
from harness import wait_until

EXAMPLES = harness.ROOT / "deploy/examples"


@pytest.fixture(scope="module")
def run(service, cluster, tmp_path_factory):
    """Start a program of an example, with the surroundings that its README asks for."""
    # Where google.rpc is found beside Debian's google package.
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(f"import google\ngoogle.__path__.append({str(pathlib.Path(harness.pb.__file__).parents[2] / 'google')!r})\n")
    environment = {
        **os.environ,
        "PATH": f"{harness.CLI.parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{site}:{pathlib.Path(harness.pb.__file__).parents[2]}",
        "LEASEHOLD_SERVER": service.daemon.target,
        "LEASEHOLD_DATABASE": cluster.url(service.database),
    }
    started = []

    def start(*args, wait=True, cwd="/tmp"):
        command = [str(EXAMPLES / args[0]), *map(str, args[1:])]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=cwd,
                                   start_new_session=True)
        started.append(process)
        if wait:
            process.text = process.communicate(timeout=60)[0]
        return process

    yield start
    for process in started:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture(scope="module")
def load(service):
    return lambda path: service.psql((EXAMPLES / path).read_text())


def die(process):
    """As when the machine goes: it, and all that it started."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait(30)


def let_pass(service, namespace, key):
    service.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '1 hour', heartbeat_at = heartbeat_at - interval '1 hour', "
                 f"deadline = deadline - interval '1 hour', check_at = check_at - interval '1 hour' where namespace = '{namespace}' and key = '{key}'")


def test_async_calls_are_answered_once_and_an_abandoned_one_is_put_back(run, load, service, tmp_path):
    load("async-calls/schema.sql")
    service.psql("""insert into calls.call (request) values ('"one"'), ('"it''s | two"'), ('"three"')""")
    worker = run("async-calls/worker", "tr", "a-z", "A-Z")
    assert worker.returncode == 0 and len(worker.text.splitlines()) == 3, worker.text
    assert service.psql("select response from calls.call order by id") == '"ONE"\n"IT\'S | TWO"\n"THREE"'
    assert service.psql("select count(*) from leasehold.lease where namespace = 'calls'") == "0"
    # One whose machine dies in the middle.
    service.psql("""insert into calls.call (request) values ('"four"')""")
    worker = run("async-calls/worker", "sleep", "1000", wait=False)
    state = lambda: service.psql("select state, attempts from calls.call where id = 4")  # noqa: E731
    wait_until(lambda: state() == "running|1", what="the call to run")
    late = service.psql("select lease_key from leasehold.lease where namespace = 'calls'")
    die(worker)
    let_pass(service, "calls", "4")
    wait_until(lambda: state() == "waiting|1", what="the abandoned call to wait again")
    assert service.psql(f"""select calls.complete(4, '{late}', '"late"')""") == "f", "who lost the lease completes nothing"
    assert state() == "waiting|1"
    # A transaction that is undone leaves both as they were.
    took = service.psql("select lease_key from calls.take('me')")
    service.psql(f"""begin; select calls.complete(4, '{took}', '"no"'); rollback""")
    assert state() == "running|2" and service.psql(f"select leasehold.heartbeat('calls', '4', '{took}') is not null") == "t"
    # One that fails is put back by the hook of release_fail, and somebody else answers it.
    assert service.psql(f"select leasehold.release_fail('calls', '4', '{took}', 'no')") == "t" and state() == "waiting|2"
    assert run("async-calls/worker", "cat").text == 'call 4: "four"\n'
    assert state() == "done|3"


def test_a_runner_is_reserved_by_one_job_at_a_time_while_it_is_waited_for(run, service, tmp_path):
    ready, log = tmp_path / "ready", tmp_path / "log"
    reserve = lambda job: run("runner-reservation/reserve", "runner-7", job, f"test -e {ready}", "sh", "-c", f"echo {job} >> {log}", wait=False)  # noqa: E731
    first = reserve("job-1")
    holder = lambda: service.psql("select owner from leasehold.lease where namespace = 'runners'")  # noqa: E731
    wait_until(lambda: holder() == "job-1", what="the reservation")
    second = reserve("job-2")
    wait_until(lambda: service.psql("select owner from leasehold.queue where namespace = 'runners'") == "job-2", what="the second in the queue")
    wait_until(lambda: service.psql("select heartbeats >= 2 from leasehold.lease where namespace = 'runners'") == "t", what="heartbeats while it waits")
    assert holder() == "job-1" and not log.exists()
    ready.touch()
    assert first.wait(30) == 0 and second.wait(30) == 0
    assert log.read_text() == "job-1\njob-2\n" and holder() == ""
    # Lost while it waits: it does not start.
    ready.unlink()
    third = reserve("job-3")
    wait_until(lambda: holder() == "job-3")
    service.psql("select leasehold.force_release('runners', 'runner-7', 'maintenance')")
    assert third.wait(30) == 4 and "job-3" not in log.read_text()


def test_runners_are_present_until_they_leave_or_are_gone(run, load, service):
    load("runner-presence/schema.sql")
    state = lambda name: service.psql(f"select state from runners.runner where name = '{name}'")  # noqa: E731
    key = lambda name: service.psql(f"select lease_key from leasehold.lease where namespace = 'runners.present' and key = '{name}'")  # noqa: E731
    present = lambda name: run("runner-presence/presence.py", service.daemon.target, name, "1.5", wait=False)  # noqa: E731
    one, two = present("one"), present("two")
    wait_until(lambda: state("one") == "present" and state("two") == "present", what="both to be there")
    first = key("one")
    beats = "select heartbeats >= 2 from leasehold.lease where namespace = 'runners.present' and key = 'one'"
    wait_until(lambda: service.psql(beats) == "t", what="the same lease key to renew")
    assert key("one") == first
    # Asleep for too long: gone; awake again it is there with a lease key of its own.
    os.kill(one.pid, signal.SIGSTOP)
    wait_until(lambda: state("one") == "gone", what="the sleeper to be gone")
    assert state("two") == "present"
    os.kill(one.pid, signal.SIGCONT)
    wait_until(lambda: state("one") == "present", what="the sleeper to be there again")
    assert key("one") not in ("", first)
    # Another of that name is told so.
    rival = present("one")
    assert rival.wait(30) == 1 and "already" in rival.stdout.read()
    two.terminate()
    assert two.wait(30) == 0 and state("two") == "left"
    die(one)
    wait_until(lambda: state("one") == "gone", what="the killed one to be gone")


def test_a_schema_change_that_died_keeps_its_lock_for_a_person(run, load, service, tmp_path):
    load("schema-change/policy.sql")
    service.psql("create table item (id int)")
    good, bad, slow = tmp_path / "good.sql", tmp_path / "bad.sql", tmp_path / "slow.sql"
    good.write_text("alter table item add column name text;\n")
    bad.write_text("alter table item add column price int;\nalter table nothing add column x int;\n")
    slow.write_text("alter table item add column late int;\nselect pg_sleep(1000);\n")
    assert run("schema-change/change", "shop", good).returncode == 0
    failed = run("schema-change/change", "shop", bad)
    assert failed.returncode == 1 and "nothing" in failed.text
    columns = lambda: service.psql("select string_agg(attname, ' ' order by attnum) from pg_attribute where attrelid = 'item'::regclass and attnum > 0")  # noqa: E731
    assert columns() == "id name", "all of a file or nothing"
    died = run("schema-change/change", "shop", slow, wait=False)
    sleeping = "select count(*) from pg_stat_activity where query like '%pg_sleep(1000)%' and pid <> pg_backend_pid()"
    wait_until(lambda: service.psql(sleeping) == "1", what="the change to run")
    # Under way it cannot be forced: the guard has the row.
    done = service.psql("select leasehold.force_release('schema-changes', 'shop', 'too early')", check=False)
    assert done.returncode != 0
    die(died)
    service.psql("select pg_terminate_backend(pid) from pg_stat_activity where query like '%pg_sleep(1000)%' and pid <> pg_backend_pid()")
    wait_until(lambda: service.psql(sleeping) == "0")
    let_pass(service, "schema-changes", "shop")
    assert service.psql("select count(*) from leasehold.reap(array['schema-changes'])") == "0"
    assert run("schema-change/change", "shop", good).returncode == 3, "it is nobody's to take over"
    assert "administrator must decide" in service.psql("select advice from leasehold.explain('schema-changes', 'shop')")
    service.psql("select leasehold.force_release('schema-changes', 'shop', 'looked: nothing of it was applied')")
    good.write_text("alter table item add column late int;\n")
    assert run("schema-change/change", "shop", good).returncode == 0 and columns() == "id name late"
    assert service.psql("select string_agg(outcome, ' ' order by token) from leasehold.history where namespace = 'schema-changes'") == "ok failed forced ok"


def test_a_parcels_step_and_its_lease_change_together(run, load, service):
    load("state-machine/schema.sql")
    service.psql("insert into parcels.parcel (id) values (1)")
    parcel = lambda: service.psql("select state, token from parcels.parcel").split("|")  # noqa: E731
    assert run("state-machine/step", 1, "packed", "true").returncode == 0
    state, token = parcel()
    assert state == "packed" and service.psql("select token from leasehold.scope where namespace = 'parcels'") == token
    refused = run("state-machine/step", 1, "delivered", "true")
    assert refused.returncode == 1 and "parcel 1 is packed: it cannot become delivered" in refused.text
    assert parcel() == ["packed", token] and service.psql("select last_outcome from leasehold.scope where namespace = 'parcels'") == "failed"
    assert run("state-machine/step", 1, "sent", "false").returncode == 1 and parcel() == ["packed", token]
    died = run("state-machine/step", 1, "sent", "sleep", "1000", wait=False)
    wait_until(lambda: service.psql("select count(*) from leasehold.lease where namespace = 'parcels'") == "1")
    die(died)
    let_pass(service, "parcels", "1")
    assert run("state-machine/step", 1, "sent", "true").returncode == 0 and parcel()[0] == "sent"


@pytest.mark.parametrize("through", ["a daemon", "SQL"])
def test_a_worker_of_the_package_answers_calls(service, cluster, through):
    service.psql("drop schema if exists calls cascade; delete from leasehold.registered_hook where namespace = 'calls'")
    service.psql((EXAMPLES / "async-calls/schema.sql").read_text())
    service.psql("insert into calls.call (request) select to_jsonb('call ' || n) from generate_series(1, 3) n")
    environment = {**os.environ, "PYTHONPATH": str(harness.ROOT / "src/python"), "LEASEHOLD_DATABASE": cluster.url(service.database)}
    workers = [subprocess.Popen([EXAMPLES / "async-calls/worker.py", *([service.daemon.target] if through == "a daemon" else [])], env=environment, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for _ in range(2)]
    said = [worker.communicate(timeout=60)[0] for worker in workers]
    assert [worker.returncode for worker in workers] == [0, 0], said
    assert sorted("".join(said).splitlines()) == [f"call {n}: {{'shouted': 'CALL {n}'}}" for n in (1, 2, 3)]
    assert service.psql("select count(*) from calls.call where state = 'done' and attempts = 1") == "3"


@pytest.mark.parametrize("name", ["async-calls", "runner-reservation", "runner-presence", "schema-change", "state-machine"])
def test_an_example_is_explained(name):
    words = (EXAMPLES / name / "README.md").read_text()
    for file in (EXAMPLES / name).iterdir():
        assert file.name == "README.md" or file.name in words, f"README.md does not mention {file.name}"
    assert name in (harness.ROOT / "deploy/README.md").read_text(), "deploy/README.md does not list it"


def test_the_example_of_embedding_works_on_its_job(stage):
    worker = harness.BUILD / "deploy/examples/worker"
    stage.psql("create table job (id text primary key, state text not null, token bigint, steps integer not null default 0);"
               "insert into job values ('invoice-42', 'queued')")
    run = lambda key: subprocess.run([worker, stage.url, "jobs", key], capture_output=True, text=True, timeout=60)
    said = run("invoice-42")
    assert said.returncode == 0 and "done after 3 heartbeats" in said.stdout, said.stderr
    token = stage.psql("select token from leasehold.scope")
    assert stage.psql("select * from job") == f"invoice-42|done|{token}|3"
    assert stage.psql("select state, last_outcome, last_result from leasehold.scope") == 'free|ok|{"steps": 3}'
    said = run("no-such-job")
    assert said.returncode == 1 and "there is no such job" in said.stderr and stage.held() == 0
    # It waits for its turn, and is told by NOTIFY when that comes.
    stage.psql("insert into job values ('next', 'queued')")
    lease_key = stage.psql("select lease_key from leasehold.acquire('jobs', 'next', '1 h')")
    waiting = subprocess.Popen([worker, stage.url, "jobs", "next"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    wait_until(lambda: stage.number("select count(*) from leasehold.waiter") == 1, what="the worker in the queue")
    stage.psql(f"select leasehold.release_ok('jobs', 'next', '{lease_key}')")
    out, err = waiting.communicate(timeout=60)
    assert waiting.returncode == 0 and "done" in out, err
    assert stage.number("select count(*) from leasehold.waiter") == 0
