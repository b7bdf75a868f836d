"""deploy/kubernetes: the manifests fit the schemas of Kubernetes and each other, a daemon runs with their settings and answers their probes, and
the sidecar's command does what it says."""
import copy
import json
import os
import pathlib
import re
import shutil
import signal
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile

import jsonschema
import pytest
import yaml

import certificates
import harness
from harness import wait_until

sys.path.insert(0, str(harness.ROOT / "tests/lib"))
import pypi  # noqa: E402

DIRECTORY = harness.ROOT / "deploy/kubernetes"
VERSIONS = (30, 37)


def documents(name):
    return list(yaml.safe_load_all((DIRECTORY / name).read_text()))


def all_documents():
    return [each for path in sorted(DIRECTORY.glob("*.yaml")) for each in documents(path.name)]


def one(kind, name):
    (found,) = [each for each in all_documents() if each["kind"] == kind and each["metadata"]["name"] == name]
    return found


DAEMON = one("Deployment", "leasehold")
CONTAINER = DAEMON["spec"]["template"]["spec"]["containers"][0]


@pytest.fixture(scope="module")
def schemas():
    with zipfile.ZipFile(pypi.wheel(pathlib.Path(__file__).with_name("kubernetes.txt"))) as archive:
        yield lambda minor, name: json.loads(archive.read(f"kubernetes_validate/kubernetes-json-schema/v1.{minor}.0-local-strict/{name}.json"))


def schema_of(document):
    group, _, version = document["apiVersion"].rpartition("/")
    return "-".join(filter(None, [document["kind"].lower(), group.split(".")[0], version]))


def errors(schemas, minor, resolver, document):
    return [error.message for error in jsonschema.Draft202012Validator(schemas(minor, schema_of(document)), resolver=resolver).iter_errors(document)]


@pytest.mark.parametrize("minor", VERSIONS)
def test_the_manifests_fit_the_schemas_of(schemas, minor):
    definitions, checked = schemas(minor, "_definitions"), 0
    resolver = jsonschema.RefResolver("", {}, store={definitions["$id"]: definitions})
    for document in all_documents():
        if document["apiVersion"].split("/")[0] in ("kustomize.config.k8s.io", "monitoring.coreos.com"):
            continue
        assert errors(schemas, minor, resolver, document) == [], document["kind"]
        checked += 1
    assert checked == 8
    broken = copy.deepcopy(DAEMON)
    broken["spec"]["template"]["spec"]["containers"][0]["readinessProbe"]["httpGet"]["pfad"] = "/"
    assert len(errors(schemas, minor, resolver, broken)) == 1


def test_the_manifests_fit_each_other():
    kustomization = documents("kustomization.yaml")[0]
    resources = {each["kind"]: each for name in kustomization["resources"] for each in documents(name)}
    assert set(resources) == {"Deployment", "Service", "PodDisruptionBudget", "NetworkPolicy"}
    (generator,) = kustomization["configMapGenerator"]
    assert generator == {"name": "leasehold", "files": ["leasehold.ini"]}
    pod, labels = DAEMON["spec"]["template"]["spec"], DAEMON["spec"]["template"]["metadata"]["labels"]
    for selector in (DAEMON["spec"]["selector"]["matchLabels"], resources["Service"]["spec"]["selector"],
                     resources["PodDisruptionBudget"]["spec"]["selector"]["matchLabels"], resources["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"]):
        assert selector.items() <= labels.items()
    assert one("ServiceMonitor", "leasehold")["spec"]["selector"]["matchLabels"].items() <= resources["Service"]["metadata"]["labels"].items()
    ports = {each["name"] for each in CONTAINER["ports"]}
    used = [each["targetPort"] for each in resources["Service"]["spec"]["ports"]]
    used += [CONTAINER[probe]["httpGet"]["port"] for probe in ("livenessProbe", "readinessProbe")]
    used += [each["port"] for rule in resources["NetworkPolicy"]["spec"]["ingress"] for each in rule["ports"]]
    assert set(used) == ports
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert {each["name"] for each in CONTAINER["volumeMounts"]} == set(volumes)
    assert volumes["config"]["configMap"]["name"] == generator["name"]
    tls = one("Secret", volumes["tls"]["secret"]["secretName"])
    wanted = CONTAINER["env"][0]["valueFrom"]["secretKeyRef"]
    assert wanted["key"] in one("Secret", wanted["name"])["stringData"] and CONTAINER["env"][0]["name"] == "LEASEHOLD_DATABASE"
    mounts = {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}
    named = re.findall(rf"= {mounts['tls']}/(\S+)", (DIRECTORY / "leasehold.ini").read_text())
    assert named == ["tls.crt", "tls.key", "ca.crt"] and set(named) == set(tls["stringData"])
    sidecar = one("Deployment", "scheduler")["spec"]["template"]
    clients = resources["NetworkPolicy"]["spec"]["ingress"][0]["from"][0]["podSelector"]["matchLabels"]
    assert clients.items() <= sidecar["metadata"]["labels"].items()


