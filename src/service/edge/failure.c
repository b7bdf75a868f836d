#include "service/edge/failure.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/text.h"
#include "base/uuid.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "rpc/server.h"
#include "service/words_internal.h"

#define DETAILS_MAX 4
#define METADATA_MAX 6

/* How long a client should leave us alone; RetryInfo is sent where this is not negative. */
static int64_t retry_delay_us(enum lh_status status)
{
    switch (status) {
    case LH_BLOCKING_TIMEOUT:
        return 0;
    case LH_SHUTTING_DOWN:
        return 500 * LH_US_PER_MS;
    case LH_DATABASE_UNAVAILABLE:
        return LH_US_PER_S;
    default:
        return -1;
    }
}

const char *lh_failure_message(const struct lh_failure *failure, struct lh_arena *arena)
{
    const char *message = failure->message != NULL ? failure->message : lh_status_text(failure->status);
    size_t size = strlen(message), encoded = 0, kept = 0;

    if (!lh_utf8_is_valid(message, size))
        return lh_status_text(failure->status);
    for (; kept < size; kept++) {
        encoded += message[kept] >= 0x20 && message[kept] <= 0x7e && message[kept] != '%' ? 1 : 3;
        if (encoded > LH_FAILURE_MESSAGE_MAX_BYTES)
            break;
    }
    if (kept == size)
        return message;
    return lh_arena_format(arena, "%.*s", (int)lh_utf8_cut(message, size, kept), message);
}

static Google__Protobuf__Any *pack_any(const char *type_url, const ProtobufCMessage *message, struct lh_arena *arena)
{
    Google__Protobuf__Any *any = lh_message_new(&google__protobuf__any__descriptor, arena);
    const void *data;

    any->type_url = (char *)type_url;
    any->value.len = lh_message_pack(message, arena, &data);
    any->value.data = (uint8_t *)data;
    return any;
}

static void add_metadata(Google__Rpc__ErrorInfo *info, const char *name, const char *value, struct lh_arena *arena)
{
    Google__Rpc__ErrorInfo__MetadataEntry *entry;
    char name_text[LH_CONTENTION_NAME_BYTES];

    if (value == NULL || value[0] == '\0')
        return;
    entry = lh_message_new(&google__rpc__error_info__metadata_entry__descriptor, arena);
    entry->key = (char *)name;
    if (strcmp(name, "namespace") == 0 || strcmp(name, "principal") == 0)
        entry->value =
            lh_arena_format(arena, "%.*s", (int)lh_utf8_cut(value, strlen(value), LH_NAMESPACE_MAX_BYTES), value);
    else
        entry->value = lh_arena_strdup(arena, lh_contention_name(value, name_text));
    info->metadata[info->n_metadata++] = entry;
}

static Google__Protobuf__Any *error_info(const struct lh_failure *failure, struct lh_arena *arena)
{
    const struct lh_violations *violations = failure->violations;
    bool has_violation = violations != NULL && violations->count > 0;
    Google__Rpc__ErrorInfo__MetadataEntry *entries[METADATA_MAX];
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;

    info.reason = (char *)lh_status_name(failure->status);
    info.domain = (char *)LH_FAILURE_DOMAIN;
    info.metadata = entries;
    add_metadata(&info, "namespace", failure->ns, arena);
    add_metadata(&info, "key", failure->key, arena);
    add_metadata(&info, "field", has_violation ? violations->list[0].field : failure->field, arena);
    add_metadata(&info, "limit", has_violation ? violations->list[0].limit : failure->limit, arena);
    add_metadata(&info, "principal", failure->principal, arena);
    add_metadata(&info, "right", failure->right, arena);
    return pack_any("type.googleapis.com/google.rpc.ErrorInfo", &info.base, arena);
}

static Google__Protobuf__Any *bad_request(const struct lh_violations *violations, struct lh_arena *arena)
{
    Google__Rpc__BadRequest__FieldViolation items[LH_VIOLATIONS_MAX], *pointers[LH_VIOLATIONS_MAX];
    Google__Rpc__BadRequest request = GOOGLE__RPC__BAD_REQUEST__INIT;

    for (size_t i = 0; i < violations->count; i++) {
        google__rpc__bad_request__field_violation__init(&items[i]);
        items[i].field = (char *)violations->list[i].field;
        items[i].description = (char *)violations->list[i].limit;
        pointers[i] = &items[i];
    }
    request.field_violations = pointers;
    request.n_field_violations = violations->count;
    return pack_any("type.googleapis.com/google.rpc.BadRequest", &request.base, arena);
}

static Google__Protobuf__Any *retry_info(int64_t delay_us, struct lh_arena *arena)
{
    Google__Rpc__RetryInfo retry = GOOGLE__RPC__RETRY_INFO__INIT;

    retry.retry_delay = lh_message_duration(delay_us, arena);
    return pack_any("type.googleapis.com/google.rpc.RetryInfo", &retry.base, arena);
}

void lh_failure_encode(const struct lh_failure *failure, struct lh_buffer *details)
{
    int64_t delay_us = retry_delay_us(failure->status);
    Google__Protobuf__Any *list[DETAILS_MAX];
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    struct lh_arena arena = {0};
    const void *data;
    size_t size;

    status.code = lh_status_grpc(failure->status);
    status.message = (char *)lh_failure_message(failure, &arena);
    status.details = list;
    list[status.n_details++] = error_info(failure, &arena);
    if (failure->contention != NULL) {
        Leasehold__V1__Contention *contention = lh_message_contention(failure->contention, &arena);
        list[status.n_details++] = pack_any("type.googleapis.com/leasehold.v1.Contention", &contention->base, &arena);
    }
    if (failure->violations != NULL && failure->violations->count > 0)
        list[status.n_details++] = bad_request(failure->violations, &arena);
    if (delay_us >= 0)
        list[status.n_details++] = retry_info(delay_us, &arena);
    size = lh_message_pack(&status.base, &arena, &data);
    lh_buffer_append(details, data, size);
    lh_arena_finish(&arena);
}

void lh_failure_send(struct lh_rpc_call *call, const struct lh_failure *failure)
{
    struct lh_buffer details = {0};
    struct lh_arena arena = {0};

    lh_failure_encode(failure, &details);
    lh_rpc_call_set_reason(call, failure->status);
    lh_rpc_call_finish(call, (enum lh_grpc_code)lh_status_grpc(failure->status), lh_failure_message(failure, &arena),
                       details.data, details.size);
    lh_arena_finish(&arena);
    lh_buffer_finish(&details);
}

void lh_failure_send_internal(struct lh_rpc_call *call, const char *words)
{
    struct lh_uuid random = lh_uuid_random();
    unsigned number = (unsigned)random.bytes[0] << 16 | (unsigned)random.bytes[1] << 8 | random.bytes[2];
    struct lh_failure failure = {.status = LH_INTERNAL};
    char *message = lh_format("internal error %u: the server's log has the words to this number", number);

    lh_err("internal error number=%u method=%s: %s", number, lh_rpc_call_method(call)->path,
           words == NULL || words[0] == '\0' ? "no words" : words);
    failure.message = message;
    lh_failure_send(call, &failure);
    free(message);
}

void lh_failure_encode_transport(void *arg, enum lh_status status, const char *message, struct lh_buffer *details)
{
    struct lh_failure failure = {.status = status, .message = message};
    lh_failure_encode(&failure, details);
}
