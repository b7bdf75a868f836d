"""Every name that leaves its file begins with lh_.

    global_symbols.py ARCHIVE...        the static libraries of src
"""
import re
import subprocess
import sys

listed = subprocess.run(["nm", "--extern-only", "--defined-only", "--print-file-name", *sys.argv[1:]], check=True, stdout=subprocess.PIPE,
                        encoding="utf-8").stdout
names = re.findall(r"^(.+):\S* \w (\S+)$", listed, re.M)
# A sanitizer writes names of its own into each object.
bare = [f"{file}: {name}" for file, name in names if not name.startswith(("lh_", "__"))]
sys.exit("\n".join(["these names leave their files without lh_:", *bare]) if bare or not names else 0)
