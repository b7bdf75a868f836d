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

/* The first that is there, or -1: of BUILD/src/daemon/leaseholdd, and of an installed PREFIX/bin/leaseholdd. */
static int open_module(int version)
{
    static const char *const places[] = {"../extension", "../lib/leasehold"};
    char program[PATH_MAX];
    ssize_t size = readlink("/proc/self/exe", program, sizeof(program) - 1);
    int fd = -1;

    program[size < 0 ? 0 : size] = '\0';
    for (size_t i = 0; fd < 0 && i < sizeof(places) / sizeof(places[0]) && strrchr(program, '/') != NULL; i++) {
        char *module = lh_format("%.*s/%s/leasehold_core-%d.so", (int)(strrchr(program, '/') - program), program,
                                 places[i], version);
        fd = open(module, O_RDONLY | O_CLOEXEC);
        free(module);
    }
    return fd;
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
    char *path = lh_format("%s/leasehold_core.so", directory);
    int from = open_module(lh_programs_version(programs));

    if (from < 0 || !place(from, path)) {
        free(path);
        path = NULL;
    }
    if (from >= 0)
        close(from);
    return path;
}
