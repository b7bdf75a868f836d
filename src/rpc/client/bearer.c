#include "rpc/client/client_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#define LOOK_EVERY_US LH_US_PER_S

static void forget(char **secret)
{
    if (*secret != NULL)
        explicit_bzero(*secret, strlen(*secret));
    free(*secret);
    *secret = NULL;
}

void lh_rpc_bearer_finish(struct rpc_bearer *bearer)
{
    forget(&bearer->header);
    free(bearer->file);
    bearer->file = NULL;
}

static bool is_same(const struct stat *one, const struct stat *other)
{
    return one->st_dev == other->st_dev && one->st_ino == other->st_ino && one->st_size == other->st_size &&
           one->st_mtim.tv_sec == other->st_mtim.tv_sec && one->st_mtim.tv_nsec == other->st_mtim.tv_nsec &&
           one->st_ctim.tv_sec == other->st_ctim.tv_sec && one->st_ctim.tv_nsec == other->st_ctim.tv_nsec;
}

/* -1: `error` says why. A pipe would block, and could not be read again. */
static int open_file(struct rpc_bearer *bearer, struct lh_error *error)
{
    int fd = open(bearer->file, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);

    if (fd < 0 || fstat(fd, &bearer->seen) != 0) {
        lh_error_set(error, LH_UNAUTHENTICATED, "the token file %s cannot be opened: %s", bearer->file,
                     strerror(errno));
    } else if (!S_ISREG(bearer->seen.st_mode)) {
        lh_error_set(error, LH_UNAUTHENTICATED, "the token file %s is not a regular file", bearer->file);
    } else {
        return fd;
    }
    if (fd >= 0)
        close(fd);
    return -1;
}

/* What a header can carry: visible ASCII. White space behind it, such as the end of the line, does not count. */
static bool is_token(char *text)
{
    size_t size = strlen(text);

    while (size > 0 && strchr(" \t\r\n", text[size - 1]) != NULL)
        text[--size] = '\0';
    for (size_t i = 0; i < size; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return size > 0;
}

bool lh_rpc_bearer_read(struct rpc_bearer *bearer, struct lh_error *error)
{
    char text[RPC_TOKEN_MAX_BYTES + 2] = {0};
    int fd = open_file(bearer, error);
    ssize_t size;
    bool is_usable;

    bearer->looked_us = lh_clock_us();
    if (fd < 0)
        return false;
    size = read(fd, text, sizeof(text) - 1);
    close(fd);
    is_usable = size > 0 && (size_t)size == strlen(text) && (size_t)size <= RPC_TOKEN_MAX_BYTES && is_token(text);
    if (is_usable) {
        forget(&bearer->header);
        bearer->header = lh_format("Bearer %s", text);
    } else {
        lh_error_set(error, LH_UNAUTHENTICATED,
                     "the token file %s holds no token: one line of visible ASCII is expected, 1 to %d bytes",
                     bearer->file, RPC_TOKEN_MAX_BYTES);
    }
    explicit_bzero(text, sizeof(text));
    return is_usable;
}

const char *lh_rpc_bearer_header(struct rpc_bearer *bearer, int64_t now_us)
{
    struct stat now;
    struct lh_error error;

    if (bearer->file == NULL || now_us - bearer->looked_us < LOOK_EVERY_US)
        return bearer->header;
    bearer->looked_us = now_us;
    if (stat(bearer->file, &now) == 0 && is_same(&now, &bearer->seen))
        return bearer->header;
    if (!lh_rpc_bearer_read(bearer, &error))
        lh_warn("%s; the token that was read before stays in use", error.message);
    return bearer->header;
}
