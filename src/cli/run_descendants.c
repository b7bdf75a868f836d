/*
 * One walk over /proc reads the parent of every process; those whose line of parents leads to us are signalled. The
 * walk is no snapshot: a process whose parent ends meanwhile may be missed, and is found by the next one as our child.
 */
#include "cli/run_descendants.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"

#define STAT_BYTES 1024
#define ROUND_FIRST_MS 5 /* between two rounds of killing; doubling */
#define ROUND_LAST_MS 500

struct process {
    pid_t pid;
    pid_t parent;
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
    return rest != NULL &&
           sscanf(rest, ") %*c %d %*d %*d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d %*d %" SCNu64,
                  &process->parent, &process->started) == 2;
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

/* Its number may have gone to a stranger since the walk: hold it, look again, then signal what is held. */
static bool signal_exactly(const struct process *process, int number)
{
    struct process now;
    bool is_signalled;
    int held = (int)syscall(SYS_pidfd_open, process->pid, 0);

    if (held < 0 && errno != ENOSYS && errno != EPERM)
        return false;
    if (!read_process(process->pid, &now) || now.started != process->started) {
        is_signalled = false;
    } else if (held < 0) {
        is_signalled = kill(process->pid, number) == 0;
    } else {
        is_signalled = syscall(SYS_pidfd_send_signal, held, number, NULL, 0) == 0;
        if (is_signalled && number == SIGTERM)
            syscall(SYS_pidfd_send_signal, held, SIGCONT, NULL, 0);
    }
    if (held >= 0)
        close(held);
    return is_signalled;
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

size_t lh_run_signal_descendants(int number)
{
    struct processes all = {0};
    size_t signalled = 0;

    if (list_processes(&all)) {
        pid_t self = getpid();
        for (size_t i = 0; i < all.count; i++)
            if (all.list[i].pid != self && descends_from(&all, &all.list[i], self))
                signalled += signal_exactly(&all.list[i], number);
    }
    free(all.list);
    return signalled;
}

void lh_run_kill_descendants(void)
{
    for (int round_ms = ROUND_FIRST_MS;; round_ms = round_ms < ROUND_LAST_MS ? round_ms * 2 : round_ms) {
        pid_t ended;

        lh_run_signal_descendants(SIGKILL);
        do
            ended = waitpid(-1, NULL, WNOHANG);
        while (ended > 0);
        if (ended < 0 && errno == ECHILD)
            return;
        poll(NULL, 0, round_ms);
    }
}
