"""The Debian packages: built, judged by lintian, installed in a bare Debian 12, upgraded with leases held, removed and purged.

The bare Debian is a directory that chroot enters, with /proc, as root. tests/packages/root makes it once, with apt's downloads in it, so
later runs need no network. Nothing in it is systemd, so the test does what systemd does for the unit:
it starts the daemon as the unit's user and restarts it after the upgrade.
"""
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import urllib.parse
import zipfile

import jsonschema
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/lib"))
import pypi  # noqa: E402
from waiting import wait_until  # noqa: E402

EXTENSION = "postgresql-15-leasehold"
PACKAGES = ("leasehold", "libleasehold0", "libleasehold-dev", EXTENSION)
VERSION = re.search(r"version: '(.*?)'", (ROOT / "meson.build").read_text())[1]
NEWER = re.sub(r"\d+$", lambda last: str(int(last[0]) + 1), VERSION)
DATA = "var/lib/leasehold"
SERVER = f"unix:/{DATA}/grpc"


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=500, **options)
    assert done.returncode == 0, done.stdout
    return done.stdout


def packages_of(section):
    text = (ROOT / "deploy/packages").read_text().split(f"[{section}]\n")[1].split("\n[")[0]
    return {line.split()[0] for line in text.splitlines() if line and not line.startswith("#")}


class Built:
    """The packages of this tree, and those of a version that is one higher."""

    def __init__(self, directory):
        self.directory = directory
        self.commit = run("git", "-C", ROOT, "describe", "--always", "--abbrev=40", "--exclude=*", "--dirty").strip()
        environment = {**os.environ, "PATH": "/usr/lib/ccache:" + os.environ["PATH"], "DEB_BUILD_OPTIONS": "noautodbgsym"}
        for version in (VERSION, NEWER):
            run(ROOT / "deploy/debian/build", directory / version, version, env=environment)

    def file(self, package, version=VERSION):
        (found,) = (self.directory / version).glob(f"{package}_{version}_*.deb")
        return found


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return Built(tmp_path_factory.mktemp("debs"))


class Machine:
    """A bare Debian 12. `daemon` is what systemd would have started."""

    def __init__(self, directory):
        self.root = directory
        self.daemon = None
        tar = subprocess.run([ROOT / "tests/packages/root"], check=True, stdout=subprocess.PIPE, text=True, timeout=500).stdout.strip()
        run("tar", "-C", directory, "-xf", tar)
        run("mount", "-t", "proc", "proc", directory / "proc")
        (directory / "usr/sbin/policy-rc.d").write_text("#!/bin/sh\nexit 101\n")
        (directory / "usr/sbin/policy-rc.d").chmod(0o755)
        (directory / "etc/dpkg/dpkg.cfg.d/quick").write_text("force-unsafe-io\n")
        (directory / "etc/postgresql-common/createcluster.d").mkdir(parents=True)
        (directory / "etc/postgresql-common/createcluster.d/none.conf").write_text("create_main_cluster = false\n")

    def command(self, *words, user="root"):
        return ["chroot", f"--userspec={user}:{user}", str(self.root), "env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin",
                "LC_ALL=C.UTF-8", "DEBIAN_FRONTEND=noninteractive", f"LEASEHOLD_SERVER={SERVER}", *words]

    def run(self, *words, **options):
        return run(*self.command(*words, **options))

    def install(self, *files):
        """Without Recommends: what is computed as needed must be enough."""
        for file in files:
            shutil.copy(file, self.root / "tmp")
        return self.run("apt-get", "install", "--yes", "--no-install-recommends", *(f"/tmp/{file.name}" for file in files))

    def start(self):
        log = open(self.root / "tmp/log", "ab")
        self.daemon = subprocess.Popen(self.command("leaseholdd", "--config", "/etc/leasehold/leasehold.ini", user="leasehold"),
                                       stdout=log, stderr=log, stdin=subprocess.DEVNULL)

        def serves():
            assert self.daemon.poll() is None, (self.root / "tmp/log").read_text()
            return subprocess.run(self.command("leasehold", "status"), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                                  timeout=30).returncode == 0

        wait_until(serves, 120, "the daemon serves")

    def stop(self):
        daemon, self.daemon = self.daemon, None
        if daemon is not None:
            daemon.send_signal(signal.SIGTERM)
            assert daemon.wait(60) == 0, (self.root / "tmp/log").read_text()

    def common_path(self):
        return re.search(r"^common path +(.+)$", self.run("leasehold", "status"), re.M)[1]

    def psql(self, sql, database="leasehold"):
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", f"/{DATA}/run", "-U", "leasehold", "-c", sql, database, user="leasehold").strip()

    def left(self):
        """What has to do with Leasehold, apart from what apt keeps and logs, and what this test put there."""
        found = run("find", self.root, "-xdev", "-mindepth", "1", "-name", "*leasehold*", "-printf", "%P\\n").splitlines()
        return {path for path in found if not path.startswith(("var/cache/", "var/log/", "tmp/"))}


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    assert os.geteuid() == 0, "chroot needs root"
    directory = tmp_path_factory.mktemp("debian")
    directory.chmod(0o755)
    machine = Machine(directory)
    yield machine
    try:
        machine.stop()
    finally:
        run("umount", directory / "proc")
    shutil.rmtree(directory)


