/* The steps of a method with its call. Private to src/service. */
#ifndef LH_SERVICE_CALL_INTERNAL_H
#define LH_SERVICE_CALL_INTERNAL_H

#include "service/edge/validate.h"
#include "service/methods_internal.h"
#include "service/service_internal.h"

/* A reply stays well below the 4 MiB that clients take by default: lists end their page there. */
#define LH_REPLY_MAX_BYTES ((size_t)3 * 1024 * 1024)

#define LH_OUTAGE_WORDS_BYTES 896

struct lh_service *lh_call_service(const struct lh_rpc_call *call);
/* Returns the method of a call whose row of the table has one. */
const struct lh_method *lh_method_of(const struct lh_rpc_call *call);
/* Returns the caller, for the history and the audit; its strings are the call's. */
struct lh_requester lh_call_requester(const struct lh_rpc_call *call);

/* Returns the checked and unpacked request. NULL: the request was refused and the call is answered. */
void *lh_call_unpack(struct lh_rpc_call *call, const ProtobufCMessageDescriptor *type, const void *data, size_t size,
                     struct lh_arena *arena);

/* Does as lh_call_unpack, but does not answer the call: if it returns NULL, the reasons are in `violations`. */
void *lh_call_unpack_into(const ProtobufCMessageDescriptor *type, const void *data, size_t size, struct lh_arena *arena,
                          struct lh_violations *violations);

void lh_call_reply(struct lh_rpc_call *call, const ProtobufCMessage *message, struct lh_arena *arena);

/*
 * A request that is checked in one go. It lives in scratch memory until the method's on_request returns:
 *
 *     if (lh_asked_check(asked, lh_validate_...(&asked->v, request, &wanted)))
 *         ...                                                         else: the call was answered
 */
struct lh_asked {
    struct lh_rpc_call *call;
    struct lh_service *service;
    struct lh_violations violations;
    struct lh_validator v;
};
/* Returns `is_valid`. If it is false, the call was answered with the violations. */
bool lh_asked_check(const struct lh_asked *asked, bool is_valid);

/* Answers INVALID_ARGUMENT with the violations. */
void lh_call_refuse(struct lh_rpc_call *call, const struct lh_violations *violations);

/* Answers with an error of the coordinator or the store. `ns`, `key` and `error` may be NULL. */
void lh_call_fail(struct lh_rpc_call *call, enum lh_status status, const struct lh_error *error, const char *ns,
                  const char *key);

/* Returns the message of DATABASE_UNAVAILABLE: the cause as far as clients may know it, and `what_next`. `ns` NULL:
   several databases; `key` NULL: those of the namespace. */
const char *lh_call_words_of_outage(const struct lh_service *service, const char *ns, const char *key,
                                    const char *what_next, char words[LH_OUTAGE_WORDS_BYTES]);

/* Returns the request's path of a field of the database's functions: "key" -> "scope.key", "grace" ->
   "policy.grace". */
const char *lh_call_field(const char *field, char path[LH_VIOLATION_FIELD_BYTES]);

/*
 * A call of the store, which answers later; its RPC call may have ended by then.
 *
 *     store_call = lh_store_call_create(call, ns, key);
 *     if (store_call == NULL) return;      its caller has too many calls at once, and was refused
 *     lh_store_call_check(store_call, store->ops->get(store, store_call->ns, store_call->key, on_scope, store_call));
 *
 *     on_scope: if (lh_store_call_is_answered(store_call, status, error)) reply to store_call->call ...;
 *               lh_store_call_destroy(store_call);
 */
struct lh_store_call {
    struct lh_rpc_call *call; /* NULL once it has ended */
    struct lh_service *service;
    struct lh_usage *caller;
    const char *ns;
    const char *key;
    uint64_t filter;
    int64_t token;
    enum lh_list list; /* used by access.c */
};

/* Creates the call; copies the strings, which may be NULL. NULL: refused, the RPC call is answered. */
struct lh_store_call *lh_store_call_create(struct lh_rpc_call *call, const char *ns, const char *key);
void lh_store_call_destroy(struct lh_store_call *store_call);
/* Checks the store's return: on a refusal it answers the RPC call and destroys the store call. */
void lh_store_call_check(struct lh_store_call *store_call, enum lh_status status);
/* Sends it. NULL does nothing: the RPC call is answered. */
void lh_store_call_administer(struct lh_store_call *store_call, const struct lh_admin_request *request,
                              lh_rows_cb *on_done);
/* Returns true if the store succeeded and the RPC call still waits for its answer. On an error it fails the RPC
   call, if there still is one. */
bool lh_store_call_is_answered(struct lh_store_call *store_call, enum lh_status status, const struct lh_error *error);
/* Fails the RPC call: nobody holds the scope, or with a token not under that. */
void lh_store_call_fail_not_held(const struct lh_store_call *store_call);
/* Send the reply, or append a part of the reply to `packed`. Both empty the scratch. */
void lh_store_call_reply(const struct lh_store_call *store_call, const ProtobufCMessage *message);
void lh_store_call_append(const struct lh_store_call *store_call, struct lh_buffer *packed,
                          const ProtobufCMessage *part);
void lh_store_call_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason);

#endif
