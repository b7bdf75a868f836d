/* Lists that go through all databases, for placed_store.c; each works as in struct lh_store_ops. */
#ifndef LH_SERVICE_PLACED_LISTS_H
#define LH_SERVICE_PLACED_LISTS_H

#include "lease/store.h"

struct lh_places;

/* Lists policies or rules of all databases. */
enum lh_status lh_placed_list(const struct lh_places *places, const struct lh_list_page *page, lh_rows_cb *on_done,
                              void *arg);
/* Reads one database after the other. */
enum lh_status lh_placed_view(const struct lh_places *places, const struct lh_view_request *request,
                              lh_rows_cb *on_done, void *arg);

#endif
