#include "daemon/cluster.h"

#include <dirent.h>
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "daemon/process.h"
#include "daemon/programs.h"

#define SOCKET_NAME "/.s.PGSQL.5432"
#define TAIL_BYTES 1200
#define PLAIN "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789/._-"

/* As root: the owner of the data that is there, else who is wanted, else postgres. Otherwise who we are. */
static enum lh_status choose_user(struct lh_cluster *cluster, const char *wanted, struct lh_error *error)
{
    bool is_wanted = wanted != NULL && strcmp(wanted, "root") != 0;
    struct stat data;
    const struct passwd *user;

    if (geteuid() != 0)
        user = getpwuid(geteuid());
    else if (stat(cluster->data, &data) == 0 && data.st_uid != 0)
        user = getpwuid(data.st_uid);
    else
        user = getpwnam(is_wanted ? wanted : "postgres");
    if (geteuid() == 0 && is_wanted && (user == NULL || strcmp(user->pw_name, wanted) != 0))
        return lh_error_set(error, LH_INTERNAL, "embedded: user = %s, but %s", wanted,
                            user == NULL ? "there is no such user" : "the data belongs to another user");
    if (user == NULL)
        return lh_error_set(error, LH_INTERNAL,
                            geteuid() == 0 ? "embedded: there is no user postgres to run PostgreSQL as; install "
                                             "PostgreSQL, or set database to use another"
                                           : "embedded: this process runs as a user id without a name (%u)",
                            (unsigned)geteuid());
    cluster->user = lh_strdup(user->pw_name);
    cluster->uid = user->pw_uid;
    cluster->gid = user->pw_gid;
    return LH_OK;
}

static bool is_empty(const char *path)
{
    DIR *directory = opendir(path);
    int entries = 0;

    if (directory == NULL)
        return false;
    while (entries < 3 && readdir(directory) != NULL)
        entries++;
    closedir(directory);
    return entries == 2; /* . and .. */
}

static bool make_parents(const char *path)
{
    char *copy = lh_strdup(path);
    bool is_made = true;

    for (char *slash = strchr(copy + 1, '/'); is_made && slash != NULL; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        is_made = mkdir(copy, 0755) == 0 || errno == EEXIST;
        *slash = '/';
    }
    free(copy);
    return is_made;
}

/* DIR is there and belongs to the cluster's user. */
static enum lh_status make_directory(const struct lh_cluster *cluster, struct lh_error *error)
{
    const char *path = cluster->directory;
    struct stat found;

    if (!make_parents(path) || (mkdir(path, 0755) != 0 && errno != EEXIST) || stat(path, &found) != 0)
        return lh_error_set(error, LH_INTERNAL, "embedded: %s cannot be made: %s", path, strerror(errno));
    if (!S_ISDIR(found.st_mode))
        return lh_error_set(error, LH_INTERNAL, "embedded: %s is not a directory", path);
    if (found.st_uid == cluster->uid)
        return LH_OK;
    if (geteuid() != 0)
        return lh_error_set(error, LH_INTERNAL, "embedded: %s belongs to another user", path);
    /* Only what is ours, or nobody's yet: never give away a directory with other things in it. */
    if (found.st_uid != 0 || !is_empty(path))
        return lh_error_set(error, LH_INTERNAL,
                            "embedded: %s holds other things or belongs to another user than %s; name an empty or new "
                            "directory",
                            path, cluster->user);
    if (chown(path, cluster->uid, cluster->gid) != 0 || chmod(path, 0755) != 0)
        return lh_error_set(error, LH_INTERNAL, "embedded: %s cannot be given to %s: %s", path, cluster->user,
                            strerror(errno));
    return LH_OK;
}

static bool fits_socket(const char *path)
{
    return strlen(path) + strlen(SOCKET_NAME) < sizeof(((struct sockaddr_un *)NULL)->sun_path) &&
           strpbrk(path, ",\"'\\\n") == NULL; /* which PostgreSQL and libpq take for list and quote marks */
}

