"""setuptools on a copy of this directory: it writes build/ and *.egg-info beside the sources, and an install is no reason to change a clone."""
import contextlib
import os
import shutil
import tempfile

from setuptools import build_meta

HERE = os.path.dirname(os.path.abspath(__file__))

with contextlib.suppress(OSError, TypeError):  # nor is this file's bytecode, which Python has written by now
    os.remove(__spec__.cached)
    os.rmdir(os.path.dirname(__spec__.cached))


@contextlib.contextmanager
def copy():
    came_from = os.getcwd()
    with tempfile.TemporaryDirectory() as place:
        there = os.path.join(place, "leasehold-client")
        shutil.copytree(HERE, there, ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        os.chdir(there)
        try:
            yield
        finally:
            os.chdir(came_from)


def on_a_copy(hook):
    def run(directory, *args, **more):
        with copy():
            return hook(os.path.abspath(os.path.join(HERE, directory)), *args, **more)

    return run


def of_the_build(hook):
    def run(settings=None):
        with copy():
            return hook(settings)

    return run


build_wheel = on_a_copy(build_meta.build_wheel)
build_sdist = on_a_copy(build_meta.build_sdist)
prepare_metadata_for_build_wheel = on_a_copy(build_meta.prepare_metadata_for_build_wheel)
get_requires_for_build_wheel = of_the_build(build_meta.get_requires_for_build_wheel)
get_requires_for_build_sdist = of_the_build(build_meta.get_requires_for_build_sdist)
build_editable = build_meta.build_editable  # which points to the sources
prepare_metadata_for_build_editable = build_meta.prepare_metadata_for_build_editable
get_requires_for_build_editable = build_meta.get_requires_for_build_editable
