"""Every suite of this tree, and the sum. Started by tests/run.

A suite counts what its runner counted. One that ends badly without a counted failure, that runs nothing, that skips
something or that takes too long has failed once more: nothing is silently left out.

What failed is named once more at the end. A pytest test that failed is run again, alone, when all suites have had their first
try: these tests play with signals, time-outs and whole clusters beside each other, and a busy machine may cost one of them its
turn. One that passes then has passed, and the end names it as unsteady: somebody looks why. So are a program of unit tests, most of
which talk over real sockets, a test of clients, and a step of the suite versions. Suites that look for
broken promises (sql, isolation, soak, model, fuzz, ha, ha-newest, ha-async) have one try: what breaks a promise once in a while is a fault,
not bad luck.

Suites wait most of their time, so four run at once: one of LANE, one of CLIENTS, one of the others, and one of those that only compute
(LOW), which has the lowest priority and takes what the rest leaves of the processors. Each line begins with the name of its suite.
"""
import argparse
import collections
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree

import fast
import rundir
import second_try

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
BUILD = os.path.join(ROOT, 'build')
SANITIZED = os.path.join(ROOT, 'build-sanitized')


class Output(threading.local):
    """The suite of this thread, what it has printed, what its lines begin with, and whether its processes have the lowest priority."""
    def __init__(self):
        self.suite = None
        self.kept = []
        self.begin = ''
        self.is_low = False

    def show(self, text):
        sys.stdout.write(text)
        sys.stdout.flush()

    def line(self, text):
        self.show(self.begin + text.rstrip('\n') + '\n')


output = Output()
# The tests that passed at their second try, the processes that run, and whether no other may begin.
unsteady = []
running = set()
is_over = threading.Event()


class Suite:
    def __init__(self, name, run, limit_s):
        self.name = name
        self.run = run
        self.limit_s = limit_s
        self.ended = threading.Event()
        self.is_at_rest = threading.Event()  # it has ended, or waits for its second try


def begin_process():
    """Whoever runs this in the background, or by nohup, ignores some signals; what is tested here must not inherit that."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    if output.is_low:
        os.nice(19)
        # sched(7): where the kernel groups processes by session, their niceness counts inside of the group alone.
        with contextlib.suppress(OSError), open('/proc/self/autogroup', 'w', encoding='ascii') as group:
            group.write('19')


def execute(command, limit_s, environment=None):
    """(output, status). The output is shown while it comes, and kept; too late, the whole group of processes is ended."""
    # What gRPC does before a fork may wait for ever for a thread of its own, and tests start many programs.
    variables = {**os.environ, 'GRPC_ENABLE_FORK_SUPPORT': '0', **(environment or {})}
    process = subprocess.Popen(command, cwd=ROOT, env=variables, stdin=subprocess.DEVNULL,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True, preexec_fn=begin_process)
    running.add(process)
    if is_over.is_set():
        end(process, signal.SIGTERM)
    late, ended = [], threading.Event()

    def give_up():
        late.append(True)
        end(process, signal.SIGTERM)
        if not ended.wait(20):
            end(process, signal.SIGKILL)

    def patience():
        timer = threading.Timer(limit_s, give_up)
        timer.daemon = True
        timer.start()
        return timer

    timer = patience()
    lines = []
    try:
        for raw in process.stdout:
            line = raw.decode('utf-8', 'replace')
            lines.append(line)
            output.kept.append(line.rstrip())
            output.line(line)
            if line.rstrip() == second_try.WAITS:
                timer.cancel()
                output.suite.is_at_rest.set()
            elif line.rstrip() == second_try.BEGINS:
                timer = patience()
        process.wait()
    except BaseException:
        end(process, signal.SIGTERM)
        raise
    finally:
        ended.set()
        timer.cancel()
        running.discard(process)
    if late or process.returncode < 0:
        said = 'took longer than %d s' % limit_s if late else 'ended by %s' % signal.Signals(-process.returncode).name
        output.kept.append(said)
        output.line(said)
    return ''.join(lines), -1 if late else process.returncode


def end(process, number):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


# A test that hangs is ended after this time, with the stack of each of its threads; the slowest takes half a minute on a quiet machine.
TEST_LIMIT_S = 300

# More failures of a suite than these are not tried again; as many lines of a failed suite are repeated at the end.
TRIED_AGAIN = 5
TOLD = 20


def alone():
    """Around the second try of this thread's suite."""
    def told(line):
        output.line(line)
        if line == second_try.WAITS:
            output.suite.is_at_rest.set()
    return second_try.alone(told)


