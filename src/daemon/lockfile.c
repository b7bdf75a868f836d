#include "daemon/lockfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum lh_status lh_lockfile_take(const char *path, int *fd, struct lh_error *error)
{
    /* Not through a link: root may be writing into a directory of another user. */
    int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
    struct stat found;
    char text[32] = "";

    if (file < 0)
        return lh_error_set(error, LH_INTERNAL, "%s cannot be opened: %s", path, strerror(errno));
    if (fstat(file, &found) != 0 || !S_ISREG(found.st_mode) || found.st_nlink != 1) {
        close(file);
        return lh_error_set(error, LH_INTERNAL, "%s is not a plain file", path);
    }
    if (flock(file, LOCK_EX | LOCK_NB) != 0) {
        long pid = read(file, text, sizeof(text) - 1) > 0 ? strtol(text, NULL, 10) : 0;
        close(file);
        return lh_error_set(error, LH_INTERNAL, "another leaseholdd, process %ld, has %s", pid, path);
    }
    snprintf(text, sizeof(text), "%ld\n", (long)getpid());
    if (ftruncate(file, 0) != 0 || pwrite(file, text, strlen(text), 0) != (ssize_t)strlen(text)) {
        close(file);
        return lh_error_set(error, LH_INTERNAL, "%s cannot be written: %s", path, strerror(errno));
    }
    *fd = file;
    return LH_OK;
}
