#include "cli/run_cgroup.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

/* "36 35 98:0 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw" (proc(5)): where, or false. */
static bool find_mount(char *mount, size_t size)
{
    FILE *file = fopen("/proc/self/mountinfo", "re");
    char line[PATH_MAX + 512], point[PATH_MAX];
    bool is_found = false;

    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL)
        if (strstr(line, " - cgroup2 ") != NULL && sscanf(line, "%*s %*s %*s %*s %4095s", point) == 1)
            is_found = snprintf(mount, size, "%s", point) < (int)size;
    if (file != NULL)
        fclose(file);
    return is_found;
}

/* The line of version 2 is "0::PATH"; the path is that below the mount. */
static bool find_own(const char *process, char *path, size_t size)
{
    char name[64], line[PATH_MAX];
    bool is_found = false;
    FILE *file;

    snprintf(name, sizeof(name), "/proc/%s/cgroup", process);
    file = fopen(name, "re");
    while (file != NULL && !is_found && fgets(line, sizeof(line), file) != NULL)
        if (strncmp(line, "0::/", 4) == 0) {
            line[strcspn(line, "\n")] = '\0';
            is_found = snprintf(path, size, "%s", line + 3) < (int)size;
        }
    if (file != NULL)
        fclose(file);
    return is_found;
}

static bool has_mark(const char *directory)
{
    char value[2];

    return (getxattr(directory, "user.delegate", value, sizeof(value)) == 1 && value[0] == '1') ||
           (getxattr(directory, "trusted.delegate", value, sizeof(value)) == 1 && value[0] == '1');
}

/* `mount` is the part of `directory` that is no cgroup's. */
static bool is_delegated(const char *mount, const char *directory)
{
    char above[PATH_MAX];

    if (geteuid() != 0)
        return true; /* whose it is not cannot write to it */
    snprintf(above, sizeof(above), "%s", directory);
    while (strlen(above) > strlen(mount)) {
        if (has_mark(above))
            return true;
        *strrchr(above, '/') = '\0';
    }
    return false;
}

static bool write_file(const struct lh_run_cgroup *cgroup, const char *name, const char *value)
{
    char path[PATH_MAX + 32];
    bool is_written;
    int file;

    snprintf(path, sizeof(path), "%s/%s", cgroup->directory, name);
    file = open(path, O_WRONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    is_written = write(file, value, strlen(value)) == (ssize_t)strlen(value);
    close(file);
    return is_written;
}

/* A process moves only where it may write to the list of both, and of the one above both. */
static bool is_usable(const struct lh_run_cgroup *cgroup, const char *own)
{
    char list[PATH_MAX + 32], killer[PATH_MAX + 32];

    snprintf(list, sizeof(list), "%s/cgroup.procs", own);
    snprintf(killer, sizeof(killer), "%s/cgroup.kill", cgroup->directory);
    return access(list, W_OK) == 0 && access(killer, W_OK) == 0;
}

void lh_run_cgroup_make(struct lh_run_cgroup *cgroup)
{
    char mount[PATH_MAX / 4], path[PATH_MAX / 2], own[PATH_MAX - 64];

    *cgroup = (struct lh_run_cgroup){0};
    if (!find_mount(mount, sizeof(mount)) || !find_own("self", path, sizeof(path)))
        return;
    snprintf(own, sizeof(own), "%s%s", mount, strcmp(path, "/") == 0 ? "" : path);
    if (!is_delegated(mount, own))
        return;
    snprintf(cgroup->directory, sizeof(cgroup->directory), "%s/leasehold-%d", own, (int)getpid());
    if (mkdir(cgroup->directory, 0755) != 0) {
        cgroup->directory[0] = '\0';
    } else if (!is_usable(cgroup, own)) {
        lh_run_cgroup_remove(cgroup);
        cgroup->directory[0] = '\0';
    }
}

void lh_run_cgroup_enter(const struct lh_run_cgroup *cgroup)
{
    if (cgroup->directory[0] != '\0')
        write_file(cgroup, "cgroup.procs", "0");
}

bool lh_run_cgroup_has(const struct lh_run_cgroup *cgroup, pid_t pid)
{
    const char *name = strrchr(cgroup->directory, '/');
    char process[16], path[PATH_MAX];
    const char *at;

    snprintf(process, sizeof(process), "%d", (int)pid);
    if (name == NULL || !find_own(process, path, sizeof(path)) || (at = strstr(path, name)) == NULL)
        return false;
    return at[strlen(name)] == '\0' || at[strlen(name)] == '/';
}

void lh_run_cgroup_kill(const struct lh_run_cgroup *cgroup)
{
    if (cgroup->directory[0] != '\0')
        write_file(cgroup, "cgroup.kill", "1");
}

void lh_run_cgroup_remove(const struct lh_run_cgroup *cgroup)
{
    if (cgroup->directory[0] != '\0')
        rmdir(cgroup->directory);
}
