"""Packages of npm that tests need: package-lock.json names them, with their checksums.

    npm.installed(HERE)    the directory with the packages of HERE/package-lock.json

npm installs them once, in ~/.cache/leasehold/NAME (NAME is that of the tests' directory; XDG_CACHE_HOME moves it); afterwards no network is needed.
"""
import contextlib
import hashlib
import os
import shutil
import subprocess
import tempfile

import pgtest

INSTALL_LIMIT_S = 300


def installed(directory):
    """The directory that npm filled. Its name changes with package-lock.json; half an installation has another name."""
    lock = os.path.join(directory, 'package-lock.json')
    with open(lock, 'rb') as file:
        name = hashlib.sha256(file.read()).hexdigest()[:16]
    parent = os.path.join(os.environ.get('XDG_CACHE_HOME') or os.path.expanduser('~/.cache'), 'leasehold', os.path.basename(directory))
    packages = os.path.join(parent, name)
    if os.path.isdir(packages):
        return packages
    os.makedirs(parent, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix='install-', dir=parent) as fresh:
        for file in ('package.json', 'package-lock.json'):
            shutil.copy(os.path.join(directory, file), fresh)
        done = subprocess.run([pgtest.tool('npm', 'npm'), 'ci', '--ignore-scripts', '--no-audit', '--no-fund', '--loglevel=error'],
                              cwd=fresh, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              universal_newlines=True, timeout=INSTALL_LIMIT_S, check=False)
        if done.returncode != 0:
            raise pgtest.Failure('npm cannot install the packages of %s:\n%s' % (lock, done.stdout))
        with contextlib.suppress(FileExistsError):
            os.rename(os.path.join(fresh, 'node_modules'), packages)
    return packages