def settle(passed, failed, status):
    return passed, failed if failed or (status == 0 and passed) else 1


def script(*command, environment=None):
    """A runner that ends with `<suite>: N passed, N failed`."""
    def run(suite, options):
        text, status = execute([part.format(soak=options.soak, fuzz=options.fuzz) for part in command], suite.limit_s + options.fuzz * 10,
                               environment)
        found = re.findall(r'^\S+: (\d+) passed, (\d+) failed', text, re.M)
        passed, failed = map(int, found[-1]) if found else (0, 0)
        unsteady.extend('%s: %s' % (suite.name, name) for name in re.findall(r'^\S*unsteady: (.*)', text, re.M))
        return settle(passed, failed, status)
    return run


def versions():
    def run(suite, options):
        return script('tests/versions/run', *(['--full'] if options.versions_full else []))(suite, options)
    return run


def one(*command):
    """A program that is one test."""
    def run(suite, options):
        status = execute(list(command), suite.limit_s)[1]
        return settle(int(status == 0), 0, status)
    return run


def bench():
    def run(suite, options):
        with tempfile.TemporaryDirectory() as scratch:
            status = execute([os.path.join(ROOT, 'tests/bench/run'), '--quick', '--only', 'leasehold,sql,raw', '--part',
                              'pairs,heartbeats,idle', '--output', scratch], suite.limit_s, {'LEASEHOLD_TEST_BUILD': BUILD})[1]
        return settle(int(status == 0), 0, status)
    return run


def build(directory, *options):
    def run(suite, unused):
        status = execute([os.path.join(ROOT, 'deploy/build'), directory, '-Dwerror=true', *options], suite.limit_s)[1]
        return settle(int(status == 0), 0, status)
    return run


def meson(directory, environment=None):
    """Each check inside of a libcheck program counts; a program of another kind is one. One that failed is run once more, alone."""
    log = os.path.join(directory, 'meson-logs', 'testlog.json')

    def once(suite, *names):
        """({program: (passed, failed)}, status, what the programs that failed said of it)"""
        with contextlib.suppress(FileNotFoundError):
            os.remove(log)
        status = execute(['meson', 'test', '-C', directory, '--no-rebuild', '--print-errorlogs', '--timeout-multiplier', '3', *names],
                         suite.limit_s, environment)[1]
        results, said = {}, []
        for line in open(log, encoding='utf-8') if os.path.exists(log) else ():
            test = json.loads(line)
            text = (test.get('stdout') or '') + (test.get('stderr') or '')
            counts = re.findall(r'^\d+%: Checks: (\d+), Failures: (\d+), Errors: (\d+)', text, re.M)
            bad = sum(int(count[1]) + int(count[2]) for count in counts)
            good = sum(int(count[0]) for count in counts) - bad
            if test['result'] == 'OK':
                results[test['name']] = (good or 1, 0)
                continue
            results[test['name']] = (good, bad or 1)
            # Meson cut its log. A check that failed leaves behind what it had allocated, so a leak is a finding only without one.
            said += [words for words in re.findall(r'^.*:[FE]:.*|^.*ERROR: \w+Sanitizer.*|^.*runtime error:.*', text, re.M)
                     if not (bad and 'LeakSanitizer' in words)]
        for words in said:
            output.kept.append(words)
            output.line(words)
        return results, status, said

    def run(suite, options):
        results, status, said = once(suite)
        bad = [name for name, (passed, failed) in results.items() if failed]
        for name in bad if is_luck(bad, said) else ():
            output.line('once more, alone: %s' % name)
            words = tell(output.kept)
            with alone():
                again = once(suite, name.split(' / ')[-1])[0].get(name, (0, 1))
            if not again[1]:
                results[name] = again
                unsteady.extend('%s: %s' % (suite.name, line) for line in words)
        failed = sum(result[1] for result in results.values())
        return settle(sum(result[0] for result in results.values()), failed, 0 if results and not failed and status == 1 else status)
    return run


