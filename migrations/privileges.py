"""Who may do what with the objects of the two schemas, read from the `grant` and `revoke` statements of the migrations and functions: their one
source. expected(texts) gives the rows that runner/privileges.sql compares with a database's catalog.

A statement counts where it stands by itself, not within a function's body, and names its objects one by one.
"""
import re

STATEMENT = re.compile(r"(grant|revoke) (.+?) on (?:(function|schema|table|sequence) )?(.+) (?:to|from) ([\w, ]+)", re.DOTALL)
# As PostgreSQL names the types of a function's arguments.
TYPES = {"timestamptz": "timestamp with time zone"}


def statements(text):
    """Without comments, strings and bodies."""
    text = re.sub(r"--[^\n]*|\$(\w*)\$.*?\$\1\$|'[^']*'", " ", text, flags=re.DOTALL)
    return [" ".join(part.split()) for part in text.split(";")]


def split(words):
    """At the commas that are in no parentheses."""
    return [part.strip() for part in re.split(r",(?![^()]*\))", words)]


def signature(function):
    name, _, arguments = function.rstrip(")").partition("(")
    types = [argument.strip() for argument in arguments.split(",")]
    return "%s(%s)" % (name, ",".join(re.sub(r"^\w+", lambda word: TYPES.get(word[0], word[0]), argument) for argument in types))


def grants_of(statement):
    """(kind, object, column, privilege, role) for each."""
    match = STATEMENT.fullmatch(statement)
    if not match:
        raise SystemExit("privileges.py cannot read: %s" % statement)
    _, privileges, kind, objects, roles = match.groups()
    for privilege in split(privileges):
        name, _, columns = privilege.partition(" (")
        for thing in split(objects):
            thing = signature(thing) if kind == "function" else thing
            for role in split(roles):
                for column in split(columns.rstrip(")")):
                    yield kind or "table", thing, column, name, role


def expected(texts):
    """Of the SQL texts in the order in which they are applied: the rows, sorted."""
    found = set()
    for text in texts:
        for statement in statements(text):
            if statement.startswith("grant "):
                found.update(grants_of(statement))
            elif statement.startswith("revoke "):
                found.difference_update(grants_of(statement))
    return sorted(found)


def as_sql(query, texts):
    """The query with these rows in the place of its marker."""
    rows = ",\n".join("    (" + ", ".join("'%s'" % word for word in row) + ")" for row in expected(texts))
    before, marker, after = query.partition("    -- the rows of privileges.py\n")
    if not marker or not rows:
        raise SystemExit("privileges.py: no place, or no rows, for what is expected")
    return before + rows + "\n" + after