/* The name must be the same at the next start, and in every process: no keyed hash here (FNV-1a). */
static uint64_t name_hash(const char *text)
{
    uint64_t hash = UINT64_C(14695981039346656037);

    for (; *text != '\0'; text++)
        hash = (hash ^ (unsigned char)*text) * UINT64_C(1099511628211);
    return hash;
}

static enum lh_status choose_socket_directory(struct lh_cluster *cluster, struct lh_error *error)
{
    struct stat found;

    cluster->run = lh_format("%s/run", cluster->directory);
    if (fits_socket(cluster->run))
        return LH_OK; /* made by lh_cluster_create_data */
    free(cluster->run);
    cluster->run = lh_format("%s/leasehold-%u-%012llx", geteuid() == 0 ? "/run" : "/tmp", (unsigned)cluster->uid,
                             (unsigned long long)name_hash(cluster->directory) & 0xffffffffffffULL);
    lh_warn("the path of %s is too long or too strange for a unix socket: PostgreSQL's is in %s", cluster->directory,
            cluster->run);
    /* /tmp is everybody's: what is there already must be ours, and closed. */
    if ((mkdir(cluster->run, 0700) != 0 && errno != EEXIST) || lstat(cluster->run, &found) != 0 ||
        (geteuid() == 0 && lchown(cluster->run, cluster->uid, cluster->gid) != 0))
        return lh_error_set(error, LH_INTERNAL, "embedded: %s cannot be made: %s", cluster->run, strerror(errno));
    if (!S_ISDIR(found.st_mode) || (found.st_mode & 0777) != 0700 ||
        (found.st_uid != cluster->uid && found.st_uid != geteuid()))
        return lh_error_set(error, LH_INTERNAL, "embedded: %s is not a private directory of %s; remove it",
                            cluster->run, cluster->user);
    return LH_OK;
}

enum lh_status lh_cluster_open(struct lh_cluster *cluster, const char *directory, const char *user,
                               struct lh_error *error)
{
    enum lh_status status;
    char *lock;

    memset(cluster, 0, sizeof(*cluster));
    cluster->lock_fd = -1;
    cluster->directory = lh_strdup(directory);
    cluster->data = lh_format("%s/data", directory);
    cluster->log = lh_format("%s/log", directory);
    status = choose_user(cluster, user, error);
    if (status == LH_OK)
        status = make_directory(cluster, error);
    if (status == LH_OK) {
        lock = lh_format("%s/leaseholdd.lock", directory);
        status = lh_lockfile_take(lock, &cluster->lock_fd, error);
        free(lock);
        /* So that this user's own daemon can take it another day. */
        if (status == LH_OK && geteuid() == 0 && fchown(cluster->lock_fd, cluster->uid, cluster->gid) != 0)
            status = lh_error_set(error, LH_INTERNAL, "embedded: %s: %s", directory, strerror(errno));
    }
    if (status == LH_OK)
        status = choose_socket_directory(cluster, error);
    if (status == LH_OK)
        status = lh_programs_find(cluster->data, &cluster->programs, error);
    if (status == LH_OK)
        cluster->core = lh_core_module_place(cluster->directory, cluster->programs);
    else
        lh_cluster_close(cluster);
    return status;
}

void lh_cluster_close(struct lh_cluster *cluster)
{
    if (cluster->directory != NULL && cluster->lock_fd >= 0)
        close(cluster->lock_fd);
    if (cluster->run != NULL && strncmp(cluster->run, cluster->directory, strlen(cluster->directory)) != 0)
        rmdir(cluster->run); /* the short one elsewhere; stays while PostgreSQL's socket is in it */
    free(cluster->directory);
    free(cluster->data);
    free(cluster->log);
    free(cluster->run);
    free(cluster->programs);
    free(cluster->core);
    free(cluster->user);
    memset(cluster, 0, sizeof(*cluster));
    cluster->lock_fd = -1;
}

