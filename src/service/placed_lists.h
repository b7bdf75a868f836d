/* Lists that go through all databases, for placed_store.c; each works as in struct lh_store_ops. */
#ifndef LH_SERVICE_PLACED_LISTS_H
#define LH_SERVICE_PLACED_LISTS_H

#include "lease/store.h"

struct lh_places;

enum lh_status lh_placed_policies(const struct lh_places *places, int32_t page_size, const char *after_ns,
                                  lh_policy_cb *on_done, void *arg);
enum lh_status lh_placed_rules(const struct lh_places *places, int32_t page_size, const char *after_principal,
                               const char *after_ns, lh_access_admin_cb *on_done, void *arg);
/* Reads one database after the other. */
enum lh_status lh_placed_view(const struct lh_places *places, const struct lh_view_request *request,
                              lh_view_cb *on_done, void *arg);

#endif
