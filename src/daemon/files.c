#include "daemon/files.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

#define BACKLOG 128

/* A socket file that nobody answers on is left over from an earlier life. */
static void remove_dead_socket(const struct lh_address *address)
{
    const char *path = ((const struct sockaddr_un *)&address->socket)->sun_path;
    struct stat found;
    int fd;

    if (address->socket.ss_family != AF_UNIX || lstat(path, &found) != 0 || !S_ISSOCK(found.st_mode))
        return;
    fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    if (connect(fd, (const struct sockaddr *)&address->socket, address->size) != 0 && errno == ECONNREFUSED)
        unlink(path);
    close(fd);
}

enum lh_status lh_listen(const char *address, int *fd, char bound[LH_ADDRESS_TEXT_BYTES], struct lh_error *error)
{
    struct lh_address where;
    char why[160];
    int on = 1;

    if (!lh_address_parse(address, &where, why, sizeof(why)))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "%s: %s", address, why);
    remove_dead_socket(&where);
    *fd = socket(where.socket.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (*fd >= 0 && setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
        bind(*fd, (struct sockaddr *)&where.socket, where.size) == 0 && listen(*fd, BACKLOG) == 0) {
        where.size = sizeof(where.socket);
        getsockname(*fd, (struct sockaddr *)&where.socket, &where.size);
        lh_address_format(&where, bound);
        return LH_OK;
    }
    lh_error_set(error, LH_INTERNAL, "cannot listen on %s: %s", address, strerror(errno));
    if (*fd >= 0)
        close(*fd);
    return LH_INTERNAL;
}

enum lh_status lh_write_lines(const char *path, const char *const *lines, size_t count, struct lh_error *error)
{
    char *fresh = lh_format("%s.%ld", path, (long)getpid());
    FILE *file = fopen(fresh, "we");
    bool is_written = file != NULL;

    for (size_t i = 0; is_written && i < count; i++)
        is_written = fprintf(file, "%s\n", lines[i]) >= 0;
    if (file != NULL && fclose(file) != 0)
        is_written = false;
    if (!is_written || rename(fresh, path) != 0) {
        lh_error_set(error, LH_INTERNAL, "%s cannot be written: %s", path, strerror(errno));
        unlink(fresh);
        free(fresh);
        return LH_INTERNAL;
    }
    free(fresh);
    return LH_OK;
}

void lh_raise_file_limit(size_t wanted)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return;
    limit.rlim_cur = limit.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &limit) != 0)
        lh_warn("the limit of open files cannot be raised: %s", strerror(errno));
    if (limit.rlim_cur < wanted)
        lh_warn("%llu files may be open, fewer than max_connections needs: raise the limit (systemd: LimitNOFILE)",
                (unsigned long long)limit.rlim_cur);
}
