#include "base/status.h"

#include <stdarg.h>
#include <stdio.h>

static const struct {
    const char *name;
    const char *text;
    int grpc;
} status_table[] = {
#define X(name, grpc, text) [LH_##name] = {#name, text, grpc},
    LH_STATUS_MAP(X) LH_CLIENT_STATUS_MAP(X)
#undef X
};

#define STATUS_COUNT (sizeof(status_table) / sizeof(status_table[0]))

/* A status of leasehold.h without a line in the map would leave a hole. */
#define X(name, grpc, text) +1
_Static_assert(STATUS_COUNT == 0 LH_STATUS_MAP(X) LH_CLIENT_STATUS_MAP(X), "each status has a line in the map");
_Static_assert(LH_WOULD_BLOCK + 1 == STATUS_COUNT, "LH_WOULD_BLOCK is the last");
#undef X

const char *lh_status_name(enum lh_status status)
{
    return (size_t)status < STATUS_COUNT ? status_table[status].name : "INTERNAL";
}

const char *lh_status_text(enum lh_status status)
{
    return (size_t)status < STATUS_COUNT ? status_table[status].text : "internal error";
}

int lh_status_grpc(enum lh_status status)
{
    return (size_t)status < STATUS_COUNT ? status_table[status].grpc : 13;
}

enum lh_status lh_error_set(struct lh_error *error, enum lh_status status, const char *format, ...)
{
    if (error != NULL) {
        va_list arguments;
        error->status = status;
        error->sqlstate[0] = '\0';
        error->field[0] = '\0';
        error->bound[0] = '\0';
        va_start(arguments, format);
        vsnprintf(error->message, sizeof(error->message), format, arguments);
        va_end(arguments);
    }
    return status;
}