def test_lintian_finds_nothing(built):
    print(run("lintian", "--allow-root", "--fail-on", "error,warning", "--tag-display-limit", "0",
              *(built.file(package, version) for package in PACKAGES for version in (VERSION, NEWER))))


def sbom_validator():
    """By the schema of CycloneDX 1.5, with those that it refers to."""
    with zipfile.ZipFile(pypi.wheel(pathlib.Path(__file__).with_name("cyclonedx.txt"))) as wheel:
        bom, *others = (json.loads(wheel.read(f"cyclonedx/schema/_res/{name}.SNAPSHOT.schema.json")) for name in ("bom-1.5", "spdx", "jsf-0.82"))
    store = {urllib.parse.urljoin(bom["$id"], other["$id"]): other for other in others}
    return jsonschema.Draft7Validator(bom, resolver=jsonschema.RefResolver.from_schema(bom, store=store), format_checker=jsonschema.FormatChecker())


@pytest.mark.parametrize("package", ["leasehold", "libleasehold0", EXTENSION])
def test_a_package_says_what_it_is_made_of(built, package, tmp_path):
    files = tmp_path / "debian" / package
    files.parent.mkdir()
    run("dpkg-deb", "-x", built.file(package), files)
    (path,) = files.glob(f"usr/share/doc/{package}/sbom.*.cdx.json")
    said = json.loads(path.read_text())
    assert list(sbom_validator().iter_errors(said)) == []
    component = said["metadata"]["component"]
    assert (component["name"], component["version"]) == (package, VERSION)
    assert component["pedigree"]["commits"] == [{"uid": built.commit}]
    own = {each["name"]: each["hashes"][0]["content"] for each in component["components"]}
    assert own and own == {name: hashlib.sha256((files / name[1:]).read_bytes()).hexdigest() for name in own}
    # What the package depends on, it loads, but for the packages of ours and programs.
    depends = set(re.findall(r"\b(lib[a-z0-9.+-]+)", run("dpkg-deb", "-f", built.file(package), "Depends")))
    libraries = {each["name"]: each["version"] for each in said["components"]}
    assert depends <= set(libraries) and "libc6" in libraries
    assert libraries == {name: run("dpkg-query", "-W", "-f", "${Version}\n", name).split()[0] for name in libraries}
    # Written again, it has the same bytes.
    (tmp_path / "debian/changelog").write_text((ROOT / "deploy/debian/changelog").read_text())
    time = run("dpkg-parsechangelog", "-S", "Timestamp", cwd=tmp_path).strip()
    run(ROOT / "deploy/debian/sbom", package, f"debian/{package}", "again/sbom", cwd=tmp_path,
        env={**os.environ, "SOURCE_DATE_EPOCH": time, "LEASEHOLD_COMMIT": built.commit})
    assert (tmp_path / "again/sbom").read_bytes() == path.read_bytes()


