/* The queries of the AdminService as commands: their rows, from the server or the database, and how they are printed. */
#ifndef LH_CLI_QUERY_INTERNAL_H
#define LH_CLI_QUERY_INTERNAL_H

#include <stdbool.h>

#include "base/memory.h"
#include "cli/cli.h"

/*
 * Rows that a command looks up, one or several: a table of columns makes the statement for a database, the request to a
 * daemon, the text and the JSON.
 *
 *     status = lh_query_rows(cli, &query, &asked, &rows);
 *     if (status == LH_EXIT_DONE)
 *         lh_query_print(cli, &query, &rows);
 *     lh_arena_finish(&rows.arena);
 */

enum lh_column_kind {
    LH_COLUMN_TEXT,
    LH_COLUMN_NAMESPACE,
    LH_COLUMN_COUNT,
    LH_COLUMN_COUNT_OF_HOLD, /* null where there is no mode, for nothing is held */
    LH_COLUMN_INT64,         /* a string in JSON, as in the protocol's messages; 0 is null */
    LH_COLUMN_PLACE,         /* a count; 0 is null */
    LH_COLUMN_DURATION,      /* microseconds */
    LH_COLUMN_HELD,          /* likewise, from acquired_at to ended_at */
    LH_COLUMN_TIME,          /* microseconds since 1970 */
    LH_COLUMN_BOOL,          /* "t" or "f" */
    LH_COLUMN_UNITS,         /* a count; not in the text where it is 0 */
    LH_COLUMN_SLOTS,         /* numbers, "{1,2}" */
    LH_COLUMN_JSON,          /* not in the text */
};

struct lh_column {
    const char *heading; /* title in the text; NULL: only in JSON */
    const char *name;    /* in the result of the statement, in the message and in JSON */
    enum lh_column_kind kind;
};

struct lh_query {
    const char *rows; /* a query of these columns, and of namespace and key; $1 and $2 are the two, or null */
    const char *order;
    const char *method; /* a method of ConsoleService; its request is a ListRequest, without `list` an ExplainRequest */
    const struct lh_column *columns;
    const char *list;  /* the name of the rows in JSON; NULL: there is one row, printed as a card */
    const char *empty; /* the sentence for a list without rows */
};

struct lh_asked_for {
    const char *ns;  /* NULL: all */
    const char *key; /* NULL: any */
    bool include_children;
    int32_t max;
};

/* Cells row by row; NULL for null, and for empty text. */
struct lh_query_cells {
    size_t count;
    size_t column_count;
    const char **cells;
    struct lh_arena arena;
};

/* From the database or the daemon, whichever `cli` names. Not DONE: an error was printed. Finish rows->arena either way. */
enum lh_exit lh_query_rows(struct lh_cli *cli, const struct lh_query *query, const struct lh_asked_for *asked,
                           struct lh_query_cells *rows);

/* Rows of a query on standard output: a table, a card or JSON, as the command line asks; without any, a word about that. */

void lh_query_print(const struct lh_cli *cli, const struct lh_query *query, const struct lh_query_cells *rows);

#endif
