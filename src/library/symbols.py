#!/usr/bin/python3
"""What leasehold.h declares, as a version script for the linker; --list: the names alone, one a line.

    symbols.py [--list] leasehold.h
"""
import re
import sys


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


def main():
    names = functions(open(sys.argv[-1], encoding='utf-8').read())
    if '--list' in sys.argv:
        print('\n'.join(names))
        return
    print('LEASEHOLD_0 {\n  global:\n%s\n  local: *;\n};' % '\n'.join('    %s;' % name for name in names))


if __name__ == '__main__':
    main()