def test_an_image_has_its_labels():
    """The last stage and the client's, with the version of the tree."""
    text = (ROOT / "deploy/container/Containerfile").read_text()
    stages = [stage for stage in re.split(r"^FROM ", text, flags=re.M)[1:] if "ENTRYPOINT" in stage]
    for stage in stages:
        labels = dict(re.findall(r'org\.opencontainers\.image\.([a-z.]+)="([^"]*)"', stage))
        assert {"title", "description", "version", "revision", "source"} <= set(labels) and "licenses" not in labels
        assert labels.get("base.name", "scratch") == stage.split()[0] and labels["version"] == "$VERSION" and f"ARG VERSION={VERSION} " in stage
    assert len(stages) == 2


# Each names the version once, in the first place that the pattern finds.
VERSIONS = {
    "deploy/debian/changelog": r"^leasehold \((.*?)\)", "src/*/pyproject.toml": r'^version = "(.*?)"', "src/*/Cargo.toml": r'^version = "(.*?)"',
    "src/*/package.json": r'^  "version": "(.*?)"', "src/java*/pom.xml": r"<version>(.*?)</version> *<!-- that of meson.build",
    "src/java/*/pom.xml": r"<version>(.*?)</version> *<!-- that of meson.build", "deploy/kubernetes/kustomization.yaml": r"newTag: (\S+)",
}


def test_every_package_has_the_version_of_the_tree():
    found = {path: re.search(pattern, path.read_text(), re.M) for place, pattern in VERSIONS.items() for path in ROOT.glob(place)}
    assert {path for path, version in found.items() if version is None or version[1] != VERSION} == set()
    assert len(found) > 10


def test_what_building_needs_is_what_the_packages_declare():
    control = (ROOT / "deploy/debian/control").read_text()
    declared = set(re.findall(r"^(?:Build-Depends:)? +([a-z0-9.+-]+)", control.split("\n\n")[0], re.M)) - {"debhelper-compat"}
    # build-essential is never declared, meson needs ninja, and check is for the tests.
    assert declared == packages_of("build") - {"gcc", "libc6-dev", "ninja-build", "check"}


def test_every_picture_of_the_pages_is_there_and_not_compressed(built):
    files = run("dpkg-deb", "-c", built.file("leasehold")).splitlines()
    for page in (ROOT / "docs").rglob("*.md"):
        for link in re.findall(r"\]\(([^)#:]+\.(?:webp|svg|png))\)", page.read_text()):
            path = os.path.normpath(pathlib.Path("docs") / page.relative_to(ROOT / "docs").parent / link).replace("docs/", "./usr/share/doc/leasehold/", 1)
            assert any(line.endswith(" " + path) for line in files), path


def test_a_program_is_built_with_the_development_package(built, tmp_path):
    for package in ("libleasehold0", "libleasehold-dev"):
        run("dpkg-deb", "-x", built.file(package), tmp_path)
    (pkgconfig,) = tmp_path.glob("usr/lib/*/pkgconfig")
    environment = {**os.environ, "PKG_CONFIG_LIBDIR": str(pkgconfig), "PKG_CONFIG_SYSROOT_DIR": str(tmp_path)}
    (tmp_path / "a.c").write_text("#include <leasehold.h>\nint main(void) { void *volatile create = lh_client_create; return create == 0; }\n")
    flags = run("pkg-config", "--cflags", "--libs", "--define-variable=prefix=/usr", "leasehold", env=environment).split()
    run("cc", "-o", tmp_path / "a", tmp_path / "a.c", *flags)
    assert "[libleasehold.so.0]" in run("readelf", "-d", tmp_path / "a")
    run(tmp_path / "a", env={"LD_LIBRARY_PATH": str(pkgconfig.parent)})


def test_it_installs_on_a_bare_debian_and_starts_nothing(built, machine):
    assert machine.left() == set()
    machine.install(built.file("leasehold"), built.file("libleasehold0"))
    for program in ("leasehold", "leaseholdd"):
        assert VERSION in machine.run(program, "--version")
    settings = machine.root / "etc/leasehold/leasehold.ini"
    machine.run("leaseholdd", "--config", "/etc/leasehold/leasehold.ini", "--check-config")
    user = machine.run("id", "-u", "leasehold").strip()
    assert [f"{settings.stat().st_mode & 0o777:o}", machine.run("stat", "-c", "%G", "/etc/leasehold/leasehold.ini").strip()] == ["640", "leasehold"]
    # No database is invented: its place is there, and empty.
    assert list((machine.root / DATA).iterdir()) == [] and str((machine.root / DATA).stat().st_uid) == user
    assert not list((machine.root / "etc/systemd").rglob("*leasehold*")), "enabled"
    assert "/etc/leasehold/leasehold.ini" in machine.run("dpkg-query", "-W", "-f", "${Conffiles}", "leasehold")


