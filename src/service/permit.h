/*
 * Who calls, and whether he may. Each method asks once the request is known to be valid, and before anybody else hears
 * of it:
 *
 *     if (!lh_permit(call, LH_RIGHT_READ, ns)) return;      the call was answered
 *
 * What lives for longer than one message keeps its caller, and asks again whenever it tells or does something.
 */
#ifndef LH_SERVICE_PERMIT_H
#define LH_SERVICE_PERMIT_H

#include <stdbool.h>

#include "access/access.h"

struct lh_rpc_call;

/* Principal, right and namespace fit, cut where they are longer. */
#define LH_PERMIT_WORDS_BYTES 640

/* The caller, for lh_access_leave. False: the call was answered UNAUTHENTICATED, or as during the start. */
bool lh_permit_enter(struct lh_rpc_call *call, struct lh_access_caller *caller);

/* Of a call that needs no right: only a token that is not valid is refused. False: the call was answered. */
bool lh_permit_token(struct lh_rpc_call *call);
/* After that: has the caller the right admin everywhere? Refuses nothing. */
bool lh_permit_is_admin(struct lh_rpc_call *call);

/* False: the call was answered, for that reason or with ACCESS_DENIED. */
bool lh_permit(struct lh_rpc_call *call, enum lh_right right, const char *ns);
/* The same for who may do it in a namespace below at least. */
bool lh_permit_any(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right, const char *ns,
                   bool include_children);

/* False: a database whose rules may allow something there, or with include_children below it, was away since the start. */
bool lh_permit_knows_rules(struct lh_rpc_call *call, const char *ns, bool include_children);

/* ACCESS_DENIED, or DATABASE_UNAVAILABLE where the rules are not known yet; counted, logged and in the audit. */
void lh_permit_refuse(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right,
                      const char *ns);
/* The same for one item of a batch; `words` gets the sentence. */
void lh_permit_refuse_item(struct lh_rpc_call *call, const struct lh_access_caller *caller, enum lh_right right,
                           const char *ns, char words[LH_PERMIT_WORDS_BYTES]);

#endif
