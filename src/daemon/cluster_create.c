/*
 * Making the cluster, in a child process as its user. DIR/data.new is filled by initdb, configured, given its
 * database, and renamed to DIR/data at the end: killed at any point, the next start begins again with what is missing.
 */
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/memory.h"
#include "daemon/cluster.h"
#include "daemon/programs.h"

/*
 * Appended to what initdb wrote; a DBA may change any of it. Durability stays at PostgreSQL's defaults, written down
 * so that nobody has to look them up.
 *
 * WAL: a new segment is 16 MB of zeroes, written and synced while nobody can commit (20 to 100 ms), so those that were
 * used once are kept for the next time. The first change of a page after a checkpoint is a copy of the whole page, so
 * checkpoints are rare; but a recovery has to read what was written since the last one.
 */
static const char settings[] =
    "\n# ---- Leasehold ----\n"
    "listen_addresses = ''                         # the unix socket alone\n"
    "max_connections = 100\n"
    "fsync = on\n"
    "synchronous_commit = on\n"
    "wal_level = replica\n"
    "max_wal_size = 2GB\n"
    "min_wal_size = 1GB                            # segments that are there need not be made\n"
    "checkpoint_timeout = 15min\n"
    "checkpoint_completion_target = 0.9\n"
    "autovacuum = on\n"
    "autovacuum_naptime = 10s                      # the lease tables churn\n"
    "idle_in_transaction_session_timeout = 60s     # a forgotten transaction keeps dead rows alive\n"
    "jit = off                                     # short statements only\n"
    "dynamic_shared_memory_type = mmap             # files: systemd's RemoveIPC would take segments away from under "
    "it\n"
    "timezone = 'UTC'\n"
    "log_timezone = 'UTC'\n"
    "logging_collector = on\n"
    "log_directory = '../log'\n"
    "log_filename = 'postgresql-%a.log'            # a week of them\n"
    "log_truncate_on_rotation = on\n"
    "log_rotation_age = 1d\n"
    "log_rotation_size = 0\n"
    "log_line_prefix = '%m [%p] %q%u@%d '\n"
    "log_lock_waits = on\n";

/* Every row that is renewed should stay in memory: a million leases are some 800 MB. It is taken as it is used. */
#define SHARED_BUFFERS_MIN_MB 128
#define SHARED_BUFFERS_MAX_MB 1024

static const char access_rules[] =
    "# Unix socket only. The kernel gives the user who connects; pg_ident.conf maps users to roles.\n"
    "local all all peer map=leasehold\n"
    "local replication all peer map=leasehold\n";

static bool fail(const char *what, const char *path)
{
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    return false;
}

static bool write_file(const char *directory, const char *name, const char *mode, const char *text)
{
    char *path = lh_format("%s/%s", directory, name);
    FILE *file = fopen(path, mode);
    bool is_written = file != NULL && fputs(text, file) >= 0 && fflush(file) == 0 && fsync(fileno(file)) == 0;

    if (file == NULL || fclose(file) != 0 || !is_written)
        is_written = fail("cannot write", path);
    free(path);
    return is_written;
}

/* Root, the cluster's user and the daemon's user may be the role. */
static bool write_names(const struct lh_cluster *cluster, const char *data, uid_t daemon_uid, const char *role)
{
    const struct passwd *daemon = getpwuid(daemon_uid);
    struct lh_buffer text = {0};
    const char *names[] = {"root", cluster->user, daemon == NULL ? "root" : daemon->pw_name};
    bool is_written;

    for (size_t i = 0; i < 3; i++) {
        char *line;
        if (i > 0 && (strcmp(names[i], "root") == 0 || (i == 2 && strcmp(names[2], names[1]) == 0)))
            continue;
        line = lh_format("leasehold \"%s\" %s\n", names[i], role);
        lh_buffer_append(&text, line, strlen(line));
        free(line);
    }
    lh_buffer_append(&text, "", 1);
    is_written = write_file(data, "pg_ident.conf", "a", (const char *)text.data);
    lh_buffer_finish(&text);
    return is_written;
}

/* A cluster from before the daemon had a role of its own. */
static bool lacks_serving_role(const char *data)
{
    char *path = lh_format("%s/pg_ident.conf", data);
    FILE *file = fopen(path, "re");
    bool is_there = false;
    char line[512];

    free(path);
    while (file != NULL && fgets(line, sizeof(line), file) != NULL)
        is_there = is_there || strstr(line, LH_CLUSTER_SERVING_ROLE) != NULL;
    if (file != NULL)
        fclose(file);
    return file != NULL && !is_there;
}

