/* The caller, and what it may do and see. Private to src/service. */
#ifndef LH_SERVICE_EDGE_INTERNAL_H
#define LH_SERVICE_EDGE_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "access/access.h"
#include "base/bounds.h"
#include "base/list.h"
#include "base/table.h"
#include "lease/coordinator.h"
#include "lease/store.h"
#include "loop/loop.h"
#include "service/service.h"

/* --- usage --- */

/*
 * A caller, and how much of the daemon it uses: its share of each common bound is bounded. A caller is a principal, on
 * all of its connections together; an anonymous caller is one for each connection.
 *
 *     if (!lh_usage_take(call, LH_USAGE_WAITERS, 1, &caller)) return;      the call was answered
 *     lh_usage_give(caller, LH_USAGE_WAITERS, 1);                          later, also if the call has ended
 */

struct lh_rpc_call;
struct lh_usage;

/* Returns the caller of this call. It stays until the next call of its connection, and as long as it has taken a
   share. */
struct lh_usage *lh_usage_of(struct lh_rpc_call *call);

/* Compares a caller with a principal, as lh_table_equal. */
bool lh_usage_is_of(const struct lh_table_entry *entry, const void *principal);

/* Takes a share of `count`, to be given back by lh_usage_give. Returns false, and counts a refusal, if the caller
   would exceed its share. A caller that has taken no share may always have one request, of any size. */
bool lh_usage_may_take(struct lh_usage *caller, enum lh_usage_bound bound, size_t count);
void lh_usage_give(struct lh_usage *caller, enum lh_usage_bound bound, size_t count);

/* Does as lh_usage_may_take for the caller of the call, and answers the call if that returns false. */
bool lh_usage_take(struct lh_rpc_call *call, enum lh_usage_bound bound, size_t count, struct lh_usage **caller);
void lh_usage_refuse(struct lh_rpc_call *call, enum lh_usage_bound bound);

/* --- denials --- */

/*
 * Denials, for the log and the audit: of each principal at most one line a second, with how many there were. The rest
 * of a line is of the last one.
 */

struct lh_store;

#define LH_DENIALS_MAX 1000 /* principals at a time; denials of more are only counted in the metrics */

/* Strings are copied. */
struct lh_denial {
    const char *principal;
    const char *peer;
    const char *method;
    const char *ns;
    const char *what; /* the right, or the reason that a token is refused */
};

struct lh_denials {
    struct lh_store *store;
    struct lh_table by_principal;
    struct lh_link in_order;
};

void lh_denials_init(struct lh_denials *denials, struct lh_store *store);
void lh_denials_finish(struct lh_denials *denials);
void lh_denials_note(struct lh_denials *denials, const struct lh_denial *denial);
/* Writes the lines that are due. Call it several times a second. */
void lh_denials_tick(struct lh_denials *denials, int64_t now_us);

/* --- unknown tokens --- */

/*
 * Tokens that this daemon does not know yet: another daemon, or SQL, may have made them a moment ago. A call with one
 * waits until the tokens have been read once more, and its method hears of it then. All such calls share one read, a
 * few reads may be sent in a second, and the number of calls is bounded: a call beyond it is refused at once.
 */

struct lh_rpc_call;
struct lh_service;

struct lh_unknown_tokens {
    struct lh_link asked;   /* calls that came before the read in flight was sent */
    struct lh_link waiting; /* calls for the next read */
    size_t count;
    struct lh_timer timer;
    int64_t sent_us; /* time of the last read */
    bool is_out;
};

/* Without a loop no call waits. */
void lh_unknown_tokens_start(struct lh_service *service, struct lh_loop *loop);
void lh_unknown_tokens_finish(struct lh_service *service);

/* --- permit --- */

/*
 * The caller of a method, and its rights. Each method checks them once the request is known to be valid, and before it
 * has any effect:
 *
 *     if (!lh_permit(call, LH_RIGHT_READ, ns)) return;      the call was answered
 *
 * An object that lives for longer than one message keeps its caller, and checks again whenever it sends or does
 * something.
 */

/* Room for principal, right and namespace, cut if they are longer. */
#define LH_PERMIT_WORDS_BYTES 640

/* Fills the caller, to be given back by lh_access_leave. Returns false if the call was answered: UNAUTHENTICATED, or
   as during the start. */
bool lh_permit_enter(struct lh_rpc_call *call, struct lh_access_caller *caller);

/* Returns true if the call has a token that is well-formed, was taken where tokens are, and is not known. */
bool lh_permit_has_unknown_token(struct lh_rpc_call *call);
/* Checks the token of a call that needs no right. Returns false if the token is not valid; the call was answered. */
bool lh_permit_token(struct lh_rpc_call *call);
/* Returns true if the caller has the right admin everywhere; refuses no call. Call it after lh_permit_token. */
bool lh_permit_is_admin(struct lh_rpc_call *call);

