"""Tables, a summary in JSON and a chart, from samples. Medians over the rounds, with the smallest and the largest."""
import json
import pathlib
import statistics
import subprocess

SHARED = ('semaphore', 'readers', 'turns')
RATES = ('pairs', 'fresh', 'handoff', 'heartbeats', *SHARED)
TITLES = {
    'pairs': 'acquire + release on distinct names, by requests in flight',
    'fresh': 'acquire + release of names that are new each time, by requests in flight',
    'handoff': 'one name, everybody waits for it, by waiters',
    'heartbeats': 'renewals, by leases, requests in flight, leases in a request',
    'idle': 'what waits and does nothing',
    'reaping': 'leases of dead holders, all expired together',
    'expiry': 'from the expiry of a dead holder (duration and grace) to the next grant, by rounds',
    'start': 'from the start of the server to the first lease',
    'semaphore': 'acquire + release of one unit of one scope of 1,000, by requests in flight',
    'readers': 'readers of one scope that renew, by readers, requests in flight, leases in a request',
    'turns': 'one name, from a release to the next grant, by waiters and capacity (0: exclusive)',
    'cost': 'leases renewed steadily, by leases, seconds, leases in a request',
}
NAMES = {
    'leasehold': 'Leasehold, SQL functions alone',
    'leasehold-core': 'Leasehold with leasehold_core',
    'leasehold-batched': 'Leasehold, releases together',
    'leasehold-library': 'libleasehold, lh_try_release',
    'sql': 'plain SQL, one transaction each',
    'sql-relaxed': 'plain SQL, synchronous_commit = off',
    'raw': 'batch functions, no daemon',
    'etcd': 'etcd: grant, put, revoke',
    'etcd-kept': 'etcd: put, delete, lease kept',
    'redis': 'Redis, appendfsync always',
    'redis-everysec': 'Redis, appendfsync everysec',
    'zookeeper': 'ZooKeeper',
    'leasehold-embedded': 'Leasehold, new embedded database',
    'leasehold-embedded-again': 'Leasehold, its embedded database',
}
VALUES = {'wal_bytes': 'WAL bytes', 'per_s': 'per second', 'p50_ms': 'p50 ms', 'cpu.postgres': 'CPU of PostgreSQL, µs each', 'bytes_each': 'bytes each',
          'acquire_p99_ms': 'p99 of an acquire, ms'}
# What a figure is held against: (part, level, driver, value, wanted, against, smaller is better). Against: nobody, another driver,
# or another driver at another level.
TARGETS = (
    ('pairs', 1, 'leasehold-core', 'p50_ms', 1.4, 'sql', True),
    ('pairs', 4, 'leasehold-core', 'per_s', 1.0, 'zookeeper', False), ('pairs', 4, 'leasehold-core', 'per_s', 0.8, 'sql', False),
    ('pairs', 4, 'leasehold-core', 'p50_ms', 1.0, ('leasehold-core', 16), True),
    ('pairs', 16, 'leasehold-core', 'per_s', 1.1, 'zookeeper', False), ('pairs', 16, 'leasehold-core', 'per_s', 0.9, 'redis', False),
    ('pairs', 16, 'leasehold-core', 'per_s', 1.4, 'sql', False), ('pairs', 16, 'leasehold', 'per_s', 0.8, 'sql', False),
    ('pairs', 256, 'leasehold-core', 'per_s', 1.5, 'zookeeper', False), ('pairs', 256, 'leasehold-core', 'per_s', 0.8, 'redis', False),
    ('pairs', 256, 'leasehold-core', 'per_s', 2, 'etcd-kept', False), ('pairs', 256, 'leasehold', 'per_s', 3, 'sql', False),
    ('pairs', 256, 'leasehold-core', 'wal_bytes', 1.2, 'sql', True),
    ('pairs', 1, 'leasehold', 'cpu.postgres', 400, None, True), ('pairs', 16, 'leasehold', 'cpu.postgres', 110, None, True),
    ('pairs', 256, 'leasehold', 'cpu.postgres', 28, None, True), ('pairs', 1, 'leasehold-core', 'cpu.postgres', 200, None, True),
    ('pairs', 16, 'leasehold-core', 'cpu.postgres', 65, None, True), ('pairs', 256, 'leasehold-core', 'cpu.postgres', 16, None, True),
    ('fresh', 16, 'leasehold-core', 'per_s', 1.0, 'zookeeper', False), ('fresh', 16, 'leasehold-core', 'per_s', 1.4, 'sql', False),
    ('handoff', 16, 'leasehold-core', 'p50_ms', 0.55, 'etcd', True), ('handoff', 16, 'leasehold-core', 'per_s', 0.5, 'sql', False),
    ('handoff', 16, 'leasehold-core', 'p50_ms', 1.0, 'zookeeper', True), ('handoff', 16, 'leasehold-core', 'wal_bytes', 600, None, True),
    ('handoff', 16, 'leasehold', 'p50_ms', 0.8, 'etcd', True), ('handoff', 16, 'leasehold', 'per_s', 0.35, 'sql', False),
    ('handoff', 4096, 'leasehold', 'p50_ms', 1.5, ('leasehold', 16), True),
    ('heartbeats', [10000, 256, 1], 'leasehold-core', 'per_s', 1.1, 'redis-everysec', False),
    ('heartbeats', [100000, 16, 500], 'leasehold-core', 'per_s', 1.5, 'leasehold', False),
    ('heartbeats', [100000, 16, 500], 'leasehold', 'per_s', 100000, None, False),
    ('heartbeats', [100000, 16, 500], 'leasehold', 'per_s', 7, ('sql-relaxed', [100000, 256, 1]), False),
    ('idle', ['waiters', 100000, 1000], 'leasehold', 'bytes_each', 2560, None, True),
    ('idle', ['connections', 10000, 10000], 'leasehold', 'bytes_each', 16384, None, True),
    ('cost', [1000000, 15, 1000], 'leasehold', 'acquire_p99_ms', 20, None, True),
    ('turns', [16, 1], 'leasehold', 'p50_ms', 1.5, ('leasehold', [16, 0]), True), ('turns', [256, 1], 'leasehold', 'p50_ms', 1.5, ('leasehold', [256, 0]), True),
    ('turns', [16, 1000], 'leasehold', 'p50_ms', 1.5, ('leasehold', [16, 0]), True),
)
BEGIN = '<!-- figures: written by tests/bench/run --publish -->'
END = '<!-- end of the figures -->'
CHARTED = ('leasehold', 'leasehold-core', 'sql', 'etcd-kept', 'redis', 'zookeeper')


