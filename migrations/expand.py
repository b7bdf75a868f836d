"""The functions as they are applied: with the lists of functions/columns.txt, which says how a function names one, in the places of their names.

usage: expand.py COLUMNS.TXT FUNCTION.SQL       print it so
"""
import re
import sys

NAME = re.compile(r"\{\{(\w+)\.(set|columns|values)(?: ([^{}]+))?\}\}")
INDENT = " " * 4


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


def expand(text, lists):
    def replace(found):
        name, kind, row = found.groups()
        if name not in lists or kind == "columns" and row is not None:
            raise SystemExit("%s: functions/columns.txt has no such list" % found[0])
        indent = found.start() - text.rfind("\n", 0, found.start()) - 1
        if kind == "columns":
            parts = [column for column, _ in lists[name]]
        elif kind == "values":
            parts = [of_row(expression, row, indent + 2) for _, expression in lists[name]]
        else:
            parts = ["%s = %s" % (column, of_row(expression, row, indent + 2)) for column, expression in lists[name]]
        return (",\n" + " " * indent).join(parts)

    expanded = NAME.sub(replace, text)
    if "{{" in expanded:
        raise SystemExit("no list is named so: %s" % expanded[expanded.index("{{"):].partition("\n")[0])
    return expanded


def main():
    with open(sys.argv[1], encoding="utf-8") as columns, open(sys.argv[2], encoding="utf-8") as function:
        sys.stdout.write(expand(function.read(), read_lists(columns.read())))


if __name__ == "__main__":
    main()
