"""What the tests of reaping from outside of a daemon share: a database with expired leases, and plugins."""
import subprocess
import uuid

import commandline
import harness


class Stage:
    """A database of its own, with expired leases in it as many as one likes, and the command line on it."""

    def __init__(self, cluster, template=None):
        self.cluster = cluster
        self.name = "reap_" + uuid.uuid4().hex[:12]
        cluster.psql(f"create database {self.name}" + (f" template {template.name}" if template else ""), "postgres")
        self.url = cluster.url(self.name)

    def build(self):
        self.done("migrate")
        self.psql("create table counted (token bigint primary key, key text not null, pid integer not null)")
        self.psql("create table parent (id integer primary key);"
                  "create table child (id integer references parent deferrable initially deferred)")
        self.psql("select * from leasehold.reap()")  # notices that the database is new
        return self

    def psql(self, sql, **more):
        return self.cluster.psql(sql, self.name, **more)

    def number(self, sql):
        return int(self.psql(sql))

    def expire(self, count, namespace="jobs", first=1):
        """Leases k1, k2 ... whose holders went away an hour ago."""
        for start in range(first, first + count, 500):
            end = min(start + 500, first + count) - 1
            self.psql("select count(*) from (select array_agg('k' || n) as keys, array_agg('worker-' || n) as owners, array_agg(gen_random_uuid()) as ids,"
                      f" array_agg('{namespace}'::text) as namespaces, array_agg('{{}}'::text) as labels, array_agg(30000000::bigint) as durations,"
                      f" array_agg(false) as queue, array_agg(null::bigint) as nothing from generate_series({start}, {end}) n) a,"
                      " leasehold_internal.acquire_batch(null, null, a.namespaces, a.keys, a.ids, a.owners, a.labels, a.durations, a.queue, a.nothing,"
                      " a.nothing)")
        self.psql(f"update leasehold.scope set acquired_at = acquired_at - interval '1 h', heartbeat_at = heartbeat_at - interval '1 h',"
                  f" deadline = deadline - interval '1 h', check_at = check_at - interval '1 h'"
                  f" where namespace = '{namespace}' and state = 'held' and deadline > now()")

    def held(self):
        return self.number("select count(*) from leasehold.scope where state = 'held'")

    def counted(self):
        """(committed callbacks, leases that they were for): equal when nothing was done twice."""
        return tuple(map(int, self.psql("select count(*), count(distinct key) from counted").split("|")))

    def __call__(self, *args, **more):
        return commandline.cli(*args, "--database", self.url, **more)

    def done(self, *args, **more):
        said = self(*args, **more)
        assert said.returncode == 0, f"{args}: exit {said.returncode}: {said.stderr}"
        return said

    def start(self, *args, **env):
        return commandline.start(*args, "--database", self.url, **env)

    def failures(self):
        return dict(line.split("|", 1) for line in self.psql("select key, error from leasehold.reap_failure").splitlines())

    def put_off(self):
        """A backoff that outlasts the test, however slow the machine is."""
        self.psql("update leasehold.scope set next_try_at = now() + interval '1 hour', check_at = now() + interval '1 hour'"
                  " where reap_failures > 0")

    def let_retry(self):
        """As if the backoff of what has failed had passed."""
        self.psql("update leasehold.scope set next_try_at = now() - interval '1 s', check_at = now() - interval '1 s',"
                  " reap_failed_at = now() - interval '1 min' where reap_failures > 0")


def compile_plugin(directory, source, name="plugin.so"):
    where = directory / name
    include = subprocess.run(["pg_config", "--includedir"], check=True, capture_output=True, text=True).stdout.strip()
    subprocess.run(["cc", "-shared", "-fPIC", "-Wall", "-Werror", f"-I{harness.ROOT / 'src'}", f"-I{include}", "-o", where,
                    source, "-lpq"], check=True)
    return where