def flatten(values, prefix=''):
    for name, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, prefix + name + '.')
        else:
            yield prefix + name, value


def summarize(samples):
    """{part: {level as JSON: {driver: {value: {median, min, max, rounds}}}}}, in the order of the samples."""
    found = {}
    for sample in samples:
        place = found.setdefault(sample['part'], {}).setdefault(json.dumps(sample['level']), {}).setdefault(sample['driver'], {})
        for name, value in flatten(sample['values']):
            place.setdefault(name, []).append(value)
    for levels in found.values():
        for who in levels.values():
            for values in who.values():
                for name, numbers in values.items():
                    values[name] = {'median': statistics.median(numbers), 'min': min(numbers), 'max': max(numbers), 'rounds': len(numbers)}
    return found


def number(value):
    if value >= 1000:
        return f'{value:,.0f}'
    return f'{value:.0f}' if value >= 100 else f'{value:.1f}' if value >= 10 else f'{value:.2f}'


def with_spread(value):
    if value is None:
        return ''
    if value['rounds'] == 1 or value['min'] == value['max']:
        return number(value['median'])
    return '%s (%s to %s)' % (number(value['median']), number(value['min']), number(value['max']))


def table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = ['| ' + ' | '.join(cell.ljust(width) for cell, width in zip(row, widths)) + ' |' for row in rows]
    return '\n'.join([lines[0], '| ' + ' | '.join('-' * width for width in widths) + ' |', *lines[1:]])


def driver_name(driver, part):
    """What comes after the colon is about pairs."""
    name = NAMES.get(driver, driver)
    return name if part in ('pairs', 'fresh') else name.split(':')[0]


def level_name(level):
    level = json.loads(level)
    return ' '.join(map(str, level)) if isinstance(level, list) else str(level)


def rates(levels, part):
    """The table of a part that has rates and latencies."""
    against = next((name for name in ('sql', 'redis') if any(name in who for who in levels.values())), None)
    rows = [['', 'driver', 'per second', 'p50 ms', 'p99 ms', 'p99.9 ms'] + (['times ' + {'sql': 'plain SQL', 'redis': 'Redis'}[against]] if against else [])]
    for level, who in levels.items():
        base = who.get(against, {}).get('per_s')
        for driver, values in who.items():
            row = [level_name(level), driver_name(driver, part), with_spread(values.get('per_s')), with_spread(values.get('p50_ms')),
                   with_spread(values.get('p99_ms')), with_spread(values.get('p999_ms'))]
            if against:
                row.append(number(values['per_s']['median'] / base['median']) if base and base['median'] else '')
            rows.append(row)
    return rows


def others(levels, part):
    names = []
    for who in levels.values():
        for values in who.values():
            names += [name for name in values if name not in names]
    return [['', 'driver', *names]] + [[level_name(level), driver_name(driver, part), *(with_spread(values.get(name)) for name in names)]
                                       for level, who in levels.items() for driver, values in who.items()]


