/* --status-fd: what becomes of the lease, for a program that starts `leasehold run`, as JSON, a line for each. */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cli/arguments.h"
#include "cli/print.h"
#include "cli/run/run_internal.h"

#define STATUS_FD_MAX 1023
#define PATIENCE_MS 100 /* a reader that sleeps does not stop the program */

enum lh_status lh_run_status_take(int *file, const struct lh_args *args, struct lh_error *error)
{
    const char *text = lh_args_value(args, "status-fd");
    int64_t number = -1;

    *file = -1;
    if (text == NULL)
        return LH_OK;
    if (lh_check_number("status-fd", text, 3, STATUS_FD_MAX, &number, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    /* The command does not get it. */
    if (fcntl((int)number, F_SETFD, FD_CLOEXEC) != 0)
        return lh_bounds_refuse(error, "status-fd", "an open descriptor", "status-fd %s is no open descriptor: %s",
                                text, strerror(errno));
    *file = (int)number;
    return LH_OK;
}

void lh_run_status_tell(int file, const char *event, const char *name, const char *value, const char *message)
{
    struct pollfd polled = {.fd = file, .events = POLLOUT};
    char *clean = lh_clean(message), *text, *line;
    json_t *told;

    if (file >= 0 && poll(&polled, 1, PATIENCE_MS) == 1 && (polled.revents & POLLOUT) != 0) {
        told = json_pack("{s:s, s:s, s:s}", "event", event, name, value, "message", clean);
        text = json_dumps(told, JSON_COMPACT);
        line = lh_format("%s\n", text);
        if (write(file, line, strlen(line)) < 0)
            polled.revents = 0; /* the reader is gone: nobody wants to know */
        free(line);
        free(text);
        json_decref(told);
    }
    free(clean);
}
