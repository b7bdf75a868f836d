"""docs/measure/benchmark.md: medians alone, a row for each driver, a column for each level; results.md has the rest of it. And the
README's figures, which are some of these."""
import json
import pathlib
import re

import report

ROOT = pathlib.Path(__file__).resolve().parents[3]
PAGE, README = ROOT / 'docs/measure/benchmark.md', ROOT / 'README.md'
LEFT_OUT = (('pairs', 64), ('fresh', 1), ('fresh', 2), ('fresh', 4), ('fresh', 8), ('heartbeats', [1000, 256, 1]), ('pairs', 'etcd'), 'leasehold-batched',
            'leasehold-library')  # results.md has them
# Of the README: (heading, part, level, value).
COLUMNS = (('1 in flight', 'pairs', 1, 'per_s'), ('4', 'pairs', 4, 'per_s'), ('16', 'pairs', 16, 'per_s'), ('256', 'pairs', 256, 'per_s'),
           ('hand-off, p50 ms', 'handoff', 16, 'p50_ms'), ('hand-offs', 'handoff', 16, 'per_s'), ('renewals', 'heartbeats', [10000, 256, 1], 'per_s'))
# (its name, its driver of pairs and of the others).
ROWS = (('Leasehold, with its [extension in C](docs/run/extension.md)', 'leasehold-core', 'leasehold-core'),
        ('Leasehold, SQL functions alone', 'leasehold', 'leasehold'), ('plain SQL', 'sql', 'sql'), ('etcd', 'etcd-kept', 'etcd'),
        ('ZooKeeper', 'zookeeper', 'zookeeper'), ('Redis, appendfsync always', 'redis', 'redis'))
# Each with what was measured in one run: (its heading, what it says first, parts).
SECTIONS = (
    ('## Pairs, hand-offs and renewals', """`tests/bench/run --part pairs,fresh,handoff,heartbeats`. pgbench drives plain SQL and the batch functions, a C program the others, over at most 16
connections (PostgreSQL: one for each request), and checks every reply and each server's writes. Costs are the servers',
for one at the highest level.

- Leasehold: PostgreSQL with `fsync` and `synchronous_commit`. Renewals go through KeepAlive, and are answered before they are on disk:
  a crash ends none of their leases.
- Plain SQL: `insert ... on conflict`, `delete` on a table of locks, no token, queue or reaper; a row lock as hand-off.
- etcd: put and delete with a lease that stays; its lock service as hand-off. Its renewals are not on disk. etcd sends a watch that asks for a revision of the past
  its events every 100 ms, hence its p99.
- Redis: `SET NX PX`, a script that deletes; BLPOP from a list as hand-off. ZooKeeper: ephemeral nodes, `forceSync`, its recipe of a lock; it renews sessions, not leases.

![pairs a second by requests in flight](benchmark.svg)""", ('pairs', 'fresh', 'handoff', 'heartbeats')),
    ('## Waiting, reaping, starting', '`tests/bench/run --part idle,reaping,expiry,start,cost`.', ('idle', 'reaping', 'expiry', 'start', 'cost')),
    ('## Shared leases', """`tests/bench/run --part semaphore,readers,turns --only leasehold,leasehold-core,leasehold-batched,redis`. Leasehold: requests of `MODE_SHARED` for one unit. Redis:
scripts on a sorted set of holders, without slots, tokens or queue. Turns: the next waiter gets the whole scope, or the last free unit.""", report.SHARED),
)


def median(values, name):
    return report.number(values[name]['median']) if name in values else ''


def rate(values):
    """A second, and at the median and the 99th percentile in ms."""
    if 'per_s' not in values:
        return ''
    return median(values, 'per_s') + (' (%s/%s)' % (median(values, 'p50_ms'), median(values, 'p99_ms')) if 'p50_ms' in values else '')


def cpu(values):
    used = [value['median'] for name, value in values.items() if name.startswith('cpu.')]
    return report.number(sum(used)) if used else ''


