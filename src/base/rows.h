/* Rows of text, as a database returns them; json/row_message.h makes messages of them. */
#ifndef LH_BASE_ROWS_H
#define LH_BASE_ROWS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"

/* Cells row by row; NULL for null. Times are microseconds since 1970, durations microseconds, booleans begin with "t" or
   "f", lists have commas between. Everything lives until the callback returns. */
struct lh_rows {
    const char *const *columns;
    size_t column_count;
    const char *const *cells;
    size_t row_count;
    bool has_more;
    /* A list: the next page begins behind these two cells; NULL: behind the last row. */
    const char *stop[2];
};

typedef void lh_rows_cb(void *arg, enum lh_status status, const struct lh_error *error, const struct lh_rows *rows);

/* Returns the cell of a column, or of it with "_us"; NULL: there is no such column, or it is null. */
const char *lh_rows_cell(const struct lh_rows *rows, size_t row, const char *column);

#endif
