#!/usr/bin/python3
"""The part of leasehold.h that Leasehold's own sources share with callers of the library: from its guard to its #endif."""
import re
import sys

with open(sys.argv[1], encoding='utf-8') as header:
    print(re.search(r'^#ifndef LEASEHOLD_STATUS_H$.*?^#endif$', header.read(), re.M | re.S).group())
