#!/bin/sh
# archive.sh OUTPUT.a SCRATCH symbols.py leasehold.h PARTS.a: one object with the names that leasehold.h declares
set -eu

mkdir -p "$2"
/usr/bin/python3 "$3" --list "$4" >"$2/names"
ld -r --whole-archive "$5" -o "$2/leasehold.o"
objcopy --keep-global-symbols="$2/names" "$2/leasehold.o"
rm -f "$1"
ar rcs "$1" "$2/leasehold.o"
