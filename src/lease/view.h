/* Views for people: rows of text as the store returns them. */
#ifndef LH_LEASE_VIEW_H
#define LH_LEASE_VIEW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

enum lh_view {
    LH_VIEW_NAMESPACES,
    LH_VIEW_EXPLAIN,
    LH_VIEW_QUEUE,
    LH_VIEW_WAITS,
    LH_VIEW_HISTORY,
    LH_VIEW_FAILURES,
    LH_VIEW_AUDIT,
    LH_VIEW_DAEMONS,
    LH_VIEW_DATABASE,
    LH_VIEW_COUNT,
};

/* A page of a view. The namespaces, with include_children also all below them; `key` "" is any. `after` is the cell
   "after" of the last row of the page before, "" for the first page. The store copies it. */
struct lh_view_request {
    enum lh_view view;
    const char *const *namespaces;
    size_t namespace_count;
    bool include_children;
    const char *key;
    int32_t page_size;
    const char *after;
};

/* Cells row by row; NULL for null. Times are microseconds since 1970, durations microseconds, booleans "true" and "false". */
struct lh_view_answer {
    const char *const *columns;
    size_t column_count;
    const char *const *cells;
    size_t row_count;
    bool has_more;
};

typedef void lh_view_cb(void *arg, enum lh_status status, const struct lh_error *error,
                        const struct lh_view_answer *answer);

#endif