def test_a_lease_is_held_through_an_upgrade(built, machine):
    machine.run("apt-get", "install", "--yes", "--no-install-recommends", "postgresql-15")
    with open(machine.root / "etc/leasehold/leasehold.ini", "a") as settings:
        settings.write(f"embedded = /{DATA}\nlisten = {SERVER}\nadmin = none\n")
    machine.start()
    lease = json.loads(machine.run("leasehold", "acquire", "packages", "upgrade", "--duration", "10m", "-o", "json"))
    assert VERSION in machine.run("leasehold", "status")
    assert machine.common_path() == "SQL functions"
    # The daemon makes the extension at its next start.
    machine.install(built.file(EXTENSION))
    machine.stop()
    machine.start()
    assert machine.common_path() == "leasehold_core"

    machine.install(*(built.file(package, NEWER) for package in ("leasehold", "libleasehold0", EXTENSION)))
    assert "embedded = " in (machine.root / "etc/leasehold/leasehold.ini").read_text()
    machine.stop()
    machine.start()
    assert NEWER in machine.run("leasehold", "status")
    assert machine.common_path() == "leasehold_core"
    machine.run("leasehold", "heartbeat", "packages", "upgrade", lease["lease_key"])
    (after,) = json.loads(machine.run("leasehold", "list", "packages", "-o", "json"))["leases"]
    assert (after["token"], int(after["heartbeats"])) == (lease["token"], 1)


def test_an_ordinary_owner_of_a_database_makes_the_extension(machine):
    machine.psql("create role app login")
    machine.psql("create database app owner app")
    (machine.root / "tmp/schema.sql").write_text("set role app;\n" + machine.run("leasehold", "migrate", "--print"))
    machine.psql("grant leasehold_owner to app")
    machine.run("psql", "-Xq1", "-v", "ON_ERROR_STOP=1", "-h", f"/{DATA}/run", "-U", "leasehold", "-f", "/tmp/schema.sql", "app", user="leasehold")
    owner = "set role app; select not rolsuper from pg_roles where rolname = current_user;"
    said = machine.psql(owner + "create extension leasehold_core; select leasehold_core.trouble()", "app")
    assert said.startswith("t\n") and "no daemon has noticed yet" in said
    assert machine.psql(owner + "drop extension leasehold_core", "app") == "t"
    machine.psql("drop database app")
    machine.psql("drop role app")


def test_without_the_package_of_the_extension_the_daemon_goes_on(machine):
    machine.run("apt-get", "purge", "--yes", EXTENSION)
    assert not list(machine.root.glob("usr/*/postgresql/15/**/leasehold*"))
    machine.run("leasehold", "run", "packages", "removed", "--", "true")
    machine.stop()
    machine.start()
    assert re.match(r"SQL functions, not leasehold_core: could not access file .*leasehold_core", machine.common_path())
    machine.run("leasehold", "run", "packages", "removed", "--", "true")


def test_a_purge_leaves_the_data_and_nothing_else(machine):
    machine.stop()
    machine.run("apt-get", "remove", "--yes", "leasehold", "libleasehold0")
    assert (machine.root / "etc/leasehold/leasehold.ini").exists() and (machine.root / DATA / "data/PG_VERSION").exists()
    machine.run("dpkg", "--purge", "leasehold", "libleasehold0")
    assert {path for path in machine.left() if not path.startswith(DATA)} == set()
    assert (machine.root / DATA / "data/PG_VERSION").exists()
    assert machine.run("stat", "-c", "%U", f"/{DATA}/data").strip() == "leasehold"


def test_a_purge_without_data_leaves_nothing(built, machine):
    shutil.rmtree(machine.root / DATA)
    machine.install(built.file("leasehold"))
    machine.run("apt-get", "purge", "--yes", "leasehold")
    assert machine.left() == set()
    assert "leasehold" not in (machine.root / "etc/passwd").read_text() + (machine.root / "etc/group").read_text()
