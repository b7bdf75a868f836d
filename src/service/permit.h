/*
 * The caller of a method, and its rights. Each method checks them once the request is known to be valid, and before it
 * has any effect:
 *
 *     if (!lh_permit(call, LH_RIGHT_READ, ns)) return;      the call was answered
 *
 * An object that lives for longer than one message keeps its caller, and checks again whenever it sends or does
 * something.
 */
#ifndef LH_SERVICE_PERMIT_H
#define LH_SERVICE_PERMIT_H

#include <stdbool.h>

#include "access/access.h"

struct lh_rpc_call;

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

#endif
