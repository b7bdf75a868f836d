"""docs/measure/benchmark.md: medians alone, a row for each driver, a column for each level. results.md has the rest of it."""
import json
import pathlib
import re

import report

PAGE = pathlib.Path(__file__).resolve().parents[3] / 'docs/measure/benchmark.md'
LEFT_OUT = (('pairs', 4), ('pairs', 64), ('heartbeats', [1000, 256, 1]), 'leasehold-batched', 'leasehold-library')  # results.md has them
RATES = ('pairs', 'handoff', 'heartbeats', *report.SHARED)
# Each with what was measured in one run: (its heading, what it says first, parts).
SECTIONS = (
    ('## Pairs, hand-offs and renewals', """`tests/bench/run --part pairs,handoff,heartbeats` measures these. A C program with one event loop drives all but plain SQL and the batch functions, which
pgbench drives. It uses at most 16 connections (PostgreSQL: one for each request in flight) and checks every reply, and each server's own count
of writes. The costs are those of the servers, for one at the highest level.

| driver | a pair | durable |
| --- | --- | --- |
| Leasehold | `Acquire`, `Release` | PostgreSQL with `fsync`, `synchronous_commit`; renewals are answered before they are on disk, because a crash ends none of their leases |
| plain SQL | `insert ... on conflict`, `delete` on a table of locks: no token, no queue, no reaper | the same |
| batch functions | `acquire_items`, `release_batch` in pgbench: the limit of the SQL beneath | the same |
| etcd | grant, put if absent, revoke: three writes; kept: put and delete with a lease that stays | its WAL |
| Redis | `SET NX PX`, a script that compares and deletes | `appendfsync always` |
| ZooKeeper | ephemeral node created, deleted, within 16 sessions | `forceSync` |

Hand-off: Redis has no queue; plain SQL is a row lock that open transactions wait for; etcd is its own lock service. Renewals: etcd's are not on disk;
ZooKeeper renews sessions, not leases.

![pairs a second by requests in flight](benchmark.svg)""", ('pairs', 'handoff', 'heartbeats')),
    ('## Waiting, reaping, starting', '`tests/bench/run --part idle,reaping,expiry,start,cost` measures these.', ('idle', 'reaping', 'expiry', 'start', 'cost')),
    ('## Shared leases', """`tests/bench/run --part semaphore,readers,turns --only leasehold,leasehold-batched,redis` measures these. Leasehold: requests of
`MODE_SHARED` for one unit. Redis: scripts on a sorted set of holders, as a semaphore and as the readers of a read/write lock, without slots, tokens or
queue. The part turns compares shared leases with exclusive ones: each waiter gets the whole scope, or the last free unit.""", report.SHARED),
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
    drivers = [driver for driver in dict.fromkeys(driver for who in levels.values() for driver in who) if driver not in LEFT_OUT]
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
    return 'Half of the rates vary by up to %d %% of their median between rounds, all by up to %d %%.' % (shares[len(shares) // 2] * 100, shares[-1] * 100) if any(shares) else ''


def targets(found):
    """How many are reached, and those that are not."""
    rows = report.judge(found)[1:]
    late = ['%s %s, not %s' % (what, measured, wanted) for what, wanted, measured, said in rows if said != 'reached']
    words = ': ' + '; '.join(late) if late else ''
    return '%d of %d [targets](../../tests/bench/lib/report.py) are missed%s.' % (len(late), len(rows), words) if rows else ''


def tables(found):
    for part, levels in found.items():
        yield '### %s: %s' % (part, report.TITLES[part])
        if part not in RATES:
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
    return ('Measured on %(date)s at commit %(commit)s: %(cores)d cores of %(cpu)s, %(memory_gib)s GiB, %(system)s; %(versions)s%(load)s. Each server ran '
            'alone and shared these cores and the disk with its driver. Medians. %(stolen)s'
            % {'load': '', **about, 'stolen': report.disturbance(samples)}).strip() + (
                ' **From a quick run: these figures prove nothing.**' if any(sample['quick'] for sample in samples) else '')


def publish(results):
    """Each section that was measured takes the place of what the page said."""
    text = PAGE.read_text()
    for heading, about, parts in SECTIONS:
        samples = [sample for sample in results.samples if sample['part'] in parts]
        if samples:
            before, after = text.split(heading + '\n')
            text = (before + section(heading, about, machine_of(samples, results.machines), report.summarize(samples)) +
                    ''.join(re.findall(r'\n## .*', after, re.S)))
    PAGE.write_text(text)
    report.chart(results, PAGE.parent / 'benchmark.svg')