/* Checks the caller and its right. Returns false if the call was answered, as by lh_permit_enter or with
   ACCESS_DENIED. */
bool lh_permit(struct lh_rpc_call *call, enum lh_right right, const char *ns);
/* Returns the first namespace of the request in which the caller has no right to lease, or NULL. */
const char *lh_permit_forbidden(const struct lh_access_caller *caller, const struct lh_acquire *request);
/* Checks for the right in the namespace, or with include_children in one below it at least. Returns false if the
   call was answered. */
bool lh_permit_any(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right, const char *ns,
                   bool include_children);

/* Returns false if a database with rules for the namespace, or with include_children below it, has not loaded its
   rules yet. */
bool lh_permit_knows_rules(struct lh_rpc_call *call, const char *ns, bool include_children);

/* Answers ACCESS_DENIED, or DATABASE_UNAVAILABLE if the rules are not known yet. The denial is counted, logged and
   in the audit. */
void lh_permit_refuse(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right,
                      const char *ns);
/* Refuses one item of a batch in the same way; `words` gets the sentence. */
void lh_permit_refuse_item(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right,
                           const char *ns, char words[LH_PERMIT_WORDS_BYTES]);

/* --- tracing --- */

/* Traces of calls, see trace/tracer.h: a call that is not traced costs a look at one pointer. */

/* Begins the trace of a call. Call it first. */
void lh_tracing_begin(struct lh_rpc_call *call);
void lh_tracing_scope(struct lh_rpc_call *call, const char *ns, const char *key);
/* Note the outcome. Call them before the answer. */
void lh_tracing_acquired(struct lh_rpc_call *call, const struct lh_acquire_result *result);
void lh_tracing_answered(struct lh_rpc_call *call, const struct lh_holder_request *request);
/* Ends the trace. Call it first in on_end. */
void lh_tracing_end(struct lh_rpc_call *call);

/* --- rights --- */

/* The rules and tokens behind permit.h, loaded as they change. Open calls end when their callers have lost the
   right. */

struct lh_loop;
struct lh_place;

/* Starts. With a loop it looks at open calls in the loop's turns, with NULL at all at once. */
void lh_rights_start(struct lh_service *service, struct lh_loop *loop);
void lh_rights_start_place(struct lh_service *service, struct lh_place *place);
/* Looks at open calls again, because the rights of callers or the places of keys have changed. */
void lh_rights_look(struct lh_service *service);
void lh_rights_gather(struct lh_service *service); /* the rules of all databases */
void lh_rights_tick(struct lh_service *service);
void lh_rights_finish(struct lh_service *service);

/* --- visible --- */

/*
 * A walk over the leases that a caller may read, in order of namespace and key. The store is asked for whole pages;
 * leases that the caller may not read are left out of them, and if a page ends among those, the next one begins with
 * the next namespace that the caller may read.
 *
 *     lh_visible_begin(&walk, ns, include_children, after_ns, after_key, after_token);
 *     while (lh_visible_ask(&walk, who, &list)) ... ask the store for `list`; of its answer:
 *         if (lh_visible_may_show(who, &answer->leases[i])) ...
 *         lh_visible_advance(&walk, answer, i);
 */

struct visible_walk {
    char ns[LH_NAMESPACE_MAX_BYTES + 1];
    bool include_children;
    bool is_over;
    bool has_after; /* not at the beginning */
    char after_ns[LH_ACCESS_NAME_BYTES];
    char after_key[LH_KEY_MAX_BYTES + 1];
    int64_t after_token; /* as in lh_list_request */
};

/* Begins a walk. The strings are copied. `after_ns` NULL: from the beginning. */
void lh_visible_begin(struct visible_walk *walk, const char *ns, bool include_children, const char *after_ns,
                      const char *after_key, int64_t after_token);
/* Returns true if the caller may read all that the walk goes through. */
bool lh_visible_is_whole(const struct visible_walk *walk, const struct lh_access_caller *who);
/* Fills `list` with the next page. Returns false at the end. The strings of `list` are the walk's; its page_size and
   owner are left alone. */
bool lh_visible_ask(struct visible_walk *walk, const struct lh_access_caller *who, struct lh_list_request *list);
bool lh_visible_may_show(const struct lh_access_caller *who, const struct lh_held_lease *lease);
/* Returns the after_token with which a page goes on behind this lease within its scope: other shared leases may
   follow. */
int64_t lh_visible_place(const struct lh_held_lease *lease);
/* Moves the walk behind the first `seen` leases of the answer. */
void lh_visible_advance(struct visible_walk *walk, const struct lh_list_answer *answer, size_t seen);

#endif
