"""Write the page's files as a C source that defines `lh_console_files` (console/console_internal.h).

usage: embed.py OUTPUT FILE...
"""
import hashlib
import pathlib
import sys

TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
}


def main():
    output, *names = sys.argv[1:]
    arrays, rows = [], []
    for i, path in enumerate(pathlib.Path(name) for name in names):
        data = path.read_bytes()
        if path.suffix not in TYPES:
            sys.exit(f"embed.py: {path.name}: no content type is known for {path.suffix}")
        lines = (", ".join(str(byte) for byte in data[at:at + 32]) for at in range(0, len(data), 32))
        # A last byte of its own, because an empty array is no C.
        arrays.append(f"static const unsigned char file_{i}[] = {{\n" + "".join(f"    {line},\n" for line in lines) + "    0};\n")
        tag = hashlib.sha256(data).hexdigest()[:16]
        rows.append(f'    {{"{path.name}", "{TYPES[path.suffix]}", "\\"{tag}\\"", file_{i}, {len(data)}}},\n')
    pathlib.Path(output).write_text(
        '#include "console/console_internal.h"\n\n' + "".join(arrays) + "\nconst struct console_file lh_console_files[] = {\n" + "".join(rows)
        + "    {NULL, NULL, NULL, NULL, 0}};\n", encoding="ascii")


main()
