#include "daemon/files.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

static bool write_whole(const char *path, int flags, const struct lh_buffer *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | flags, 0644); /* a pipe must not stop us */
    bool is_written = fd >= 0 && write(fd, text->data, text->size) == (ssize_t)text->size;

    return fd >= 0 && close(fd) == 0 && is_written;
}

enum lh_status lh_write_lines(const char *path, const char *const *lines, size_t count, struct lh_error *error)
{
    char *fresh = lh_format("%s.%ld", path, (long)getpid());
    struct lh_buffer text = {0};
    bool is_written;

    for (size_t i = 0; i < count; i++) {
        lh_buffer_append(&text, lines[i], strlen(lines[i]));
        lh_buffer_append(&text, "\n", 1);
    }
    is_written = write_whole(fresh, O_CREAT | O_TRUNC, &text) && rename(fresh, path) == 0;
    if (!is_written && errno == EACCES)
        is_written = write_whole(path, O_TRUNC, &text);
    if (!is_written) {
        lh_error_set(error, LH_INTERNAL, "%s cannot be written: %s", path, strerror(errno));
        unlink(fresh);
    }
    lh_buffer_finish(&text);
    free(fresh);
    return is_written ? LH_OK : LH_INTERNAL;
}

enum lh_status lh_make_file(const char *path, uid_t uid, gid_t gid, struct lh_error *error)
{
    int fd = -1;

    /* Made anew: what is there may be a link of somebody's. */
    if ((unlink(path) != 0 && errno != ENOENT) ||
        (fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644)) < 0 || fchown(fd, uid, gid) != 0)
        lh_error_set(error, LH_INTERNAL, "%s cannot be made: %s", path, strerror(errno));
    if (fd < 0)
        return LH_INTERNAL;
    close(fd);
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
