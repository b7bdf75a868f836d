"""Samples in a file, one JSON object a line, written as soon as each is there: a run that was ended can be taken up again.

On a virtual machine others may take the processors meanwhile. How much was taken is kept with each sample (`stolen`, a share of
all of the processors' time); where there are several of the same, the one of which the least was taken counts.
"""
import datetime
import json
import os
import pathlib
import platform
import shutil
import subprocess

import servers


def machine():
    """What the figures depend on."""
    def first(path, prefix):
        with open(path, encoding='utf-8') as file:
            return next((line.split(':', 1)[1].strip() for line in file if line.startswith(prefix)), '?')
    commit, load = '', os.getloadavg()[0]
    if shutil.which('git'):  # not for building or testing
        commit = subprocess.run(['git', '-C', str(servers.ROOT), 'describe', '--always', '--dirty'], stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=False).stdout.strip()
    return {'date': datetime.date.today().isoformat(), 'cores': len(os.sched_getaffinity(0)), 'cpu': first('/proc/cpuinfo', 'model name'),
            'memory_gib': round(int(first('/proc/meminfo', 'MemTotal').split()[0]) / 1048576, 1),
            'system': '%s, Linux %s' % (os_name(), platform.release()), 'commit': commit or '?',
            'load': '; load average %.1f when it began%s' % (load, ', so the ratios mean something and the rates do not' if load > 5 else '')}


def os_name():
    with open('/etc/os-release', encoding='utf-8') as lines:
        return next((line.split('=')[1].strip().strip('"') for line in lines if line.startswith('PRETTY_NAME=')), 'Linux')


class Stolen:
    """What the host took of the processors since the beginning, by /proc/stat."""

    def __init__(self):
        self.begun = self.ticks()

    @staticmethod
    def ticks():
        with open('/proc/stat', encoding='ascii') as file:
            ticks = list(map(int, file.readline().split()[1:9]))  # user nice system idle iowait irq softirq steal
        return ticks[7], sum(ticks)

    def share(self):
        stolen, total = (now - then for now, then in zip(self.ticks(), self.begun))
        return round(stolen / max(total, 1), 4)


class Results:
    def __init__(self, path, resume):
        self.path = pathlib.Path(path)
        self.best = {}
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
                    self.keep({'stolen': 0, **row})  # files of older runs do not tell

    def write(self, row):
        with open(self.path, 'a', encoding='utf-8') as file:
            file.write(json.dumps(row) + '\n')

    def describe(self, about):
        self.machines.append(about)
        self.write({'machine': about})

    @staticmethod
    def name(part, driver, level, number, quick):
        return json.dumps([part, driver, level, number, quick])

    def keep(self, sample):
        sample['run'] = len(self.machines) - 1  # which description is of its run
        name = self.name(*(sample[what] for what in ('part', 'driver', 'level', 'round', 'quick')))
        if name not in self.best or sample['stolen'] <= self.best[name]['stolen']:
            self.best[name] = sample

    @property
    def samples(self):
        return list(self.best.values())

    def add(self, part, driver, level, number, quick, values, stolen):
        sample = {'part': part, 'driver': driver, 'level': level, 'round': number, 'quick': quick, 'values': values, 'stolen': stolen}
        self.keep(sample)
        self.write(sample)

    def has(self, part, driver, level, number, quick, most_stolen=1.0):
        name = self.name(part, driver, level, number, quick)
        return name in self.best and self.best[name]['stolen'] <= most_stolen
