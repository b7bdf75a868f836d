#include "client/reply.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"

/* Longer ones are no advice. */
#define RETRY_AFTER_MAX_S 3600

static bool reason_from_name(const char *name, enum lh_status *reason)
{
#define X(id, grpc, text)                                                                                              \
    if (strcmp(name, #id) == 0) {                                                                                      \
        *reason = LH_##id;                                                                                             \
        return true;                                                                                                   \
    }
    LH_STATUS_MAP(X)
#undef X
    return false;
}

static void replace(char **text, const char *value)
{
    free(*text);
    *text = value[0] != '\0' ? lh_strdup(value) : NULL;
}

static void take_error_info(struct lh_reply *reply, const Google__Rpc__ErrorInfo *info)
{
    if (strcmp(info->domain, "leasehold") != 0)
        return;
    reply->has_reason = reason_from_name(info->reason, &reply->reason) && reply->reason != LH_OK;
    for (size_t i = 0; i < info->n_metadata; i++) {
        const Google__Rpc__ErrorInfo__MetadataEntry *entry = info->metadata[i];
        if (strcmp(entry->key, "field") == 0 && reply->field == NULL)
            replace(&reply->field, entry->value);
        else if (strcmp(entry->key, "limit") == 0 && reply->limit == NULL)
            replace(&reply->limit, entry->value);
    }
}

static bool is_type(const Google__Protobuf__Any *any, const char *name)
{
    const char *slash = strrchr(any->type_url, '/');
    return strcmp(slash != NULL ? slash + 1 : any->type_url, name) == 0;
}

/* A detail that cannot be read is as good as none: code and message still hold. */
static void take_detail(struct lh_reply *reply, const Google__Protobuf__Any *any)
{
    size_t size = any->value.len;
    const uint8_t *data = any->value.data;

    if (is_type(any, "google.rpc.ErrorInfo")) {
        Google__Rpc__ErrorInfo *info = google__rpc__error_info__unpack(NULL, size, data);
        if (info != NULL)
            take_error_info(reply, info);
        google__rpc__error_info__free_unpacked(info, NULL);
    } else if (is_type(any, "google.rpc.RetryInfo")) {
        Google__Rpc__RetryInfo *info = google__rpc__retry_info__unpack(NULL, size, data);
        const Google__Protobuf__Duration *delay = info == NULL ? NULL : info->retry_delay;
        if (delay != NULL && delay->seconds >= 0 && delay->seconds < RETRY_AFTER_MAX_S && delay->nanos >= 0)
            reply->retry_after_us = delay->seconds * LH_US_PER_S + delay->nanos / 1000;
        google__rpc__retry_info__free_unpacked(info, NULL);
    } else if (is_type(any, "google.rpc.BadRequest")) {
        Google__Rpc__BadRequest *bad = google__rpc__bad_request__unpack(NULL, size, data);
        if (bad != NULL && bad->n_field_violations > 0) {
            replace(&reply->field, bad->field_violations[0]->field);
            replace(&reply->limit, bad->field_violations[0]->description);
        }
        google__rpc__bad_request__free_unpacked(bad, NULL);
    } else if (is_type(any, "leasehold.v1.Contention") && reply->contention == NULL) {
        reply->contention = leasehold__v1__contention__unpack(NULL, size, data);
    }
}

static void fill_error(struct lh_reply *reply, const struct lh_rpc_result *result)
{
    Google__Rpc__Status *status = NULL;

    reply->words = lh_strdup(result->message);
    if (result->details != NULL)
        status = google__rpc__status__unpack(NULL, result->details_size, result->details);
    for (size_t i = 0; status != NULL && i < status->n_details; i++)
        take_detail(reply, status->details[i]);
    google__rpc__status__free_unpacked(status, NULL);
}

void lh_reply_fill(struct lh_reply *reply, const struct lh_rpc_result *result, const ProtobufCMessageDescriptor *output)
{
    *reply = (struct lh_reply){.code = result->code, .delivery = result->delivery};
    if (result->code != LH_GRPC_OK) {
        fill_error(reply, result);
        return;
    }
    reply->message = protobuf_c_message_unpack(output, NULL, result->reply_size, result->reply);
    if (reply->message == NULL) {
        reply->code = LH_GRPC_INTERNAL;
        reply->delivery = LH_RPC_IN_FLIGHT; /* the server may have done it */
        reply->words = lh_format("the server's answer is no %s", output->name);
    }
}

void lh_reply_finish(struct lh_reply *reply)
{
    if (reply->message != NULL)
        protobuf_c_message_free_unpacked(reply->message, NULL);
    leasehold__v1__contention__free_unpacked(reply->contention, NULL);
    free(reply->words);
    free(reply->field);
    free(reply->limit);
    *reply = (struct lh_reply){0};
}