static bool run_initdb(const struct lh_cluster *cluster, const char *data)
{
    char *initdb = lh_format("%s/initdb", cluster->programs);
    const char *const arguments[] = {initdb,
                                     "-D",
                                     data,
                                     "--username=leasehold",
                                     "--encoding=UTF8",
                                     "--locale=C",
                                     "--data-checksums",
                                     "--auth-local=peer",
                                     "--auth-host=reject",
                                     NULL};
    bool is_done = lh_programs_run(arguments, NULL);

    free(initdb);
    return is_done;
}

static long shared_buffers_mb(void)
{
    long megabytes = sysconf(_SC_PHYS_PAGES) / (1024 * 1024 / sysconf(_SC_PAGESIZE)) / 16;

    if (megabytes < SHARED_BUFFERS_MIN_MB)
        return SHARED_BUFFERS_MIN_MB;
    return megabytes > SHARED_BUFFERS_MAX_MB ? SHARED_BUFFERS_MAX_MB : megabytes;
}

/* Not in PostgreSQL 14 and before, and only where it was built with it. */
static bool knows_lz4(const struct lh_cluster *cluster, const char *data)
{
    char *postgres = lh_format("%s/postgres", cluster->programs);
    const char *const arguments[] = {postgres, "-C", "wal_compression", "-D", data, "-c", "wal_compression=lz4", NULL};
    bool is_known = lh_programs_run(arguments, NULL);

    free(postgres);
    return is_known;
}

static bool write_settings(const struct lh_cluster *cluster, const char *data)
{
    char *text = lh_format("%sshared_buffers = %ldMB\n%s", settings, shared_buffers_mb(),
                           knows_lz4(cluster, data) ? "wal_compression = lz4\n" : "");
    bool is_written = write_file(data, "postgresql.conf", "ae", text);

    free(text);
    return is_written;
}

static bool make_database(const struct lh_cluster *cluster, const char *data)
{
    char *postgres = lh_format("%s/postgres", cluster->programs);
    const char *const arguments[] = {
        postgres, "--single", "-D", data, "-c", "exit_on_error=true", "-c", "logging_collector=off", "postgres", NULL};
    bool is_done = lh_programs_run(arguments, "create database leasehold\n");

    free(postgres);
    return is_done;
}

static bool fsync_directory(const char *path)
{
    int directory = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_done = directory >= 0 && fsync(directory) == 0;

    if (directory >= 0)
        close(directory);
    return is_done || fail("cannot sync", path);
}

static bool make_data(const struct lh_cluster *cluster, uid_t daemon_uid)
{
    char *fresh = lh_format("%s.new", cluster->data);
    const char *const clear[] = {"/bin/rm", "-rf", fresh, NULL};
    bool is_done = lh_programs_run(clear, NULL) && run_initdb(cluster, fresh) && write_settings(cluster, fresh) &&
                   write_file(fresh, "pg_hba.conf", "we", access_rules) &&
                   write_names(cluster, fresh, daemon_uid, LH_CLUSTER_ROLE) &&
                   write_names(cluster, fresh, daemon_uid, LH_CLUSTER_SERVING_ROLE) && make_database(cluster, fresh) &&
                   fsync_directory(fresh);

    if (is_done && rename(fresh, cluster->data) != 0)
        is_done = fail("cannot rename to", cluster->data);
    free(fresh);
    return is_done && fsync_directory(cluster->directory);
}

static bool make_private(const char *path)
{
    if (mkdir(path, 0700) != 0 && errno != EEXIST)
        return fail("cannot make", path);
    return true;
}

int lh_cluster_create_data(void *arg)
{
    const struct lh_cluster *cluster = arg;
    uid_t daemon_uid = geteuid();
    char *log = lh_format("%s/initdb.log", cluster->log);
    char *version = lh_format("%s/PG_VERSION", cluster->data);

    if (!lh_cluster_become_user(cluster))
        return 1;
    prctl(PR_SET_PDEATHSIG, SIGKILL); /* after the change of user, which clears it */
    if (!make_private(cluster->log) || !make_private(cluster->run))
        return 1;
    if (access(version, F_OK) == 0)
        return !lacks_serving_role(cluster->data) ||
                       write_names(cluster, cluster->data, daemon_uid, LH_CLUSTER_SERVING_ROLE)
                   ? 0
                   : 1;
    if (!lh_programs_redirect(log, false))
        return 1;
    lh_programs_clean_environment();
    return make_data(cluster, daemon_uid) ? 0 : 1;
}
