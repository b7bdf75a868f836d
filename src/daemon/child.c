#include "daemon/child.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "loop/loop.h"

struct lh_children {
    struct lh_signal on_sigchld;
    struct lh_link running;
};

static struct lh_child *find(struct lh_children *children, pid_t pid)
{
    LH_LIST_EACH(struct lh_child, child, &children->running, link) {
        if (child->pid == pid)
            return child;
    }
    return NULL;
}

static void on_sigchld(void *arg, int number)
{
    struct lh_children *children = arg;
    int wait_status;

    /* Strangers too: as process 1 of a container we are the parent of every orphan. */
    for (pid_t pid; (pid = waitpid(-1, &wait_status, WNOHANG)) > 0;) {
        struct lh_child *child = find(children, pid);
        if (child == NULL)
            continue;
        lh_list_remove(&child->link);
        child->pid = 0;
        child->on_exit(child->arg, wait_status);
    }
}

struct lh_children *lh_children_create(struct lh_loop *loop)
{
    struct lh_children *children = lh_alloc_zero(1, sizeof(*children));

    lh_list_init(&children->running);
    lh_signal_init(&children->on_sigchld, loop, SIGCHLD, on_sigchld, children);
    return children;
}

void lh_children_destroy(struct lh_children *children)
{
    if (children == NULL)
        return;
    lh_signal_finish(&children->on_sigchld);
    free(children);
}

static void become_clean(void)
{
    sigset_t none;

    for (int number = 1; number < NSIG; number++)
        signal(number, SIG_DFL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    setsid();
    close_range(3, ~0U, 0);
}

bool lh_child_start(struct lh_children *children, struct lh_child *child, int (*run)(void *arg), void *run_arg,
                    void (*on_exit)(void *arg, int wait_status), void *arg)
{
    sigset_t all, before;
    pid_t pid;

    /* A signal between fork and become_clean must not run the loop's handlers in the child: they share its pipe. */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &before);
    pid = fork();
    if (pid == 0) {
        become_clean();
        _exit(run(run_arg));
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    if (pid < 0)
        return false;
    child->pid = pid;
    child->on_exit = on_exit;
    child->arg = arg;
    lh_list_append(&children->running, &child->link);
    return true;
}

void lh_child_signal(struct lh_child *child, int number)
{
    if (child->pid > 0)
        kill(child->pid, number);
}

void lh_child_kill_all(struct lh_child *child)
{
    /* Its session makes it the leader of a process group; until it has got there, it has started nobody. */
    if (child->pid > 0 && kill(-child->pid, SIGKILL) != 0)
        kill(child->pid, SIGKILL);
}

void lh_child_describe_end(int wait_status, char text[LH_CHILD_END_BYTES])
{
    if (WIFSIGNALED(wait_status))
        snprintf(text, LH_CHILD_END_BYTES, "signal %d (%s)", WTERMSIG(wait_status), strsignal(WTERMSIG(wait_status)));
    else
        snprintf(text, LH_CHILD_END_BYTES, "exit status %d", WEXITSTATUS(wait_status));
}
