"""Samples in a file, one JSON object a line, written as soon as each is there: a run that was ended can be taken up again."""
import datetime
import json
import os
import pathlib
import platform
import subprocess

import servers


def machine():
    """What the figures depend on."""
    def first(path, prefix):
        with open(path, encoding='utf-8') as file:
            return next((line.split(':', 1)[1].strip() for line in file if line.startswith(prefix)), '?')
    commit = subprocess.run(['git', '-C', str(servers.ROOT), 'describe', '--always', '--dirty'], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
    return {'date': datetime.date.today().isoformat(), 'cores': len(os.sched_getaffinity(0)), 'cpu': first('/proc/cpuinfo', 'model name'),
            'memory_gib': round(int(first('/proc/meminfo', 'MemTotal').split()[0]) / 1048576, 1),
            'system': '%s, Linux %s' % (os_name(), platform.release()), 'commit': commit or '?'}


def os_name():
    with open('/etc/os-release', encoding='utf-8') as lines:
        return next((line.split('=')[1].strip().strip('"') for line in lines if line.startswith('PRETTY_NAME=')), 'Linux')


class Results:
    def __init__(self, path, resume):
        self.path = pathlib.Path(path)
        self.samples = []
        self.machines = []
        self.path.parent.mkdir(parents=True, exist_ok=True)
        if resume and self.path.exists():
            self.read()
        else:
            self.path.write_text('')

    def read(self):
        with open(self.path, encoding='utf-8') as file:
            for line in file:
                if not line.endswith('\n'):
                    break  # cut off when the run was killed
                row = json.loads(line)
                if 'machine' in row:
                    self.machines.append(row['machine'])
                else:
                    self.samples.append(row)

    def write(self, row):
        with open(self.path, 'a', encoding='utf-8') as file:
            file.write(json.dumps(row) + '\n')

    def describe(self, about):
        self.machines.append(about)
        self.write({'machine': about})

    def add(self, part, driver, level, number, quick, values):
        sample = {'part': part, 'driver': driver, 'level': level, 'round': number, 'quick': quick, 'values': values}
        self.samples.append(sample)
        self.write(sample)

    def has(self, part, driver, level, number, quick):
        wanted = json.loads(json.dumps([part, driver, level, number, quick]))
        return any([s['part'], s['driver'], s['level'], s['round'], s['quick']] == wanted for s in self.samples)
