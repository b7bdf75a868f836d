#include "daemon/user.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

enum lh_status lh_user_choose(const char *wanted, const char *standard, struct lh_user *user, struct lh_error *error)
{
    const struct passwd *found;

    memset(user, 0, sizeof(*user));
    if (wanted != NULL)
        found = getpwnam(wanted);
    else if (geteuid() != 0)
        return LH_OK;
    else if (standard != NULL)
        found = getpwnam(standard);
    else if ((found = getpwnam("postgres")) == NULL)
        found = getpwnam("nobody");
    if (found == NULL)
        return lh_error_set(error, LH_INTERNAL, "user: there is no user %s on this machine; set user to one that is",
                            wanted != NULL     ? wanted
                            : standard != NULL ? standard
                                               : "nobody");
    if (found->pw_uid == geteuid()) {
        if (found->pw_uid == 0)
            lh_warn("this process stays root: user = root");
        return LH_OK;
    }
    if (geteuid() != 0)
        return lh_error_set(error, LH_INTERNAL,
                            "user = %s: this process was started by another user, and only root can "
                            "become %s",
                            wanted, wanted);
    user->name = lh_strdup(found->pw_name);
    user->home = lh_strdup(found->pw_dir);
    user->uid = found->pw_uid;
    user->gid = found->pw_gid;
    return LH_OK;
}

enum lh_status lh_user_become(const struct lh_user *user, struct lh_error *error)
{
    if (user->name == NULL)
        return LH_OK;
    if (initgroups(user->name, user->gid) != 0 || setresgid(user->gid, user->gid, user->gid) != 0 ||
        setresuid(user->uid, user->uid, user->uid) != 0)
        return lh_error_set(error, LH_INTERNAL, "user: cannot become %s: %s", user->name, strerror(errno));
    /* libpq looks for .pgpass and certificates there, and would fail on those of root. */
    setenv("HOME", user->home, 1);
    setenv("USER", user->name, 1);
    setenv("LOGNAME", user->name, 1);
    lh_info("started by root, goes on as user %s", user->name);
    return LH_OK;
}

void lh_user_finish(struct lh_user *user)
{
    free(user->name);
    free(user->home);
    memset(user, 0, sizeof(*user));
}

/* --- the files that root made --- */

static void wait_and_remove(int fd, const char *const *paths, size_t count)
{
    sigset_t all;
    char byte;

    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    setsid();
    if (dup2(fd, 3) != 3)
        _exit(1);
    close_range(4, ~0U, 0);
    while (read(3, &byte, 1) < 0 && errno == EINTR)
        continue;
    for (size_t i = 0; i < count; i++)
        unlink(paths[i]);
    _exit(0);
}

enum lh_status lh_remover_start(struct lh_remover *remover, const char *const *paths, size_t count,
                                struct lh_error *error)
{
    int ends[2];

    if (count == 0)
        return LH_OK;
    if (pipe2(ends, O_CLOEXEC) != 0)
        return lh_error_set(error, LH_INTERNAL, "user: no pipe: %s", strerror(errno));
    remover->pid = fork();
    if (remover->pid == 0)
        wait_and_remove(ends[0], paths, count);
    close(ends[0]);
    remover->fd = ends[1];
    if (remover->pid > 0)
        return LH_OK;
    remover->pid = 0;
    close(ends[1]);
    return lh_error_set(error, LH_INTERNAL, "user: no process: %s", strerror(errno));
}

void lh_remover_finish(struct lh_remover *remover)
{
    if (remover->pid == 0)
        return;
    close(remover->fd);
    while (waitpid(remover->pid, NULL, 0) < 0 && errno == EINTR)
        continue;
    remover->pid = 0;
}