def is_luck(bad, lines):
    """Many at once is no bad luck, nor is what a sanitizer finds."""
    return len(bad) <= TRIED_AGAIN and not any(re.search('Sanitizer|runtime error', line) for line in lines)


def pytest(directory, workers, build_directory=BUILD, environment=None, marked=None):
    """Most of these tests wait for something most of their time: several files at once, each with a PostgreSQL of its own."""
    def run(suite, options):
        with tempfile.TemporaryDirectory() as scratch:
            command = [sys.executable, '-B', '-m', 'pytest', '-v', '-p', 'no:cacheprovider', '--timeout', str(TEST_LIMIT_S), '--durations', '10', *(['-m', marked] if marked else [])]
            environs = {'LEASEHOLD_TEST_BUILD': build_directory, 'COLUMNS': '300', **(environment or {})}  # with why it failed, in its line
            report = os.path.join(scratch, 'report.xml')
            # A hang below Python is ended with its process, which only xdist outlives.
            several = ['-n', str(workers), '--dist', 'loadfile', '--timeout-method', 'thread'] if workers > 1 else []
            status = execute([*command, *several,
                              '--junitxml', report, directory], suite.limit_s, environs)[1]
            if not os.path.exists(report):
                return settle(0, 0, status)
            passed, bad = judge(report)
            for name in dict.fromkeys(bad) if is_luck(bad, output.kept) else ():
                again = os.path.join(scratch, 'again.xml')
                output.line('once more, alone: %s' % name)
                words = [line for line in output.kept if line.startswith(('FAILED %s' % name, 'ERROR %s' % name))][-1:] or [name]
                with alone():
                    status_again = execute([*command, '--junitxml', again, name], suite.limit_s, environs)[1]
                if status_again == 0 and judge(again) == (1, []):
                    unsteady.append('%s: %s' % (suite.name, words[0]))
                    passed += 1
                    bad = [other for other in bad if other != name]
        return settle(passed, len(bad), 0 if passed and not bad and status == 1 else status)
    return run


def judge(report):
    """(how many passed, the names of those that did not). A test that was skipped did not show what it is there for."""
    passed, bad = 0, []
    for case in ElementTree.parse(report).iter('testcase'):
        if any(case.find(word) is not None for word in ('failure', 'error', 'skipped')):
            bad.append('%s.py::%s' % (case.get('classname').replace('.', '/'), case.get('name')))
        else:
            passed += 1
    return passed, bad


def tell(lines):
    """The lines that say what failed; where none does, the last ones."""
    bad = [line for line in lines if re.search(r'^(FAILED|ERROR) |^(case|test) .* failed|^ *not ok|\bFAIL\b|:[FE]:|failed: |ERROR: \w+Sanitizer|runtime error:'
                                           r'|^took longer than|^ended by SIG|permutations: FAILED|^[-+@]', line)]
    return (bad or lines)[-TOLD:]


SANITIZER = {
    'ASAN_OPTIONS': 'detect_leaks=1:strict_string_checks=1:detect_stack_use_after_return=1',
    'UBSAN_OPTIONS': 'halt_on_error=1:print_stacktrace=1',
}

CORE = {'LEASEHOLD_CORE': 'swapped'}

# Tests of sql that between them change rows of every table; catalog looks at the replica identity of each.
WRITERS = ('access_checks', 'acquire_all', 'audit', 'catalog', 'coordinator', 'creation', 'history', 'hook_reaps', 'incarnation', 'policy', 'queue',
           'quotas', 'reap', 'release', 'sessions', 'shared', 'watch')

