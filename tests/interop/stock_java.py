"""The stock grpc-java client, compiled: java/StockClient.java.

Maven fetches what java/pom.xml names, once; java/checksums has the SHA-256 of each jar. protoc makes the messages, javac the rest.
"""
import hashlib
import pathlib
import shutil
import subprocess

import harness

HERE = pathlib.Path(__file__).resolve().parent


def run(*command, **more):
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, check=False,
                          **more)
    assert done.returncode == 0, done.stdout


def compiled():
    """The command of the client, without its arguments."""
    directory = harness.BUILD / "java-client"
    jars, sources, classes = (directory / name for name in ("jars", "sources", "classes"))
    locked = dict(reversed(line.split()) for line in (HERE / "java/checksums").read_text().splitlines())
    shutil.rmtree(sources, ignore_errors=True)
    for path in (sources, classes):
        path.mkdir(parents=True, exist_ok=True)
    if {path.name for path in jars.glob("*.jar")} != set(locked):
        shutil.copy(HERE / "java/pom.xml", directory / "pom.xml")
        run("mvn", "-B", "-q", "-C", "dependency:copy-dependencies", f"-DoutputDirectory={jars}", cwd=directory)
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in jars.glob("*.jar")} == locked
    run("protoc", "-I", harness.ROOT / "proto", "--java_out", sources, "leasehold/v1/leasehold.proto")
    run("javac", "-nowarn", "-cp", f"{jars}/*", "-d", classes, *sources.rglob("*.java"), HERE / "java/StockClient.java")
    return ["java", "-cp", f"{jars}/*:{classes}", "StockClient"]
