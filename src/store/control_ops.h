/* The operations of struct lh_store_ops that need a control call: only the table in store.c names them. */
#ifndef LH_STORE_CONTROL_OPS_H
#define LH_STORE_CONTROL_OPS_H

#include "lease/store.h"

enum lh_status lh_pg_store_enroll(struct lh_store *store, lh_tick_cb *on_done, void *arg);
enum lh_status lh_pg_store_tick(struct lh_store *store, int64_t clock_us, lh_tick_cb *on_done, void *arg);
void lh_pg_store_look_elsewhere(struct lh_store *store);
enum lh_status lh_pg_store_survey(struct lh_store *store, lh_survey_cb *on_done, void *arg);
enum lh_status lh_pg_store_end_long_guards(struct lh_store *store, int64_t max_us, lh_guards_cb *on_done, void *arg);
enum lh_status lh_pg_store_pass_on(struct lh_store *store, const struct lh_wake *wake, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_reap(struct lh_store *store, int64_t clock_us, const char *const *namespaces,
                                size_t namespace_count, bool include_children, const char *key, int32_t max,
                                enum lh_reap_kind kind, const struct lh_requester *requester, lh_reap_cb *on_done,
                                void *arg);
enum lh_status lh_pg_store_get(struct lh_store *store, const char *ns, const char *key, lh_scope_cb *on_done,
                               void *arg);
enum lh_status lh_pg_store_list(struct lh_store *store, const struct lh_list_request *request, lh_list_cb *on_done,
                                void *arg);
enum lh_status lh_pg_store_holders(struct lh_store *store, const char *ns, const char *key, int32_t max,
                                   lh_list_cb *on_done, void *arg);
enum lh_status lh_pg_store_force_release(struct lh_store *store, const char *ns, const char *key, const char *reason,
                                         int64_t token, bool all, const struct lh_requester *requester,
                                         lh_scope_cb *on_done, void *arg);
enum lh_status lh_pg_store_set_policy(struct lh_store *store, const struct lh_policy_change *change,
                                      const struct lh_requester *requester, lh_rows_cb *on_done, void *arg);
enum lh_status lh_pg_store_get_policy(struct lh_store *store, const char *ns, lh_rows_cb *on_done, void *arg);
enum lh_status lh_pg_store_change_access(struct lh_store *store, const struct lh_requester *by,
                                         const struct lh_access_change *change, lh_rows_cb *on_done, void *arg);
enum lh_status lh_pg_store_create_token(struct lh_store *store, const struct lh_requester *by, const char *name,
                                        int64_t expires_us, lh_rows_cb *on_done, void *arg);
enum lh_status lh_pg_store_revoke_token(struct lh_store *store, const struct lh_requester *by, const char *name_or_id,
                                        lh_rows_cb *on_done, void *arg);
enum lh_status lh_pg_store_list_rows(struct lh_store *store, const struct lh_list_page *page, lh_rows_cb *on_done,
                                     void *arg);
enum lh_status lh_pg_store_view(struct lh_store *store, const struct lh_view_request *request, lh_rows_cb *on_done,
                                void *arg);

enum lh_status lh_pg_store_read_access(struct lh_store *store, lh_access_cb *on_done, void *arg);
enum lh_status lh_pg_store_audit(struct lh_store *store, const struct lh_audit *row, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_token_used(struct lh_store *store, const char *const *ids, size_t count);

enum lh_status lh_pg_store_watch_add(struct lh_store *store, const char *ns, bool include_children,
                                     lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_remove(struct lh_store *store, const char *ns, bool include_children,
                                        lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_clear(struct lh_store *store, lh_store_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_barrier(struct lh_store *store, lh_barrier_cb *on_done, void *arg);
enum lh_status lh_pg_store_watch_settled(struct lh_store *store, uint64_t horizon, lh_settled_cb *on_done, void *arg);
enum lh_status lh_pg_store_take_events(struct lh_store *store, int32_t max, lh_events_cb *on_done, void *arg);

#endif
