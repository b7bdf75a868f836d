"""tests/run --fast: everything that needs no PostgreSQL, in the time one is willing to wait. It installs nothing.

Most of these programs wait most of their time, so each case of each program (libcheck's CK_RUN_CASE) runs by itself, many
at once. The cases are read from the sources that a program is built of: a new one needs no word here.
"""
import concurrent.futures
import importlib.util
import json
import os
import re
import shutil
import subprocess
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
CHECKS = ('tests/check_layers', 'tests/check_structure', 'tests/check_columns', 'tests/check_promises', 'tests/check_docs', 'tests/check_format')
LIMIT_S = 120
AT_ONCE = 4 * (os.cpu_count() or 1)


def introspect(build, what):
    with open(os.path.join(build, 'meson-info', 'intro-%s.json' % what), encoding='utf-8') as file:
        return json.load(file)


def cases_of(target):
    text = ''
    for path in (source for group in target['target_sources'] for source in group['sources'] if source.endswith('.c')):
        if os.path.exists(path):
            with open(path, encoding='utf-8') as file:
                text += file.read()
    names = re.findall(r'tcase_create\("([^"]+)"\)', text)
    return sorted(set(names)) if len(names) == text.count('tcase_create(') else []  # a name that is computed: all in one go


def jobs(build):
    """(name, command, environment, directory) of everything that is to run."""
    found = [(path, [os.path.join(ROOT, path)], {}, ROOT) for path in CHECKS if os.path.exists(os.path.join(ROOT, path))]
    targets = {path: target for target in introspect(build, 'targets') for path in target['filename']}
    for test in introspect(build, 'tests'):
        if any(suite.endswith('cluster') for suite in test['suite']):
            continue
        cases = cases_of(targets[test['cmd'][0]]) if test['cmd'][0] in targets else []
        for case in cases or [None]:
            found.append((test['name'] + (': ' + case if case else ''), test['cmd'],
                          {**test['env'], 'CK_VERBOSITY': 'normal', 'CK_DEFAULT_TIMEOUT': '60', **({'CK_RUN_CASE': case} if case else {})},
                          test['workdir'] or build))
    return found


def run(job):
    """(name, passed, failed, seconds, output)"""
    name, command, environment, directory = job
    begun = time.monotonic()
    try:
        done = subprocess.run(command, cwd=directory, env={**os.environ, **environment}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, timeout=LIMIT_S, check=False)
        output, status = done.stdout.decode('utf-8', 'replace'), done.returncode
    except subprocess.TimeoutExpired:
        output, status = 'took longer than %d s' % LIMIT_S, -1
    counts = re.findall(r'^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)', output, re.M)
    bad = sum(int(count[1]) + int(count[2]) for count in counts)
    good = sum(int(count[0]) for count in counts) - bad
    if status != 0 or (counts and not good):
        bad = bad or 1
    return name, good if counts else int(not bad), bad, time.monotonic() - begun, output


def lacking():
    """The Debian packages of the section test without which a test of these cannot run."""
    modules = {'pytest': 'python3-pytest', 'grpc': 'python3-grpcio', 'google.protobuf': 'python3-protobuf'}
    programs = {'clang-format': 'clang-format', 'openssl': 'openssl'}
    return sorted([package for program, package in programs.items() if shutil.which(program) is None] +
                  [package for module, package in modules.items() if not has_module(module)])


def has_module(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def main(build):
    if lacking():
        print('tests/run --fast lacks %s: deploy/install test installs them' % ', '.join(lacking()))
        return 1
    if subprocess.run([os.path.join(ROOT, 'deploy/build'), build], stdout=subprocess.DEVNULL, check=False).returncode != 0:
        subprocess.run(['ninja', '-C', build], check=False)
        return 1
    begun = time.monotonic()
    with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(run, jobs(build)))
    for name, _, failed, seconds, output in results:
        if failed:
            print('FAILED: %s, %.1f s\n%s' % (name, seconds, output))
    passed, failed = (sum(result[i] for result in results) for i in (1, 2))
    print('%d passed, %d failed, %.1f s' % (passed, failed, time.monotonic() - begun))
    return 1 if failed else 0
