"""Data directories of PostgreSQL that are copied: to make one, initdb computes for a second, and the schema takes as long again.

    prepared.copy('bare', make, data)    make(directory) is called for the first copy of this name

Each copy has a system identifier of its own, as one of initdb has: Leasehold tells databases apart by it. What was made is kept for one run of
tests (rundir.py).
"""
import fcntl
import glob
import os
import secrets
import shutil
import struct
import subprocess
import time

import rundir

REDO_AT = 40  # checkPointCopy of catalog/pg_control.h: its redo, an LSN, then its timeline
SEGMENT_BYTES = 16 * 1024 * 1024  # as initdb makes them
LONG_HEADER = 2  # XLP_LONG_HEADER of access/xlog_internal.h: the first page of a segment says which system it is of


def copy(name, make, data):
    """`data` is an empty directory, or is not there."""
    source = os.path.join(rundir.find_place(), 'prepared-' + name)
    with open(source + '.lock', 'w', encoding='ascii') as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.isdir(source):
            shutil.rmtree(source + '.new', ignore_errors=True)  # of one that was killed
            make(source + '.new')
            prune(source + '.new')
            os.rename(source + '.new', source)
    subprocess.run(['cp', '-a', '-T', source, str(data)], check=True)
    identify(str(data), int(time.time()) << 32 | secrets.randbits(32))


def prune(data):
    """Of the WAL, a server that was stopped needs the segment of its last checkpoint, which is nearly empty: most of the bytes of a copy would be zero."""
    with open(os.path.join(data, 'global', 'pg_control'), 'rb') as file:
        redo, timeline = struct.unpack_from('=QI', file.read(), REDO_AT)
    needed = '%08X%08X%08X' % (timeline, redo // SEGMENT_BYTES >> 8, redo // SEGMENT_BYTES & 255)
    for path in segments(data):
        if os.path.basename(path) == needed:
            subprocess.run(['fallocate', '--dig-holes', path], check=True)
        else:
            os.unlink(path)


def segments(data):
    return glob.glob(os.path.join(data, 'pg_wal', '[0-9A-F]' * 24))


def identify(data, identifier):
    """Another system identifier, in the control file and in the first page of each segment of WAL, in the order of bytes of this machine."""
    with open(os.path.join(data, 'global', 'pg_control'), 'r+b') as file:
        control = file.read()
        end = next(end for end in range(200, 512, 4) if struct.unpack_from('=I', control, end)[0] == crc32c(control[:end]))
        old, new = control[:8], struct.pack('=Q', identifier)
        file.seek(0)
        file.write(new + control[8:end] + struct.pack('=I', crc32c(new + control[8:end])))
    for path in segments(data):
        with open(path, 'r+b') as file:
            page = file.read(32)
            if struct.unpack_from('=H', page, 2)[0] & LONG_HEADER and page[24:32] == old:
                file.seek(24)
                file.write(new)


def shift(crc):
    for _ in range(8):
        crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc


SHIFTED = [shift(byte) for byte in range(256)]


def crc32c(data):
    """The checksum of the control file, by Castagnoli's polynomial."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ SHIFTED[(crc ^ byte) & 255]
    return crc ^ 0xFFFFFFFF
