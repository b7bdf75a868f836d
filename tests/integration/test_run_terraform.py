"""`leasehold run --terraform`: the http backend's messages, as Terraform sends them with what run puts into its environment."""
import json
import os
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

import harness
from harness import wait_until

# What Terraform 1.11 sends, line by line from stdin: METHOD_VARIABLE ADDRESS_VARIABLE QUERY BODY; it prints the status and the answer.
CLIENT = r'''
import os, signal, sys, urllib.error, urllib.request
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", os.environ.get("TF_HTTP_ADDRESS", "-"), flush=True)
for line in sys.stdin:
    method, address, query, body = line.rstrip("\n").split("\t")
    request = urllib.request.Request(os.environ[address] + query, method=os.environ.get(method, method), data=body.encode() or None,
                                     headers={"Content-Type": "application/json"})
    try:
        answer = urllib.request.urlopen(request, timeout=30)
    except urllib.error.HTTPError as error:
        answer = error
    print(answer.status, answer.read().decode(), flush=True)
'''
STATE = json.dumps({"version": 4, "serial": 1, "lineage": "x", "outputs": {}, "resources": []})


def info(number):
    return json.dumps({"ID": f"id-{number}", "Operation": "OperationTypeApply", "Who": "me@here", "Version": "1.11.4", "Path": ""})


