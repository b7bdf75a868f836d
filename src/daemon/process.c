#include "daemon/process.h"

#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "pg/conn.h"

/* --- its command line --- */

#define FLAG "--database"

/* In place: what is shown instead is cut, or filled up with NULs. */
static void hide_password(char *value)
{
    char *shown = lh_database_redact(value);
    size_t size = strlen(value);

    if (strcmp(shown, value) != 0)
        strncpy(value, shown, size);
    free(shown);
}

char **lh_arguments_take(int argc, char **argv)
{
    char **copy = lh_alloc_zero((size_t)argc + 1, sizeof(char *));
    size_t flag = strlen(FLAG);

    for (int i = 0; i < argc; i++)
        copy[i] = lh_strdup(argv[i]);
    for (int i = 1; i < argc; i++) {
        if (strncmp(argv[i], FLAG "=", flag + 1) == 0)
            hide_password(argv[i] + flag + 1);
        else if (strcmp(argv[i], FLAG) == 0 && i + 1 < argc)
            hide_password(argv[++i]);
    }
    return copy;
}

void lh_arguments_finish(char **arguments)
{
    for (char **argument = arguments; *argument != NULL; argument++)
        free(*argument);
    free(arguments);
}

bool lh_arguments_load(struct lh_settings *settings, int argc, char **argv, struct lh_config_errors *errors)
{
    char why[256];

    if (!lh_settings_load(settings, argc, argv, errors))
        return false;
    for (size_t i = 0; i < settings->database_count; i++)
        if (!lh_pg_conninfo_check(settings->databases[i].database, why, sizeof(why)))
            lh_settings_refuse_database(settings, i, why, errors);
    if (errors->size > 0)
        return false;
    if (settings->database == NULL || lh_pg_conninfo_check(settings->database, why, sizeof(why)))
        return true;
    lh_settings_refuse(settings, "database", why, errors);
    return false;
}

static void tell_change(void *arg, const char *sentence)
{
    lh_info("reload: %s", sentence);
}

bool lh_arguments_reload(struct lh_settings *settings, int argc, char **argv, lh_reload_check *check, void *arg)
{
    struct lh_config_errors errors = {0};
    struct lh_settings fresh;
    char *rest;
    bool is_good;

    lh_settings_init(&fresh);
    is_good = lh_arguments_load(&fresh, argc, argv, &errors) && lh_settings_check_reload(settings, &fresh, &errors) &&
              check(arg, &fresh, &errors);
    if (is_good) {
        lh_info("reload: reading the settings again");
        lh_settings_adopt(settings, &fresh, tell_change, NULL);
    } else {
        rest = errors.text;
        for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
            if (*line != '\0')
                lh_err("reload: %s", line);
        }
        lh_err("reload: nothing was changed");
    }
    lh_config_errors_finish(&errors);
    lh_settings_finish(&fresh);
    return is_good;
}

/* --- its files --- */

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

static enum lh_status make_file(const char *path, uid_t uid, gid_t gid, struct lh_error *error)
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

/* --- the service manager --- */

/* A manager that is stopped must not stop the service with it. */
static const struct timeval patience = {.tv_usec = 200000};

void lh_notify(const char *state)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t size = path == NULL ? 0 : strlen(path);
    int fd;

    if (size < 2 || size >= sizeof(address.sun_path) || (path[0] != '/' && path[0] != '@'))
        return;
    memcpy(address.sun_path, path, size);
    if (path[0] == '@')
        address.sun_path[0] = '\0'; /* Linux's abstract namespace */
    fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience)) != 0 ||
        sendto(fd, state, strlen(state), MSG_NOSIGNAL, (struct sockaddr *)&address,
               (socklen_t)(offsetof(struct sockaddr_un, sun_path) + size)) < 0)
        lh_warn("the service manager cannot be told %s: %s", state, strerror(errno));
    if (fd >= 0)
        close(fd);
}

/* --- its user --- */

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

static enum lh_status start_remover(struct lh_remover *remover, const char *const *paths, size_t count,
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

static enum lh_status become(const struct lh_user *user, struct lh_error *error)
{
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

/* What root made must not outlive the process because its user may not remove it. */
enum lh_status lh_user_leave_root(const struct lh_user *user, const struct lh_root_files *files,
                                  struct lh_remover *remover, struct lh_error *error)
{
    size_t count = files->path_count;
    const char **paths;
    enum lh_status status;

    if (user->name == NULL)
        return LH_OK;
    if (files->port_file != NULL && make_file(files->port_file, user->uid, user->gid, error) != LH_OK)
        return error->status;
    paths = lh_alloc_zero(count + 1, sizeof(*paths));
    if (count > 0)
        memcpy(paths, files->paths, count * sizeof(*paths));
    if (files->pid_file != NULL)
        paths[count++] = files->pid_file;
    status = start_remover(remover, paths, count, error);
    free(paths);
    return status == LH_OK ? become(user, error) : status;
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