bool lh_cluster_become_user(const struct lh_cluster *cluster)
{
    if (geteuid() == 0 &&
        (initgroups(cluster->user, cluster->gid) != 0 || setgid(cluster->gid) != 0 || setuid(cluster->uid) != 0)) {
        lh_err("cannot become the user %s: %s", cluster->user, strerror(errno));
        return false;
    }
    umask(077);
    /* Also away from a directory that this user may not be in. */
    if (chdir(cluster->directory) != 0) {
        lh_err("the user %s cannot enter %s: %s; every directory above it must let that user pass", cluster->user,
               cluster->directory, strerror(errno));
        return false;
    }
    return true;
}

int lh_cluster_run_postgres(void *arg)
{
    const struct lh_cluster *cluster = arg;
    char *log = lh_format("%s/startup.log", cluster->log);
    char *sockets = lh_format("unix_socket_directories=\"%s\"", cluster->run);
    char *program = lh_format("%s/postgres", cluster->programs);

    if (!lh_cluster_become_user(cluster) || !lh_programs_redirect(log, false))
        return 1;
    lh_programs_clean_environment();
    /* The port only names the socket; no TCP port is opened. */
    execl(program, program, "-D", cluster->data, "-p", "5432", "-c", sockets, (char *)NULL);
    fprintf(stderr, "%s: %s\n", program, strerror(errno));
    return 1;
}

static bool works_in(pid_t pid, const char *data)
{
    char cwd[64];
    struct stat of_process, of_data;

    /* The number may be some other process's by now; a postmaster works in its data directory. */
    snprintf(cwd, sizeof(cwd), "/proc/%ld/cwd", (long)pid);
    return stat(cwd, &of_process) == 0 && stat(data, &of_data) == 0 && of_process.st_dev == of_data.st_dev &&
           of_process.st_ino == of_data.st_ino;
}

struct lh_postmaster lh_cluster_postmaster(const struct lh_cluster *cluster)
{
    /* The lines of postmaster.pid: pid, data, start time, port, socket directory, address, shared memory, status. */
    char *path = lh_format("%s/postmaster.pid", cluster->data);
    FILE *file = fopen(path, "re");
    struct lh_postmaster found = {0, false};
    char line[1024];

    free(path);
    if (file == NULL)
        return found;
    for (int number = 1; number <= 8 && fgets(line, sizeof(line), file) != NULL; number++) {
        if (number == 1)
            found.pid = (pid_t)strtol(line, NULL, 10);
        if (number == 8)
            found.is_ready = strncmp(line, "ready", 5) == 0;
    }
    fclose(file);
    if (found.pid <= 1 || !works_in(found.pid, cluster->data))
        return (struct lh_postmaster){0, false};
    return found;
}

char *lh_cluster_conninfo(const struct lh_cluster *cluster, const char *role)
{
    return lh_format("host='%s' port=5432 user=%s dbname=leasehold", cluster->run, role);
}

char *lh_cluster_psql(const struct lh_cluster *cluster)
{
    const char *quote = cluster->run[strspn(cluster->run, PLAIN)] == '\0' ? "" : "'";

    return lh_format("psql -h %s%s%s -U leasehold leasehold", quote, cluster->run, quote);
}

void lh_cluster_log_tail(const struct lh_cluster *cluster, const char *file)
{
    char *path = lh_format("%s/%s", cluster->log, file);
    FILE *stream = fopen(path, "re");
    char text[TAIL_BYTES + 1];
    char *rest = text;
    size_t size;

    free(path);
    if (stream == NULL)
        return;
    if (fseek(stream, -TAIL_BYTES, SEEK_END) != 0)
        rewind(stream);
    size = fread(text, 1, TAIL_BYTES, stream);
    text[size] = '\0';
    fclose(stream);
    for (char *line; (line = strsep(&rest, "\n")) != NULL;) {
        if (*line != '\0')
            lh_warn("%s: %s", file, line);
    }
}
