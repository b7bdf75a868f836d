"""Write the migrations and functions beside this file as a C source that defines `lh_migrations` (src/pg/migrate.h).

usage: embed.py DIRECTORY OUTPUT DEPFILE

A migration is NNNN_topic.sql; a line `-- oldest daemon: 1.2.0` in it names the oldest version that may run once it is
applied. Functions are functions/<name>.sql, applied in the order of functions/order.txt, which has to name each once; expand.py completes them.

runner/roles.sql and runner/table.sql are what every migration begins with; runner/privileges.sql looks whose everything is (privileges.py). The script of the extension leasehold_core is
there for a cluster of the daemon's own.
"""

import hashlib
import pathlib
import re
import sys

sys.dont_write_bytecode = True
import expand
import privileges


def fail(words):
    sys.exit(f"embed.py: {words}")


def read_migrations(directory):
    found = []
    for path in sorted(directory.glob("*.sql")):
        match = re.fullmatch(r"(\d{4})_[a-z0-9_]+", path.stem)
        if not match:
            fail(f"{path.name}: a migration is called NNNN_topic.sql")
        if found and found[-1][0] == int(match[1]):
            fail(f"{path.name}: number {match[1]} is used twice")
        found.append((int(match[1]), path))
    return found


def read_functions(directory):
    order_file = directory / "order.txt"
    there = {path.stem: path for path in directory.glob("*.sql")}
    order = []
    if order_file.exists():
        for line in order_file.read_text(encoding="utf-8").splitlines():
            name = line.partition("#")[0].strip().removesuffix(".sql")
            if name:
                order.append(name)
    for name in order:
        if name not in there:
            fail(f"{order_file}: there is no {name}.sql")
        if order.count(name) > 1:
            fail(f"{order_file}: {name} is named twice")
    for name in sorted(there):
        if name not in order:
            fail(f"{order_file}: {name}.sql is not named")
    return [(0, there[name]) for name in order]


# The runner makes the group roles (runner/roles.sql), as the installer. The released file makes them too, which its role,
# leasehold_owner, may not; so that statement is left out of what is run. The file and its checksum stay as they were released.
DONE_BY_THE_RUNNER = {
    "0001_tables": re.compile(rb"-- Group roles belong to the cluster.*?\n\$\$;\n", re.DOTALL),
}


def what_is_run(stem, data):
    if stem not in DONE_BY_THE_RUNNER:
        return data
    rest, count = DONE_BY_THE_RUNNER[stem].subn(b"", data, count=1)
    if count != 1:
        fail(f"{stem}: the statement that the runner does itself is not there")
    return rest


def literal(text):
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def byte_rows(data):
    """Escapes of 16 bytes a line: a string literal would be longer than ISO C allows."""
    for at in range(0, len(data), 16):
        yield "    " + " ".join(f"'\\{byte:03o}'," for byte in data[at : at + 16])


def write_text(out, declaration, data):
    out.append(declaration + " = {")
    out.extend(byte_rows(data + b"\0"))
    out.append("};")


def write_entries(out, kind, entries, texts):
    """The texts, then the table over them. Returns the checksum of all."""
    rows = []
    whole = hashlib.sha256()
    for index, (number, path) in enumerate(entries):
        data = texts[path.stem].encode()
        if b"\0" in data:
            fail(f"{path}: holds a NUL")
        checksum = hashlib.sha256(data).hexdigest()
        whole.update(f"{path.stem} {checksum}\n".encode())
        oldest = re.search(r"^-- oldest daemon: (\d+(?:\.\d+)*)\s*$", data.decode("utf-8"), re.MULTILINE)
        write_text(out, f"static const char {kind}_{index}[]", what_is_run(path.stem, data))
        rows.append(
            f"    {{{number}, {literal(path.stem)}, {literal(checksum)}, "
            f"{literal(oldest[1] if oldest else '')}, {kind}_{index}}},"
        )
    # One more, for C has no empty arrays.
    out.append(f"static const struct lh_migration {kind}s[] = {{")
    out.extend(rows)
    out.append("    {0, 0, 0, 0, 0},")
    out.append("};")
    return whole.hexdigest()


def main():
    directory, output, depfile = (pathlib.Path(argument) for argument in sys.argv[1:])
    migrations = read_migrations(directory)
    functions = read_functions(directory / "functions")
    out = ["/* Made by migrations/embed.py. */", '#include "pg/migrate.h"', ""]
    for name in ("roles", "table"):
        write_text(out, f"const char lh_migration_{name}_sql[]", (directory / "runner" / f"{name}.sql").read_bytes())
    texts = {path.stem: path.read_text(encoding="utf-8") for _, path in migrations}
    texts.update(expand.applied(directory / "functions"))
    in_order = [texts[path.stem] for _, path in migrations + functions]
    query = privileges.as_sql((directory / "runner" / "privileges.sql").read_text(encoding="utf-8"), in_order)
    write_text(out, "static const char privileges[]", query.encode())
    core = directory.parent / "src" / "extension" / "leasehold_core--1.sql"
    write_text(out, "const char lh_migration_core_sql[]", core.read_bytes())
    write_entries(out, "migration", migrations, texts)
    checksum = write_entries(out, "function", functions, texts)
    out.append("const struct lh_migration_set lh_migrations = {")
    revision = (directory / "functions" / "revision.txt").read_text(encoding="ascii").split()[0]
    out.append(f"    migrations, {len(migrations)}, functions, {len(functions)}, {literal(checksum)}, {int(revision)}, privileges,")
    out.append("};")
    output.write_text("\n".join(out) + "\n", encoding="utf-8")
    # The directories too: their times change when a file comes or goes.
    needs = [directory, directory / "functions", directory / "functions" / "order.txt", directory / "functions" / "revision.txt"]
    needs += [directory / "functions" / "columns.txt", directory / "expand.py"]
    needs += [directory / "runner" / name for name in ("roles.sql", "table.sql", "privileges.sql")]
    needs += [directory / "privileges.py", core]
    needs += [path for _, path in migrations + functions]
    names = " ".join(str(path).replace(" ", "\\ ") for path in needs if path.exists())
    depfile.write_text(f"{output}: {names}\n", encoding="utf-8")


main()