def by_level(part, levels):
    """A row for each driver, a column for each level, and the costs of one at the highest level that has any."""
    drivers = [driver for driver in dict.fromkeys(driver for who in levels.values() for driver in who)
               if driver not in LEFT_OUT and (part, driver) not in LEFT_OUT]
    costly = ([who for who in levels.values() if 'leasehold' in who and cpu(who['leasehold'])] or [{}])[-1]
    heads = ['a second (p50/p99 ms)', *map(report.level_name, levels), *(['CPU µs', 'WAL bytes'] if costly else [])]
    rows = [[report.driver_name(driver, part), *(rate(who.get(driver, {})) for who in levels.values()),
             *([cpu(costly.get(driver, {})), median(costly.get(driver, {}), 'wal_bytes')] if costly else [])] for driver in drivers]
    return report.table([heads, *rows])


def plain(levels, part):
    """The table of a part without rates."""
    rows = report.others({level: {driver: {name: {**value, 'rounds': 1} for name, value in values.items()} for driver, values in who.items()}
                          for level, who in levels.items()}, part)
    return report.table(rows)


def spread(levels):
    shares = sorted((value['max'] - value['min']) / value['median'] for who in levels.values() for values in who.values()
                    for name, value in values.items() if name == 'per_s' and value['median'])
    return 'Between rounds: %d %%, at most %d %%.' % (shares[len(shares) // 2] * 100, shares[-1] * 100) if any(shares) else ''


def targets(found):
    rows = report.judge(found)[1:]
    late = sum(row[3] != 'reached' for row in rows)
    return '%d of %d targets are missed: [why](../design/profile.md#what-falls-short-of-its-target).' % (late, len(rows)) if late else ''


def tables(found):
    for part, levels in found.items():
        yield '### %s: %s' % (part, report.TITLES[part])
        if part not in report.RATES:
            yield plain(levels, part)
            continue
        levels = {level: who for level, who in levels.items() if (part, json.loads(level)) not in LEFT_OUT}
        yield by_level(part, levels)
        yield spread(levels)
    yield targets(found)


def section(heading, about, machine, found):
    return '\n\n'.join(text for text in (heading, about, machine, *tables(found)) if text) + '\n'


def machine_of(samples, machines):
    about = machines[max(sample['run'] for sample in samples)]
    return ('%(date)s, commit %(commit)s: %(cores)d cores of %(cpu)s, %(memory_gib)s GiB, %(system)s; %(versions)s%(load)s. %(stolen)s'
            % {'load': '', **about, 'stolen': report.disturbance(samples)}).strip() + (
                ' **From a quick run: these figures prove nothing.**' if any(sample['quick'] for sample in samples) else '')


def figures(found):
    """The README's table."""
    rows = [['a second', *(column[0] for column in COLUMNS)]]
    for name, of_pairs, of_others in ROWS:
        rows.append([name, *(median(found[part].get(json.dumps(level), {}).get(of_pairs if part == 'pairs' else of_others, {}), value)
                             for _, part, level, value in COLUMNS)])
    return report.table(rows)


def narrow(text):
    """Tables without the blanks around their cells, as the other pages have them."""
    return ''.join(re.sub(r' *\| *', '|', re.sub('-{4,}', '---', line)) if line.startswith('|') else line for line in text.splitlines(True))


def publish_readme(found):
    before, rest = README.read_text().split(report.BEGIN)
    README.write_text(before + report.BEGIN + '\n' + narrow(figures(found)) + '\n' + report.END + rest.split(report.END)[1])


def publish(results):
    """Each section that was measured takes the place of what the page said."""
    text = PAGE.read_text()
    for heading, about, parts in SECTIONS:
        samples = [sample for sample in results.samples if sample['part'] in parts]
        if samples:
            before, after = text.split(heading + '\n')
            text = (before + section(heading, about, machine_of(samples, results.machines), report.summarize(samples)) +
                    ''.join(re.findall(r'\n## .*', after, re.S)))
    PAGE.write_text(narrow(text))
    found = report.summarize(results.samples)
    if {'pairs', 'handoff', 'heartbeats'} <= set(found):
        publish_readme(found)
    report.chart(results, PAGE.parent / 'benchmark.svg')
