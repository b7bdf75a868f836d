#!/usr/bin/python3
"""What leasehold.h declares, and the headers that it includes.

    symbols.py leasehold.h                              as a version script for the linker
    symbols.py --list leasehold.h                       one name a line
    symbols.py --compare LIBRARY leasehold.h            does libleasehold.so, or .a, export exactly that?
"""
import os
import re
import subprocess
import sys


def read(path):
    """The header, and those beside it that it includes."""
    with open(path, encoding='utf-8') as file:
        text = file.read()
    parts = re.findall(r'^#include "(leasehold_\w+\.h)"', text, flags=re.M)
    return '\n'.join([text, *(read(os.path.join(os.path.dirname(path), part)) for part in parts)])


def functions(header):
    text = re.sub(r'/\*.*?\*/', ' ', header, flags=re.S)
    text = re.sub(r'^\s*#.*$', ' ', text, flags=re.M)
    names = set()
    for statement in re.split(r'[;{}]', text):
        if 'typedef' in statement:
            continue
        # A declaration: a type, then the name, then its parameters.
        match = re.match(r'\s*(?:[\w ]+?[\s*]+)(lh_\w+)\s*\(', statement, flags=re.S)
        if match:
            names.add(match.group(1))
    return sorted(names)


def exported(library):
    kind = '-g' if library.endswith('.a') else '-D'
    lines = subprocess.run(['nm', kind, '--defined-only', library], check=True, stdout=subprocess.PIPE,
                           universal_newlines=True).stdout.splitlines()
    return sorted(line.split()[2].split('@')[0] for line in lines if len(line.split()) == 3 and line.split()[1] not in 'Aw')


def compare(library, names):
    have, want = set(exported(library)), set(names)
    for name in sorted(want - have):
        print('declared and not exported: %s' % name)
    for name in sorted(have - want):
        print('exported and not declared: %s' % name)
    return 0 if have == want and len(want) > 40 else 1


def main():
    names = functions(read(sys.argv[-1]))
    if sys.argv[1] == '--list':
        print('\n'.join(names))
        return
    if sys.argv[1] == '--compare':
        sys.exit(compare(sys.argv[2], names))
    print('LEASEHOLD_0 {\n  global:\n%s\n  local: *;\n};' % '\n'.join('    %s;' % name for name in names))


if __name__ == '__main__':
    main()