# The order is that of growing patience, but what takes long comes early, and what is built before what runs it.
SUITES = (
    Suite('layers', script('tests/check_layers'), 60),
    Suite('revision', script('migrations/revision.py', '--check'), 60),
    Suite('structure', script('tests/check_structure'), 60),
    Suite('columns', script('tests/check_columns'), 60),
    Suite('promises', script('tests/check_promises'), 60),
    Suite('docs', script('tests/check_docs'), 60),
    Suite('format', script('tests/check_format'), 120),
    Suite('build', build(BUILD), 1200),
    Suite('build-sanitized', build(SANITIZED, '-Db_sanitize=address,undefined', '-Db_lundef=false'), 3600),
    Suite('unit', meson(BUILD), 900),
    Suite('sql', script('tests/sql/run'), 1800),
    Suite('isolation', script('tests/isolation/run'), 1800),
    Suite('soak', script('tests/soak/run', '--seconds', '{soak}'), 7200),
    # leasehold_core in the place of the functions in SQL; against them; and the same tests as theirs.
    Suite('core', script('tests/core/run'), 1800),
    Suite('sql-published', script('tests/sql/run', *WRITERS, environment={'LEASEHOLD_PUBLISHED': '1'}), 1800),
    Suite('sql-core', script('tests/sql/run', environment=CORE), 1800),
    Suite('isolation-core', script('tests/isolation/run', environment=CORE), 1800),
    Suite('soak-core', script('tests/soak/run', '--seconds', '{soak}', environment=CORE), 7200),
    Suite('interop', pytest('tests/interop', 2), 900),
    Suite('console', pytest('tests/console', 2), 900),
    # With the same optimisation and assertions as the other build. A leak makes the daemon's exit status another than 0, which the tests look at.
    Suite('integration', pytest('tests/integration', 4, SANITIZED, SANITIZER, 'not release_build'), 1800),
    Suite('integration-release', pytest('tests/integration', 2, marked='release_build'), 600),
    *(Suite('clients-' + package, script('tests/clients/run', package), 1200) for package in ('java', 'python', 'node', 'go', 'rust')),
    Suite('versions', versions(), 3600),
    Suite('model', script('tests/model/run'), 3600),
    # About a minute; hours by hand.
    Suite('simulation', script('tests/simulation/run', '--seeds', '12000', '--first', '201', '--jobs', '1'), 3600),
    Suite('threads', script('tests/threads/run'), 600),
    Suite('quickstart', one('deploy/quickstart', '--check'), 900),
    Suite('unit-sanitized', meson(SANITIZED, SANITIZER), 1800),
    Suite('fuzz', script('tests/fuzz/run', '--seconds', '{fuzz}'), 3600),
    Suite('packages', pytest('tests/packages', 1), 900),
    Suite('fault', pytest('tests/fault', 3), 1800),
    Suite('ha', script('tests/ha/run', '--short'), 900),
    Suite('ha-newest', script('tests/ha/run', '--short', '--patroni', 'newest', '--mode', 'quorum', '--failsafe', '--fault', 'kill', '--fault', 'stop-etcd'), 900),
    # That the judge sees: there are double holders, which it must find.
    Suite('ha-async', script('tests/ha/run', '--short', '--mode', 'async', '--fault', 'kill-ahead'), 600),
    # That it runs, and that what it drives agrees with what the database counts; not how fast that was.
    Suite('bench', bench(), 400),
)
NEEDS = {**dict.fromkeys(('unit', 'simulation', 'core', 'sql-core', 'isolation-core', 'soak-core', 'bench', 'integration-release', 'interop', 'fault', 'console', 'versions', 'ha',
                          'ha-newest', 'ha-async', 'clients-python', 'clients-node', 'clients-java', 'clients-go', 'clients-rust'), 'build'),
         **dict.fromkeys(('unit-sanitized', 'integration'), 'build-sanitized')}
# What runs beside the others: SQL of few sessions at a time. Whichever of the two comes to its end first goes on with the other's.
LANE = ('sql', 'core', 'sql-core', 'isolation', 'isolation-core', 'sql-published', 'soak', 'soak-core')
# These wait. When LANE has come to its end, two of them run at once: one that computes much beside one that waits much.
CLIENTS = ('clients-python', 'clients-go', 'clients-node', 'clients-rust', 'clients-java')
# What only computes: no test of it has to be in time.
LOW = ('build-sanitized', 'fuzz', 'model', 'simulation')
# These come last, one group after the other, when all has ended but what only computes. The packages are built twice in the time of one test, and their account
# is removed, which no process of the machine may have by number. The clients of the others must be in time, or see who was late; those of ha wait most of theirs.
QUIET = (('packages',), ('fault',), ('ha', 'ha-newest', 'ha-async'), ('bench',))


