"""docs/use/schedules.md: its example, as an administrator and a worker run it."""
import re
import subprocess

import harness
from commandline import environment

(EXAMPLE,) = re.findall(r"```sql\n(.*?)```", (harness.ROOT / "docs/use/schedules.md").read_text(), re.S)


def test_the_example_runs_a_tick_to_its_end(cluster):
    database = cluster.create_database()
    done = subprocess.run([harness.CLI, "migrate", "--database", cluster.url(database)], env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    # A day has passed; and psql's variables take what the claim answers.
    first, claim, rest = re.fullmatch(r"(.*?)(select at, attempt[^;]*);(.*)", EXAMPLE, re.S).groups()
    script = f"{first}update leasehold.schedule set made_until = made_until - interval '1 day', look_at = clock_timestamp();\n{claim} \\gset\n{rest}"
    said = subprocess.run(["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-d", cluster.url(database)], input=script, capture_output=True, text=True, timeout=120)
    assert said.returncode == 0, said.stderr
    channel = cluster.psql("select leasehold.tick_channel('reports.nightly')", database)
    assert f"listen {channel};" in EXAMPLE
    rows = cluster.psql("select state, attempts, owner, result from leasehold.tick where attempts > 0", database)
    assert rows == 'done|1|worker-3|{"rows": 3}'
    assert cluster.psql("select paused from leasehold.schedule", database) == "t"