class Run:
    def __init__(self, service, key, *options):
        env = {name: value for name, value in os.environ.items() if not name.startswith(("LEASEHOLD_", "TF_"))}
        self.process = subprocess.Popen(
            [harness.CLI, "run", "tf", key, "--terraform", *options, "--", sys.executable, "-c", CLIENT],
            env={**env, "LEASEHOLD_SERVER": service.daemon.target}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().split()[1]

    def send(self, method, address, query="", body=""):
        self.process.stdin.write("\t".join((method, address, query, body)) + "\n")
        self.process.stdin.flush()
        status, _, text = self.process.stdout.readline().rstrip("\n").partition(" ")
        return int(status), text

    def lock(self, number):
        return self.send("TF_HTTP_LOCK_METHOD", "TF_HTTP_LOCK_ADDRESS", body=info(number))

    def unlock(self, number):
        return self.send("TF_HTTP_UNLOCK_METHOD", "TF_HTTP_UNLOCK_ADDRESS", body=info(number))

    def end(self):
        self.out, self.err = self.process.communicate(timeout=60)
        return self.process.returncode


@pytest.fixture
def run(service):
    runs = []

    def start(key, *options):
        runs.append(Run(service, key, *options))
        return runs[-1]

    yield start
    for one in runs:
        if one.process.poll() is None:
            one.process.kill()
        one.end()


def test_state_and_lock_as_terraform_uses_them(run, tmp_path):
    one = run("state", "--state", str(tmp_path))
    file = tmp_path / "terraform.tfstate"
    assert one.send("GET", "TF_HTTP_ADDRESS") == (204, "")
    assert one.lock(1) == (200, "")
    assert one.lock(2) == (423, info(1)), "another client of the same run hears who has it"
    assert one.send("POST", "TF_HTTP_ADDRESS", "?ID=id-2", STATE) == (409, info(1)) and not file.exists()
    assert one.send("POST", "TF_HTTP_ADDRESS", "?ID=id-1", STATE) == (200, "")
    assert file.read_text() == STATE and file.stat().st_mode & 0o777 == 0o600
    assert one.send("GET", "TF_HTTP_ADDRESS") == (200, STATE)
    assert one.unlock(2) == (409, info(1))
    assert one.send("TF_HTTP_UNLOCK_METHOD", "TF_HTTP_UNLOCK_ADDRESS", body=json.dumps({"ID": "id-2"}))[0] == 409
    assert one.unlock(1) == (200, "")
    assert one.lock(2) == (200, "") and one.unlock(2) == (200, "")
    assert one.send("DELETE", "TF_HTTP_ADDRESS") == (200, "") and not file.exists()
    assert one.send("DELETE", "TF_HTTP_ADDRESS") == (200, "")
    assert one.send("TF_HTTP_LOCK_METHOD", "TF_HTTP_LOCK_ADDRESS", body="[]")[0] == 400
    assert one.send("GET", "TF_HTTP_LOCK_ADDRESS")[0] == 405
    assert one.end() == 0 and os.listdir(tmp_path) == []


def test_an_unlock_without_an_id_ends_nobodys_lock(run):
    """What force-unlock of Terraform 1.5 sends, whatever ID was typed; OpenTofu 1.12 sends the ID."""
    one = run("unlock")
    assert one.lock(1) == (200, "")
    for body in ("", "{}", '{"ID": ""}', "[]"):
        status, words = one.send("TF_HTTP_UNLOCK_METHOD", "TF_HTTP_UNLOCK_ADDRESS", body=body)
        assert status == 409 and "an unlock without the ID of the lock is refused" in words
    assert one.lock(2) == (423, info(1))
    assert one.send("TF_HTTP_UNLOCK_METHOD", "TF_HTTP_UNLOCK_ADDRESS", body=json.dumps({"ID": "id-1"})) == (200, "")
    assert one.send("TF_HTTP_UNLOCK_METHOD", "TF_HTTP_UNLOCK_ADDRESS") == (200, ""), "there is none to end"
    assert one.lock(2) == (200, "") and one.unlock(2) == (200, "")
    assert one.end() == 0


@pytest.mark.parametrize("body", ["", "not JSON", '{"version": 4', "[]", '"text"', "<html></html>"])
def test_a_state_that_is_none_leaves_the_old_one(run, tmp_path, body):
    one = run("body", "--state", str(tmp_path))
    assert one.send("POST", "TF_HTTP_ADDRESS", "", STATE) == (200, "")
    assert one.send("POST", "TF_HTTP_ADDRESS", "", body) == (400, "the state is not a JSON object; the old one stays")
    assert one.end() == 0 and os.listdir(tmp_path) == ["terraform.tfstate"] and (tmp_path / "terraform.tfstate").read_text() == STATE


def test_links_in_the_directory_of_the_state_are_not_followed(run, tmp_path):
    """Whoever may write there chooses no file elsewhere that is read or written."""
    elsewhere = tmp_path / "elsewhere"
    place = tmp_path / "place"
    place.mkdir()
    elsewhere.write_text(STATE)
    (place / "terraform.tfstate").symlink_to(elsewhere)
    one = run("links", "--state", str(place))
    assert one.send("GET", "TF_HTTP_ADDRESS")[0] == 500
    other = STATE.replace('"serial": 1', '"serial": 2')
    assert one.send("POST", "TF_HTTP_ADDRESS", "", other) == (200, "")
    assert elsewhere.read_text() == STATE and os.listdir(place) == ["terraform.tfstate"]
    assert (place / "terraform.tfstate").read_text() == other and not (place / "terraform.tfstate").is_symlink()
    assert one.end() == 0


def test_a_file_that_another_run_is_writing_stays(run, tmp_path):
    """One that has lost its lease, and whose disk is slow."""
    (tmp_path / "terraform.tfstate.new").write_text("another's")
    one = run("beside", "--state", str(tmp_path))
    assert one.send("POST", "TF_HTTP_ADDRESS", "", STATE) == (200, "")
    assert sorted(os.listdir(tmp_path)) == ["terraform.tfstate", "terraform.tfstate.new"]
    assert (tmp_path / "terraform.tfstate.new").read_text() == "another's" and (tmp_path / "terraform.tfstate").read_text() == STATE
    assert (tmp_path / "terraform.tfstate").stat().st_mode & 0o777 == 0o600
    assert one.end() == 0


def test_nothing_is_locked_or_written_without_the_lease(run, service, tmp_path):
    one = run("lost", "--state", str(tmp_path), "-d", "30s", "--kill-after", "10s")
    assert one.lock(1)[0] == 200
    service.psql("select leasehold.force_release('tf', 'lost', 'a test')")
    # It hears of that with its next renewal. Terraform may go on for a while then: it ignores TERM.
    wait_until(lambda: one.send("POST", "TF_HTTP_ADDRESS", "?ID=id-1", STATE)[0] == 409, 60, "a write that is refused")
    (tmp_path / "terraform.tfstate").write_text("another's")
    assert one.send("POST", "TF_HTTP_ADDRESS", "?ID=id-1", STATE)[0] == 409
    assert one.send("DELETE", "TF_HTTP_ADDRESS")[0] == 409
    assert one.lock(1)[0] == 409
    assert (tmp_path / "terraform.tfstate").read_text() == "another's" and os.listdir(tmp_path) == ["terraform.tfstate"]
    assert one.process.wait(60) == 4
    one.end()
    assert "another run may be working with this state" in one.err


def test_one_run_at_a_time_and_a_killed_one_leaves_no_lock(run, service):
    one = run("turns", "-d", "9s")
    assert one.address == "-" and one.lock(1)[0] == 200
    other = subprocess.run([harness.CLI, "run", "tf", "turns", "--terraform", "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                           env={**os.environ, "LEASEHOLD_SERVER": service.daemon.target}, text=True)
    assert other.returncode == 3, other.stdout
    one.process.kill()
    two = run("turns", "--wait", "60s")
    assert two.lock(2) == (200, "") and two.unlock(2) == (200, "")
    assert two.end() == 0


def test_others_on_the_machine_need_the_path(run, tmp_path):
    one = run("secret", "--state", str(tmp_path))
    for path in ("/", "/lock", "/" + 32 * "0"):
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(one.address.rsplit("/", 1)[0] + path, timeout=30)
        assert refused.value.code == 404
    assert one.end() == 0


@pytest.mark.parametrize("options, status, words", [
    (["--state", "/tmp"], 2, "--state is for --terraform"),
    (["--terraform", "--state", "/nonexistent"], 1, "--state /nonexistent is no directory"),
])
def test_wrong_use_is_said(options, status, words):
    done = subprocess.run([harness.CLI, "run", "tf", "x", *options, "--", "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == status and words in done.stdout
