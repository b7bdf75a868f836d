"""Wheels of PyPI that tests need: a file of requirements names each, with its checksums, one for each kind of processor.

    pypi.wheel(HERE / 'kubernetes.txt')             the path of the one
    pypi.unpacked(HERE / 'newest.txt', place)       all of them, unpacked there, for PYTHONPATH

pip downloads it once, to ~/.cache/leasehold/NAME (NAME is that of the file; XDG_CACHE_HOME moves it); afterwards no network is needed.
"""
import contextlib
import hashlib
import os
import pathlib
import subprocess
import sys
import tempfile
import zipfile

import pgtest

LIMIT_S = 300


def wheels(requirements, python=sys.executable):
    """For this Python. Its directory has another name when the file changes; half a download has another name."""
    name = hashlib.sha256(requirements.read_bytes()).hexdigest()[:16]
    parent = pathlib.Path(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'leasehold', requirements.stem)
    if not (parent / name).is_dir():
        parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix='download-', dir=parent) as fresh:
            done = subprocess.run([python, '-m', 'pip', 'download', '--no-deps', '--only-binary', ':all:', '--require-hashes', '--quiet',
                                   '--dest', os.path.join(fresh, 'done'), '--requirement', requirements], stdin=subprocess.DEVNULL,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, universal_newlines=True, timeout=LIMIT_S, check=False)
            if done.returncode != 0:
                raise pgtest.Failure('pip cannot download what %s names:\n%s' % (requirements, done.stdout))
            with contextlib.suppress(OSError):  # another run was as fast
                os.rename(os.path.join(fresh, 'done'), parent / name)
    return sorted((parent / name).glob('*.whl'))


def wheel(requirements):
    (path,) = wheels(requirements)
    return path


def unpacked(requirements, place, python=sys.executable):
    for each in wheels(requirements, python):
        with zipfile.ZipFile(each) as archive:
            archive.extractall(place)
    return place
