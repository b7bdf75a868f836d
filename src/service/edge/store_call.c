#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "service/call_internal.h"
#include "service/words_internal.h"

struct lh_store_call *lh_store_call_create(struct lh_rpc_call *call, const char *ns, const char *key)
{
    size_t ns_size = ns == NULL ? 0 : strlen(ns) + 1, key_size = key == NULL ? 0 : strlen(key) + 1;
    struct lh_store_call *store_call;
    struct lh_usage *caller;
    char *strings;

    if (!lh_usage_take(call, LH_USAGE_CONTROL, 1, &caller))
        return NULL;
    store_call = lh_alloc(sizeof(*store_call) + ns_size + key_size);
    strings = (char *)(store_call + 1);
    memset(store_call, 0, sizeof(*store_call));
    store_call->caller = caller;
    store_call->call = call;
    store_call->service = lh_call_service(call);
    if (ns != NULL)
        store_call->ns = memcpy(strings, ns, ns_size);
    if (key != NULL)
        store_call->key = memcpy(strings + ns_size, key, key_size);
    lh_rpc_call_set_data(call, store_call);
    return store_call;
}

void lh_store_call_destroy(struct lh_store_call *store_call)
{
    if (store_call->call != NULL)
        lh_rpc_call_set_data(store_call->call, NULL);
    lh_usage_give(store_call->caller, LH_USAGE_CONTROL, 1);
    free(store_call);
}

void lh_store_call_check(struct lh_store_call *store_call, enum lh_status status)
{
    if (status == LH_OK)
        return;
    lh_call_fail(store_call->call, status, NULL, store_call->ns, store_call->key);
    lh_store_call_destroy(store_call);
}

void lh_store_call_administer(struct lh_store_call *store_call, const struct lh_admin_request *request,
                              lh_rows_cb *on_done)
{
    struct lh_store *store;

    if (store_call == NULL)
        return;
    store = store_call->service->store;
    lh_store_call_check(store_call, store->ops->administer(store, request, on_done, store_call));
}

bool lh_store_call_is_answered(struct lh_store_call *store_call, enum lh_status status, const struct lh_error *error)
{
    if (store_call->call == NULL)
        return false;
    if (status == LH_OK)
        return true;
    lh_call_fail(store_call->call, status, error, store_call->ns, store_call->key);
    return false;
}

void lh_store_call_fail_not_held(const struct lh_store_call *store_call)
{
    const char *name = LH_SCOPE_NAME(store_call->ns, store_call->key);
    struct lh_failure failure = {.status = LH_NOT_HELD, .ns = store_call->ns, .key = store_call->key};
    char *words;

    if (store_call->token != 0)
        words = lh_format("lease %s is not held with token %lld", name, (long long)store_call->token);
    else
        words = lh_format("lease %s is not held", name);
    failure.message = words;
    lh_failure_send(store_call->call, &failure);
    free(words);
}

void lh_store_call_reply(const struct lh_store_call *store_call, const ProtobufCMessage *message)
{
    lh_call_reply(store_call->call, message, &store_call->service->scratch);
    lh_arena_reset(&store_call->service->scratch);
}

void lh_store_call_append(const struct lh_store_call *store_call, struct lh_buffer *packed,
                          const ProtobufCMessage *part)
{
    const void *data;
    size_t size = lh_message_pack(part, &store_call->service->scratch, &data);

    lh_buffer_append(packed, data, size);
    lh_arena_reset(&store_call->service->scratch);
}

void lh_store_call_on_end(struct lh_rpc_call *call, enum lh_rpc_end reason)
{
    struct lh_store_call *store_call = lh_rpc_call_data(call);
    if (store_call != NULL)
        store_call->call = NULL;
}
