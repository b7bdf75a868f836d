"""What leases cost, from samples: the tables between the marks of docs/measure/sizing.md."""
import json

import report
import servers

PAGE = servers.ROOT / 'docs/measure/sizing.md'
# Of a core that is at work all the time, so much is planned with; the rest is for vacuum, checkpoints and peaks.
SHARE = 0.6

# What to size for: (in words, leases, seconds between renewals, pairs a second, waiters, connections).
CASES = (
    ('10,000 leases of 30 s', 10_000, 10, 100, 100, 500),
    ('100,000 leases of 30 s', 100_000, 10, 500, 1_000, 2_000),
    ('a million leases of 45 s', 1_000_000, 15, 1_000, 10_000, 10_000),
    ('a million leases of 5 min', 1_000_000, 100, 1_000, 10_000, 10_000),
    ('a million leases of 1 h', 1_000_000, 1_200, 1_000, 10_000, 10_000),
    ('a hundred million leases of 45 s', 100_000_000, 15, 100_000, 1_000_000, 1_000_000),
    ('a hundred million leases of 5 min', 100_000_000, 100, 20_000, 100_000, 100_000),
    ('a hundred million leases of 1 h', 100_000_000, 1_200, 10_000, 100_000, 100_000),
)


class Costs:
    """Medians: CPU seconds and bytes of WAL for one of each, bytes of memory and disk for what is only there."""

    def __init__(self, samples):
        found = report.summarize(samples)

        def largest(part, kind=None):
            levels = {level: who['leasehold'] for level, who in found.get(part, {}).items() if 'leasehold' in who}
            levels = [level for level in levels if kind is None or json.loads(level)[0] == kind]
            if not levels:
                raise servers.Failure('%s was not measured: tests/bench/run --resume --part %s' % (part, part))
            level = max(levels, key=lambda text: json.loads(text)[1] if kind else json.loads(text)[0] if isinstance(json.loads(text), list)
                        else json.loads(text))
            return level, found[part][level]['leasehold']

        def of(values, name):
            return values[name]['median']
        pairs = found.get('pairs', {}).get('256', {}).get('leasehold')
        if pairs is None:
            raise servers.Failure('pairs were not measured: tests/bench/run --resume --part pairs')
        self.pair_pg, self.pair_daemon = of(pairs, 'cpu.postgres') / 1e6, of(pairs, 'cpu.leaseholdd') / 1e6
        self.pair_wal = of(pairs, 'wal_bytes')
        level, cost = largest('cost')
        self.leases = json.loads(level)[0]
        self.beat_pg, self.beat_daemon = of(cost, 'cpu_ms_per_1000.postgres') / 1e6, of(cost, 'cpu_ms_per_1000.leaseholdd') / 1e6
        self.beat_wal, self.lease_disk = of(cost, 'wal_bytes'), of(cost, 'table_bytes_each')
        _, waiters = largest('idle', 'waiters')
        self.waiter_memory, self.waiter_disk = of(waiters, 'bytes_each'), of(waiters, 'table_bytes_each')
        _, connections = largest('idle', 'connections')
        self.connection_memory = of(connections, 'bytes_each')


def size(value, units=('B', 'KiB', 'MiB', 'GiB', 'TiB')):
    for unit in units:
        if abs(value) < 1024 or unit == units[-1]:
            return '%s %s' % (report.number(value), unit)
        value /= 1024
    return ''


def cores(value):
    return '%.2f' % value if value < 10 else report.number(value)


def render(results):
    costs = Costs(results.samples)
    about = results.machines[-1]
    quick = any(sample['quick'] for sample in results.samples)
    rows = [['', 'CPU of PostgreSQL', 'CPU of leaseholdd', 'WAL', 'memory of leaseholdd', 'disk']]
    rows.append(['an acquire and its release', '%.0f µs' % (costs.pair_pg * 1e6), '%.0f µs' % (costs.pair_daemon * 1e6),
                 size(costs.pair_wal), '', ''])
    rows.append(['1,000 heartbeats a second', '%.3f cores' % (costs.beat_pg * 1000), '%.3f cores' % (costs.beat_daemon * 1000),
                 size(costs.beat_wal * 1000) + '/s', '', ''])
    rows.append(['a lease that is held', '', '', '', 'none', size(costs.lease_disk)])
    rows.append(['a waiter', '', '', '', size(costs.waiter_memory), size(costs.waiter_disk)])
    rows.append(['a connection', '', '', '', size(costs.connection_memory), ''])
    plan = [['', 'heartbeats/s', 'cores of PostgreSQL', 'of daemons', 'WAL', 'disk of leases', 'memory of daemons', 'servers of 16 cores']]
    for words, leases, every_s, pairs, waiters, connections in CASES:
        beats = leases / every_s
        pg = (beats * costs.beat_pg + pairs * costs.pair_pg) / SHARE
        daemons = (beats * costs.beat_daemon + pairs * costs.pair_daemon) / SHARE
        # Twice the fresh size: what vacuum has not come to yet.
        plan.append([words, report.number(beats), cores(pg), cores(daemons), size(beats * costs.beat_wal + pairs * costs.pair_wal) + '/s',
                     size(leases * costs.lease_disk * 2), size(waiters * costs.waiter_memory + connections * costs.connection_memory),
                     '%d' % max(1, -(-(pg + daemons) // 16))])
    text = ['Measured on %(date)s at commit %(commit)s on %(cores)d cores of %(cpu)s, %(system)s; %(versions)s' % about +
            '; heartbeats with %s leases.' % report.number(costs.leases)]
    if quick:
        text.append('**From a quick run: orders of magnitude only.**')
    text += [report.table(rows),
             'With these costs, %d %% of each core planned with, a renewal at a third of the duration, and in this order beside the leases: '
             'pairs a second %s; waiters %s; connections %s:' % (
                 SHARE * 100, *(', '.join(report.number(case[i]) for case in CASES) for i in (3, 4, 5))),
             report.table(plan)]
    return '\n\n'.join(text)


def write(results):
    text = PAGE.read_text()
    if report.BEGIN not in text or report.END not in text:
        raise servers.Failure('%s has no place for the figures' % PAGE)
    head, rest = text.split(report.BEGIN)
    PAGE.write_text(head + report.BEGIN + '\n\n' + render(results) + '\n\n' + report.END + rest.split(report.END)[1])
