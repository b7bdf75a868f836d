#include "cli/message.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cli/bounds.h"

/* What a server may say: sums and differences of three such times do not overflow. */
#define SECONDS_MAX (INT64_MAX / LH_US_PER_S / 4)

static int64_t to_us(int64_t seconds, int32_t nanos)
{
    if (seconds > SECONDS_MAX)
        seconds = SECONDS_MAX;
    if (seconds < -SECONDS_MAX)
        seconds = -SECONDS_MAX;
    return seconds * LH_US_PER_S + nanos / 1000;
}

int64_t lh_duration_us(const Google__Protobuf__Duration *duration)
{
    return to_us(duration->seconds, duration->nanos);
}

int64_t lh_timestamp_us(const Google__Protobuf__Timestamp *timestamp)
{
    return to_us(timestamp->seconds, timestamp->nanos);
}

Google__Protobuf__Duration lh_duration_message(int64_t duration_us)
{
    Google__Protobuf__Duration message = GOOGLE__PROTOBUF__DURATION__INIT;
    message.seconds = duration_us / LH_US_PER_S;
    message.nanos = (int32_t)(duration_us % LH_US_PER_S) * 1000;
    return message;
}

void lh_segments_split(struct lh_segments *segments, const char *ns)
{
    char *rest = NULL;

    *segments = (struct lh_segments){.text = lh_strdup(ns)};
    for (char *segment = strtok_r(segments->text, ".", &rest);
         segment != NULL && segments->count < LH_NAMESPACE_MAX_SEGMENTS; segment = strtok_r(NULL, ".", &rest))
        segments->list[segments->count++] = segment;
    leasehold__v1__namespace__init(&segments->message);
    segments->message.segments = segments->list;
    segments->message.n_segments = segments->count;
}

void lh_segments_finish(struct lh_segments *segments)
{
    free(segments->text);
    *segments = (struct lh_segments){0};
}

bool lh_scope_message_init(struct lh_scope_message *scope, const char *ns, const char *key, struct lh_error *error)
{
    if (lh_check_namespace(ns, error) != LH_OK || lh_bounds_key(key, error) != LH_OK)
        return false;
    lh_segments_split(&scope->segments, ns);
    leasehold__v1__scope__init(&scope->message);
    scope->message.namespace_ = scope->segments.list;
    scope->message.n_namespace_ = scope->segments.count;
    scope->message.key = (char *)(uintptr_t)key; /* packing only reads it */
    return true;
}

void lh_scope_message_finish(struct lh_scope_message *scope)
{
    lh_segments_finish(&scope->segments);
}
