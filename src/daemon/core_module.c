#include "daemon/core_module.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "daemon/programs.h"

/* BUILD/src/daemon/leaseholdd -> BUILD/src/extension/leasehold_core-15.so */
static char *built_module(int version)
{
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    char *slash;

    if (size < 0)
        return NULL;
    program[size] = '\0';
    slash = strrchr(program, '/');
    return lh_format("%.*s/../extension/leasehold_core-%d.so", (int)(slash - program), program, version);
}

static bool copy(int from, int to)
{
    struct stat found;
    off_t left;

    if (fstat(from, &found) != 0)
        return false;
    for (left = found.st_size; left > 0;) {
        ssize_t sent = sendfile(to, from, NULL, (size_t)left);
        if (sent <= 0)
            return false;
        left -= sent;
    }
    return true;
}

/* Beside, then renamed: a server may have the copy of before in use. */
static bool place(int from, const char *path)
{
    char *fresh = lh_format("%s.new", path);
    bool is_placed;
    int to;

    unlink(fresh);
    to = open(fresh, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0755);
    is_placed = to >= 0 && fchmod(to, 0755) == 0 && copy(from, to);
    if (to >= 0 && close(to) != 0)
        is_placed = false;
    is_placed = is_placed && rename(fresh, path) == 0;
    if (!is_placed) {
        lh_info("the extension leasehold_core is not used: %s: %s", path, strerror(errno));
        unlink(fresh);
    }
    free(fresh);
    return is_placed;
}

char *lh_core_module_place(const char *directory, const char *programs)
{
    char *module = built_module(lh_programs_version(programs));
    char *path = lh_format("%s/leasehold_core.so", directory);
    int from = module == NULL ? -1 : open(module, O_RDONLY | O_CLOEXEC);

    if (from < 0 || !place(from, path)) {
        free(path);
        path = NULL;
    }
    if (from >= 0)
        close(from);
    free(module);
    return path;
}