def choose(names):
    """The suites that were asked for, and the builds that they need."""
    if not names:
        return SUITES
    known = {suite.name for suite in SUITES}
    for name in names:
        if name not in known:
            sys.exit('tests/run: no suite %s; there are %s' % (name, ', '.join(suite.name for suite in SUITES)))
    wanted = set(names) | {NEEDS[name] for name in names if name in NEEDS}
    return [suite for suite in SUITES if suite.name in wanted]


def run_one(suite, options, results, told):
    needs = next((other for other in SUITES if other.name == NEEDS.get(suite.name)), None)
    if needs:
        needs.ended.wait()
    output.suite, output.begin = suite, '  %s: ' % suite.name
    output.show('== %s\n' % suite.name)
    begun = time.monotonic()
    output.kept = []
    try:
        if needs and results[needs.name][1]:
            output.line('cannot run: %s has failed' % needs.name)
        else:
            results[suite.name] = suite.run(suite, options)
    finally:
        suite.ended.set()
        suite.is_at_rest.set()
    output.show('== %s: %d passed, %d failed, %d s\n' % (suite.name, *results[suite.name], time.monotonic() - begun))
    if results[suite.name][1]:
        told += ['%s: %s' % (suite.name, line) for line in tell(output.kept)]


def run_all(suites, options, results, told):
    by_name = {suite.name: suite for suite in suites}

    def lane_of(names):
        return collections.deque(by_name[name] for name in names if name in by_name)

    def take(lane):
        """Several threads ask."""
        with contextlib.suppress(IndexError):
            return lane.popleft()

    def run_lanes(*lanes, is_low=False):
        for lane in lanes:
            while (suite := take(lane)) is not None:
                threads.append(begin(run_in_thread, suite, is_low=is_low))
                suite.is_at_rest.wait()

    def run_in_thread(suite, is_low):
        output.is_low = is_low
        run_one(suite, options, results, told)

    def begin(function, *arguments, is_low=False):
        thread = threading.Thread(target=function, args=arguments, kwargs={'is_low': is_low}, daemon=True)
        thread.start()
        return thread

    # What does not come to its end has failed.
    results.update((suite.name, (0, 1)) for suite in suites)
    lane, clients = lane_of(LANE), lane_of(CLIENTS)
    others = lane_of(name for name in by_name if name not in LOW + LANE + CLIENTS + sum(QUIET, ()))
    threads = []
    with second_try.later():
        low = begin(run_lanes, lane_of(LOW), is_low=True)
        for lanes in ((others, lane), (lane, clients, others), (clients,)), *([(lane_of([name]),) for name in group] for group in QUIET):
            for thread in [begin(run_lanes, *each) for each in lanes]:
                thread.join()
        low.join()
    for thread in threads:
        thread.join()


def main():
    parser = argparse.ArgumentParser(prog='tests/run')
    parser.add_argument('--only', action='append', metavar='SUITE', help='this suite; may be repeated')
    parser.add_argument('--list', action='store_true', help='name the suites and end')
    parser.add_argument('--fast', action='store_true', help='build, then what needs no PostgreSQL: seconds; installs nothing')
    parser.add_argument('--soak', type=int, default=6, metavar='SECONDS', help='of each soak run; default 6')
    parser.add_argument('--fuzz', type=int, default=30, metavar='SECONDS', help='of a processor, for each fuzzer; default 30')
    parser.add_argument('--versions-full', action='store_true', help='every test of the suite versions, some minutes for each version')
    options = parser.parse_args()
    if options.list:
        print('\n'.join(suite.name for suite in SUITES))
        return 0
    if options.fast:
        return fast.main(BUILD)
    results = {}
    told = []
    place = rundir.make_place()
    try:
        run_all(choose(options.only), options, results, told)
    finally:
        is_over.set()
        for process in list(running):
            end(process, signal.SIGTERM)
        rundir.remove(place)
    print()
    for name, (passed, failed) in results.items():
        print('%-22s %5d passed %5d failed' % (name, passed, failed))
    # Whoever keeps the last lines of a log alone sees what failed.
    print(''.join('unsteady, passed at the second try: %s\n' % name for name in unsteady), end='')
    print(''.join(line + '\n' for line in told), end='')
    failed = sum(result[1] for result in results.values())
    print('%d passed, %d failed' % (sum(result[0] for result in results.values()), failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
