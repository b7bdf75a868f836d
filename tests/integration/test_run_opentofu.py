"""OpenTofu under `leasehold run --terraform`. opentofu.jsonl has what OpenTofu 1.12.6 sent, and what it was answered: init; apply; an apply whose
lock is ended by force-unlock while a second one is refused, and the state that it then pushes; an apply that is killed, and the force-unlock
of its lock; another apply, and destroy.

    LEASEHOLD_TOFU=/path/of/tofu pytest tests/integration/test_run_opentofu.py

also does that with the program itself.
"""
import http.client
import json
import os
import pathlib
import subprocess
import urllib.parse

import harness
from test_run_terraform import run  # noqa: F401

RECORD = pathlib.Path(__file__).with_name("opentofu.jsonl")


def test_what_opentofu_sends_is_answered(run, tmp_path):  # noqa: F811
    one = run("opentofu", "--state", str(tmp_path))
    place = urllib.parse.urlsplit(one.address)
    for number, line in enumerate(RECORD.read_text().splitlines(), 1):
        method, path, headers, body, status, answer = json.loads(line)
        connection = http.client.HTTPConnection(place.netloc, timeout=30)
        connection.request(method, place.path + path, body.encode() or None, headers)
        got = connection.getresponse()
        assert (got.status, got.read().decode()) == (status, answer), f"{RECORD.name}:{number}"
        connection.close()
    assert one.end() == 0, one.err


CONFIGURATION = """
terraform {
  backend "http" {}
}
variable "word" {}
resource "terraform_data" "work" {
  triggers_replace = var.word
  provisioner "local-exec" {
    command = "touch started.${var.word}; until [ -e go.${var.word} ]; do sleep 0.1; done"
  }
}
"""
SCRIPT = r"""
apply() { exec "$LEASEHOLD_TOFU" apply -auto-approve -input=false -no-color -var "word=$1" >"$1.log" 2>&1; }
unlock() { "$LEASEHOLD_TOFU" force-unlock -force -no-color "$1" >unlock.log 2>&1; }
id() { sed -n 's/.*ID: *\([0-9a-f-]*\)$/\1/p' "$1.log"; }
started() { for try in $(seq 600); do [ ! -e "started.$1" ] || return 0; sleep 0.1; done; exit 9; }

touch go.first go.last
"$LEASEHOLD_TOFU" init -input=false >init.log 2>&1 || exit 9
(apply first); echo "apply $?"
(apply open) & open=$!
started open
(apply other); echo "second apply $?"
unlock 11111111-1111-1111-1111-111111111111; echo "unlock of another ID $?"
unlock "$(id other)"; echo "unlock $?"
touch go.open
wait $open; echo "the apply without its lock $?"
"$LEASEHOLD_TOFU" state push errored.tfstate >push.log 2>&1; echo "push $?"
(apply killed) & killed=$!
started killed
kill -9 $killed; touch go.killed; wait $killed
(apply behind); echo "apply behind a dead one $?"
unlock "$(id behind)"; echo "unlock $?"
(apply last); echo "apply $?"
"""
if "LEASEHOLD_TOFU" in os.environ:
    def test_opentofu_itself(service, tmp_path):
        work, state = tmp_path / "work", tmp_path / "state"
        work.mkdir()
        state.mkdir()
        (work / "main.tf").write_text(CONFIGURATION)
        (work / "rc").write_text("")
        done = subprocess.run([harness.CLI, "run", "tf", "itself", "--terraform", "--state", state, "--", "sh", "-c", SCRIPT], cwd=work, text=True,
                              stdout=subprocess.PIPE, env={**os.environ, "LEASEHOLD_SERVER": service.daemon.target, "TF_CLI_CONFIG_FILE": str(work / "rc")})
        assert done.stdout.splitlines() == [
            "apply 0", "second apply 1", "unlock of another ID 1", "unlock 0", "the apply without its lock 1", "push 0", "apply behind a dead one 1",
            "unlock 0", "apply 0"], [each.read_text() for each in work.glob("*.log")]
        assert done.returncode == 0
        assert json.loads((state / "terraform.tfstate").read_text())["resources"][0]["instances"][0]["attributes"]["triggers_replace"]["value"] == "last"
