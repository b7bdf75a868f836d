"""Every name that leaves its file begins with lh_, and no two files have the same.

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
if bare or not names:
    sys.exit("\n".join(["these names leave their files without lh_:", *bare]))
owners = {}
for file, name in names:
    if name.startswith("lh_"):
        owners.setdefault(name, []).append(file)
twice = [f"{name}: {', '.join(files)}" for name, files in sorted(owners.items()) if len(files) > 1]
sys.exit("\n".join(["these names are in two files:", *twice]) if twice else 0)