def costs(levels, part):
    """CPU and WAL of one of a part's units."""
    rows = [['', 'driver', 'CPU µs each', 'of it', 'WAL bytes each']]
    for level, who in levels.items():
        for driver, values in who.items():
            cpu = {name[4:]: value['median'] for name, value in values.items() if name.startswith('cpu.')}
            if cpu:
                rows.append([level_name(level), driver_name(driver, part), number(sum(cpu.values())),
                             ', '.join('%s %s' % (name, number(value)) for name, value in cpu.items()), with_spread(values.get('wal_bytes'))])
    return rows


def judge(found):
    rows = [['', 'wanted', 'measured', '']]
    for part, level, driver, name, wanted, against, is_smaller in TARGETS:
        who = found.get(part, {}).get(json.dumps(level), {})
        value = who.get(driver, {}).get(name)
        other, there = against if isinstance(against, tuple) else (against, level)
        base = found.get(part, {}).get(json.dumps(there), {}).get(other, {}).get(name)
        if value is None or (against and not base):
            continue
        measured = value['median'] / base['median'] if base else value['median']
        reached = measured <= wanted if is_smaller else measured >= wanted
        rows.append(['%s %s: %s' % (part, level_name(json.dumps(level)), VALUES[name]), '%s%s%s' % ('at most ' if is_smaller else 'at least ',
                     number(wanted), ' x ' + driver_name(other, part) + (' at ' + level_name(json.dumps(there)) if there != level else '') if against else ''), number(measured), 'reached' if reached else 'NOT REACHED'])
    return rows


def disturbance(samples):
    """What the host of the virtual machine took meanwhile, for whoever judges the figures."""
    shares = [sample['stolen'] * 100 for sample in samples]
    if not any(shares):
        return ''
    return 'Processors taken by the host: %s %%, at most %s %%.' % (number(statistics.median(shares)), number(max(shares)))


def markdown(samples, machines):
    found = summarize(samples)
    about = machines[max(sample['run'] for sample in samples)] if machines and samples else {}
    parts = ['Measured on %(date)s at commit %(commit)s: %(cores)d cores of %(cpu)s, %(memory_gib)s GiB, %(system)s; %(versions)s%(load)s. Servers, '
             'drivers and database share these cores; each server ran alone, data on the same disk, durability on. Medians, in '
             'brackets the smallest and the largest of the rounds. %(stolen)s'
             % {'load': '', **about, 'stolen': disturbance(samples)} if about else '']
    if any(sample['quick'] for sample in samples):
        parts.append('**A quick run: short rounds, few leases. It shows that the benchmark works; its figures prove nothing.**')
    for part, levels in found.items():
        parts.append('### %s: %s' % (part, TITLES[part]))
        is_rate = part in RATES
        parts.append(table(rates(levels, part) if is_rate else others(levels, part)))
        if is_rate and len(costs(levels, part)) > 1:
            parts.append(table(costs(levels, part)))
    if len(judge(found)) > 1:
        parts += ['### targets', table(judge(found))]
    return '\n\n'.join(part for part in parts if part) + '\n'


def chart(results, path):
    """Pairs per second by requests in flight, a line for each driver."""
    levels = summarize(results.samples).get('pairs', {})
    who = [driver for driver in CHARTED if any(driver in drivers for drivers in levels.values())]
    if not who:
        return False
    data, plots = [], []
    for i, driver in enumerate(who):
        rows = [(json.loads(level), drivers[driver]['per_s']) for level, drivers in levels.items() if driver in drivers]
        data.append('$d%d << EOD\n%s\nEOD' % (i, '\n'.join('%d %f %f %f' % (level, value['median'], value['min'], value['max'])
                                                            for level, value in sorted(rows, key=lambda row: row[0]))))
        plots.append("$d%d using 1:2:3:4 with yerrorlines pt 7 ps 0.5 lw 2 title '%s'" % (i, NAMES.get(driver, driver)))
    script = '\n'.join(data + [
        "set terminal svg size 900,560 font 'sans-serif,13' background rgb 'white'", "set output '%s'" % path, 'set logscale x 2',
        'set logscale y 10', 'set grid', "set key outside right top", "set xlabel 'requests in flight'",
        "set ylabel 'acquire + release pairs per second'", "set format y '%.0f'", 'set xtics (1, 4, 16, 64, 256, 1024)',
        'plot ' + ', \\\n     '.join(plots)])
    subprocess.run(['gnuplot'], input=script + '\n', text=True, check=True)
    return True


def write(results, directory):
    """results.json, results.md and pairs.svg in the directory; the text of the second."""
    directory = pathlib.Path(directory)
    text = markdown(results.samples, results.machines)
    (directory / 'results.md').write_text(text)
    (directory / 'results.json').write_text(json.dumps({'machine': results.machines, 'results': {
        part: {level_name(level): who for level, who in levels.items()} for part, levels in summarize(results.samples).items()}}, indent=1) + '\n')
    return text
