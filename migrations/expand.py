"""The functions as they are applied: with the lists of functions/columns.txt, which says how a function names one, in the places of their names;
and with who may call them. A function is for nobody but whom a grant names: `revoke ... from public` is written behind each. A grant names it
without its arguments, which are written from its definition, so that another function of that name, of before, is left alone. One that has its
owner's rights (security definer) never looks into a schema of its caller: its search_path is written behind that.

usage: expand.py FUNCTION.SQL       print it so
"""
import pathlib
import re
import sys

from privileges import split

NAME = re.compile(r"\{\{(\w+)\.(set|columns|values|table|nulls|settings|text)(?: ([^{}]+))?\}\}")
INDENT = " " * 4
DEFINITION = re.compile(r"^create or replace function ([\w.]+)(?=\().*?^\$\$;\n", re.DOTALL | re.MULTILINE)
GRANT = re.compile(r"^((?:grant|revoke) execute on function\s)([^;]*?)(\s(?:to|from)\s)", re.MULTILINE)
DEFINER = re.compile(r"^(?:language \w+(?: \w+)? )?security definer$", re.MULTILINE)
WITHOUT_ROW = ("table", "nulls", "settings", "text")
BETWEEN = {"settings": "\n", "text": "\n"}


def read_lists(text):
    """{name: [(column, expression), ...]}; a line that begins with spaces goes on with the one before it."""
    lists, rows = {}, None
    for line in text.splitlines():
        head = re.fullmatch(r"\[(\w+)\]", line)
        if head:
            if head[1] in lists:
                raise SystemExit("columns.txt: [%s] stands twice" % head[1])
            rows = lists.setdefault(head[1], [])
        elif line.startswith(INDENT) and rows:
            rows[-1] = (rows[-1][0], rows[-1][1] + "\n" + line.strip())
        elif line.startswith("> ") and rows is not None:
            rows.append((None, line[2:]))
        elif line.startswith("all of ") and rows is not None:
            rows.extend(lists[line[len("all of "):]])
        elif line and not line.startswith("#"):
            column, is_there, expression = line.partition(" = ")
            if rows is None or not is_there or column in dict(rows):
                raise SystemExit("columns.txt: cannot read \"%s\"" % line)
            rows.append((column, expression))
    return lists


def of_row(expression, row, column):
    """One expression in its line, or in several that are indented below it."""
    if "$" in expression and row is None:
        raise SystemExit("columns.txt: \"%s\" needs a row" % expression)
    return expression.replace("$", row or "").replace("\n", "\n" + " " * column)


def parts_of(rows, kind, row, indent):
    if kind == "columns":
        return [column if row is None else row + "." + column for column, _ in rows]
    if kind == "table":
        return ["%s %s" % pair for pair in rows]
    if kind == "nulls":
        return ["null::" + expression for _, expression in rows]
    if kind == "text":
        return [line for _, line in rows]
    if kind == "values":
        return [of_row(expression, row, indent + 2) for _, expression in rows]
    word = "set " if kind == "settings" else ""
    return ["%s%s = %s" % (word, column, of_row(expression, row, indent + 2)) for column, expression in rows]


def with_lists(text, lists):
    def replace(found):
        name, kind, row = found.groups()
        if name not in lists or kind in WITHOUT_ROW and row is not None:
            raise SystemExit("%s: functions/columns.txt has no such list" % found[0])
        indent = found.start() - text.rfind("\n", 0, found.start()) - 1
        return (BETWEEN.get(kind, ",\n") + " " * indent).join(parts_of(lists[name], kind, row, indent))

    expanded = NAME.sub(replace, text)
    if "{{" in expanded:
        raise SystemExit("no list is named so: %s" % expanded[expanded.index("{{"):].partition("\n")[0])
    return expanded


def signature(definition):
    """leasehold.guard(text, text, bigint): a function's name, and the types that it takes."""
    name = definition[1]
    start = at = definition.end(1) - definition.start() + 1
    depth, text = 1, definition[0]
    while depth > 0:
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    types = []
    for argument in split(text[start:at - 1]):
        if not argument:
            continue
        words = re.sub(r"\s+default\s.*|^(?:in|inout|variadic)\s+", "", argument, flags=re.DOTALL).split(None, 1)
        if words[0] != "out":
            types.append(words[1])
    return "%s(%s)" % (name, ", ".join(types))


def signatures(texts):
    """{name: signature} of all functions that these texts define."""
    found = {}
    for text in texts:
        for definition in DEFINITION.finditer(text):
            if definition[1] in found:
                raise SystemExit("%s is defined twice" % definition[1])
            found[definition[1]] = signature(definition)
    return found


def with_rights(text, known):
    def complete(found):
        names = [name if "(" in name else known[name] for name in split(found[2])]
        return found[1] + ", ".join(names) + found[3]

    text = DEFINITION.sub(lambda found: "%srevoke execute on function %s from public;\n" % (found[0], signature(found)), text)
    text = DEFINER.sub(lambda found: found[0] + "\nset search_path = pg_catalog, pg_temp", text)
    return GRANT.sub(complete, text)


def applied(folder):
    """{name: text} of the functions in this folder, as they are applied."""
    folder = pathlib.Path(folder)
    lists = read_lists((folder / "columns.txt").read_text(encoding="utf-8"))
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.sql"))}
    known = signatures(texts.values())
    return {name: with_rights(with_lists(text, lists), known) for name, text in texts.items()}


if __name__ == "__main__":
    file = pathlib.Path(sys.argv[1])
    sys.stdout.write(applied(file.parent)[file.stem])