class Site:
    """A daemon with the settings of the manifests, but for its ports and directories."""

    def __init__(self, directory):
        self.directory, self.authority = directory, certificates.Authority(directory)
        server = self.authority.issue("server", "DNS:localhost,DNS:leasehold.leasehold.svc,IP:127.0.0.1")
        self.client = self.authority.issue("client", "URI:spiffe://cluster.local/ns/leasehold/sa/admin")
        for source, name in ((server.cert, "tls.crt"), (server.key, "tls.key"), (self.authority.cert, "ca.crt")):
            shutil.copy(source, directory / name)
            (directory / name).chmod(0o644)
        directory.chmod(0o777)  # the daemon may run as another user, and makes its socket here
        self.cluster = harness.Cluster(migrated=True)
        self.database = self.cluster.create_database(migrated=True)
        subprocess.run([harness.CLI, "migrate", "--database", self.cluster.url(self.database)], check=True, stdout=subprocess.DEVNULL)
        self.psql("create role leasehold_daemon login in role leasehold_coordinator")
        config = directory / "leasehold.ini"
        config.write_text(self.moved((DIRECTORY / "leasehold.ini").read_text()))
        self.daemon = harness.Daemon("--config", str(config), "--listen", f"0.0.0.0:0,unix:{directory}/grpc", "--admin", "0.0.0.0:0",
                                     database=self.cluster.url(self.database, user="leasehold_daemon"))

    def moved(self, words):
        return words.replace("/etc/leasehold/tls", str(self.directory)).replace("/run/leasehold", str(self.directory))

    def environment(self):
        return {**os.environ, "LEASEHOLD_SERVER": self.daemon.target, "LEASEHOLD_CA": self.authority.cert, "LEASEHOLD_CERT": self.client.cert,
                "LEASEHOLD_KEY": self.client.key, "LEASEHOLD_SERVER_NAME": "localhost", "POD": "scheduler-1",
                "PATH": f"{pathlib.Path(harness.CLI).parent}:{os.environ['PATH']}"}

    def psql(self, sql):
        return self.cluster.psql(sql, self.database)

    def close(self):
        self.daemon.destroy()
        self.cluster.destroy()


@pytest.fixture(scope="module")
def site():
    with tempfile.TemporaryDirectory(prefix="lh-k8s-") as directory:
        site = Site(pathlib.Path(directory))
        yield site
        site.close()


def test_a_daemon_takes_the_settings_and_answers_the_probes(site):
    assert CONTAINER["command"][1:] == ["--config", "/etc/leasehold/leasehold.ini"]
    checked = subprocess.run([harness.DAEMON, "--check-config", "--config", site.directory / "leasehold.ini"], stdout=subprocess.PIPE, text=True)
    assert checked.returncode == 0 and "\nlisten = 0.0.0.0:7420, unix:" in checked.stdout and "\nadmin = 0.0.0.0:7421\n" in checked.stdout
    assert "\nauthorization = yes\n" in checked.stdout
    assert {each["containerPort"] for each in CONTAINER["ports"]} == {7420, 7421}
    for probe in ("livenessProbe", "readinessProbe"):
        http = CONTAINER[probe]["httpGet"]
        url, context = f"{http['scheme'].lower()}://127.0.0.1:{site.daemon.admin_port}{http['path']}", ssl._create_unverified_context()  # as a kubelet asks

        def answers(url=url, context=context):
            try:
                with urllib.request.urlopen(url, context=context, timeout=30) as answer:
                    return answer.status == 200
            except urllib.error.HTTPError as error:
                assert error.code == 503  # not ready yet
                return False

        wait_until(answers, 60, probe)
    command = [site.moved(each) for each in CONTAINER["startupProbe"]["exec"]["command"]]
    subprocess.run([harness.CLI, *command[1:]], check=True, stdout=subprocess.DEVNULL)  # without a certificate, by the socket
    metrics = one("ServiceMonitor", "leasehold")["spec"]["endpoints"][0]
    verified = ssl.create_default_context(cafile=site.authority.cert)
    with urllib.request.urlopen(f"{metrics['scheme']}://localhost:{site.daemon.admin_port}{metrics['path']}", context=verified) as answer:
        assert b"leasehold_" in answer.read()


def test_the_sidecar_shows_who_leads(site):
    (container,) = [each for each in one("Deployment", "scheduler")["spec"]["template"]["spec"]["containers"] if each["name"] == "lease"]
    shared = site.directory / "lease"
    shared.mkdir()
    token = shared / "token"
    token.write_text("left from before")
    assert {"LEASEHOLD_SERVER", "LEASEHOLD_CA", "LEASEHOLD_CERT", "LEASEHOLD_KEY", "POD"} == {each["name"] for each in container["env"]}
    process = subprocess.Popen([each.replace("/lease/", f"{shared}/") for each in container["command"]], env=site.environment())
    try:
        def leads():
            return token.exists() and token.read_text().strip().isdigit() and int(token.read_text())

        first = wait_until(leads, 60, "a token")
        assert site.psql("select owner, token from leasehold.scope where key = 'scheduler'") == f"scheduler-1|{first}"
        site.psql("select leasehold.force_release('api', 'scheduler', 'a test')")
        wait_until(lambda: leads() and leads() > first, 60, "a larger token")
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    assert not token.exists()
    assert site.psql("select state from leasehold.scope where key = 'scheduler'") == "free"
