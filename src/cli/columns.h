/*
 * Messages as rows: a table of columns makes a table, a card or JSON of them, by the fields' own types.
 *
 *     static const struct lh_column columns[] = {{"NAME", "name", LH_COLUMN_TEXT}, {0}};
 *     lh_columns_print_table(columns, response, SIZE_MAX, "no tokens");
 */
#ifndef LH_CLI_COLUMNS_H
#define LH_CLI_COLUMNS_H

#include <jansson.h>
#include <protobuf-c/protobuf-c.h>
#include <stddef.h>

#include "base/memory.h"

enum lh_column_kind {
    LH_COLUMN_TEXT,
    LH_COLUMN_NAMESPACE,
    LH_COLUMN_COUNT,
    LH_COLUMN_COUNT_OF_HOLD, /* null where there is no mode, for nothing is held */
    LH_COLUMN_INT64,         /* a string in JSON, as in the protocol's messages; 0 is null */
    LH_COLUMN_PLACE,         /* a count; 0 is null */
    LH_COLUMN_DURATION,
    LH_COLUMN_HELD, /* a duration, from acquired_at to ended_at */
    LH_COLUMN_TIME,
    LH_COLUMN_TIME_OR_NEVER,
    LH_COLUMN_INSTANT, /* a time as it is written in a key */
    LH_COLUMN_NEXT,    /* likewise, unless the schedule is paused */
    LH_COLUMN_BOOL,
    LH_COLUMN_UNITS, /* a count; not in the text where it is 0 */
    LH_COLUMN_LIST,
    LH_COLUMN_JSON, /* not in the text */
};

struct lh_column {
    const char *heading; /* title in the text; NULL: only in JSON */
    const char *name;    /* the field, or a part of the field `scope`; the name in JSON too */
    enum lh_column_kind kind;
};

/* Returns what a message has in a column, as people read it, in the arena or borrowed; NULL: nothing. */
const char *lh_column_text(const void *message, const struct lh_column *column, struct lh_arena *arena);

/* Print the first field of `answer`, a list, at most `max` of it: as a table, or `empty` on stderr if it is empty; and as a
   JSON object of this one name. */
void lh_columns_print_table(const struct lh_column *columns, const void *answer, size_t max, const char *empty);
void lh_columns_print_json(const struct lh_column *columns, const char *name, const void *answer, size_t max);

/* Print one message: a card of the columns that are not null, and a JSON object. */
void lh_columns_print_card(const struct lh_column *columns, const void *message);
void lh_columns_print_object(const struct lh_column *columns, const void *message);

#endif
