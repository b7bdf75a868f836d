/*
 * One walk over /proc reads the parent of every process; those whose line of parents leads to us are signalled. The
 * walk is no snapshot: a process whose parent ends meanwhile may be missed, and is found by the next one as our child.
 */
#include "cli/run/supervisor_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "base/memory.h"

#define STAT_BYTES 1024
#define ROUND_FIRST_MS 5 /* between two rounds of killing; doubling */
#define ROUND_LAST_MS 500

struct process {
    pid_t pid;
    pid_t parent;
    pid_t session;
    char state;
    char name[17];
    uint64_t started; /* tells a process from a later one of the same number */
};

struct processes {
    struct process *list; /* ordered by number */
    size_t count;
    size_t capacity;
};

/* "12 (any) thing) S 11 ...": the name may have anything in it, so what follows is sought from behind. */
static bool read_process(pid_t pid, struct process *process)
{
    char path[32], text[STAT_BYTES];
    ssize_t size;
    char *rest;
    int file;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return false;
    size = read(file, text, sizeof(text) - 1);
    close(file);
    if (size <= 0)
        return false;
    text[size] = '\0';
    rest = strrchr(text, ')');
    process->pid = pid;
    if (rest == NULL || strchr(text, '(') == NULL)
        return false;
    *rest++ = '\0';
    snprintf(process->name, sizeof(process->name), "%.16s", strchr(text, '(') + 1);
    for (char *at = process->name; *at != '\0'; at++)
        if ((unsigned char)*at < ' ' || *at == '\x7f')
            *at = '?'; /* it may be printed on a terminal */
    return sscanf(rest, " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
                  &process->state, &process->parent, &process->session, &process->started) == 4;
}

static int compare(const void *a, const void *b)
{
    const struct process *one = a, *other = b;
    return (one->pid > other->pid) - (one->pid < other->pid);
}

static bool list_processes(struct processes *all)
{
    DIR *directory = opendir("/proc");
    const struct dirent *entry;

    if (directory == NULL)
        return false;
    while ((entry = readdir(directory)) != NULL) {
        pid_t pid = atoi(entry->d_name);
        if (pid <= 0)
            continue;
        if (all->count == all->capacity) {
            all->capacity = all->capacity * 2 + 256;
            all->list = lh_realloc(all->list, all->capacity, sizeof(*all->list));
        }
        if (read_process(pid, &all->list[all->count]))
            all->count++;
    }
    closedir(directory);
    qsort(all->list, all->count, sizeof(*all->list), compare);
    return true;
}

static bool descends_from(const struct processes *all, const struct process *process, pid_t ancestor)
{
    /* No line is longer than that; a changing table could otherwise make a ring. */
    for (size_t steps = 0; process != NULL && steps < all->count; steps++) {
        struct process parent = {.pid = process->parent};
        if (process->parent == ancestor)
            return true;
        process = bsearch(&parent, all->list, all->count, sizeof(parent), compare);
    }
    return false;
}

/* Its number may have gone to a stranger since the walk: hold it, look again, then signal what is held. 0, or an errno. */
static int signal_exactly(const struct process *process, int number)
{
    struct process now;
    int failure = ESRCH;
    int held = (int)syscall(SYS_pidfd_open, process->pid, 0);

    if (held < 0 && errno != ENOSYS && errno != EPERM)
        return errno;
    if (read_process(process->pid, &now) && now.started == process->started) {
        failure = (held < 0 ? kill(process->pid, number) : syscall(SYS_pidfd_send_signal, held, number, NULL, 0)) == 0
                      ? 0
                      : errno;
        if (failure == 0 && number == SIGTERM && held >= 0)
            syscall(SYS_pidfd_send_signal, held, SIGCONT, NULL, 0);
    }
    if (held >= 0)
        close(held);
    return failure;
}

bool lh_run_descends_from(pid_t ancestor)
{
    struct process process = {.parent = getppid()};

    while (process.parent > 0 && process.parent != ancestor)
        if (!read_process(process.parent, &process))
            return false;
    return process.parent == ancestor;
}

bool lh_run_can_see_descendants(void)
{
    struct process self;
    return read_process(getpid(), &self);
}

/* The names of the denied take the place of all others. */
static void add_name(struct lh_run_found *found, const struct process *process, bool is_denied)
{
    size_t used;

    if (is_denied && found->denied == 1)
        found->names[0] = '\0';
    else if (!is_denied && found->denied > 0)
        return;
    used = strlen(found->names);
    if (used + 48 < sizeof(found->names))
        snprintf(found->names + used, sizeof(found->names) - used, "%s%s (%d)", used > 0 ? ", " : "", process->name,
                 (int)process->pid);
    else if (found->names[used - 1] != '.')
        strcpy(found->names + used, ", ...");
}

void lh_run_signal_descendants(int number, pid_t session, const struct lh_run_cgroup *cgroup,
                               struct lh_run_found *found)
{
    struct processes all = {0};
    pid_t self = getpid();

    *found = (struct lh_run_found){0};
    if (!list_processes(&all))
        return;
    for (size_t i = 0; i < all.count; i++) {
        const struct process *process = &all.list[i];
        bool is_denied;
        int failure;
        if (process->pid == self || process->state == 'Z' || (session != 0 && process->session != session) ||
            !descends_from(&all, process, self))
            continue;
        failure = signal_exactly(process, number);
        if (failure != 0 && failure != EPERM)
            continue;
        is_denied = failure == EPERM && !lh_run_cgroup_has(cgroup, process->pid);
        found->count++;
        found->denied += is_denied;
        add_name(found, process, is_denied);
    }
    free(all.list);
}

void lh_run_kill_descendants(const struct lh_run_cgroup *cgroup)
{
    for (int round_ms = ROUND_FIRST_MS;; round_ms = round_ms < ROUND_LAST_MS ? round_ms * 2 : round_ms) {
        struct lh_run_found found;
        pid_t ended;

        lh_run_cgroup_kill(cgroup);
        lh_run_signal_descendants(SIGKILL, 0, cgroup, &found);
        do
            ended = waitpid(-1, NULL, WNOHANG);
        while (ended > 0);
        if (ended < 0 && errno == ECHILD)
            return;
        poll(NULL, 0, round_ms);
    }
}

/* --- cgroup --- */

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
