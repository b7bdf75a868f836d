#include "daemon/programs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"

#define DEBIAN_DIRECTORY "/usr/lib/postgresql"

static bool has_programs(const char *directory)
{
    static const char *const names[] = {"initdb", "postgres"};
    bool has_all = true;

    for (size_t i = 0; has_all && i < 2; i++) {
        char *path = lh_format("%s/%s", directory, names[i]);
        has_all = access(path, X_OK) == 0;
        free(path);
    }
    return has_all;
}

/* 0: no cluster there. */
static int data_version(const char *data)
{
    char *path = lh_format("%s/PG_VERSION", data);
    FILE *file = fopen(path, "re");
    int version = 0;

    free(path);
    if (file == NULL)
        return 0;
    if (fscanf(file, "%d", &version) != 1)
        version = 0;
    fclose(file);
    return version;
}

static char *find_in_debian(int wanted)
{
    DIR *directory = opendir(DEBIAN_DIRECTORY);
    int best = 0;
    char *found = NULL;

    if (directory == NULL)
        return NULL;
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;) {
        int version = atoi(entry->d_name);
        char *path = lh_format(DEBIAN_DIRECTORY "/%s/bin", entry->d_name);
        bool is_wanted = wanted == 0 ? version >= LH_POSTGRES_OLDEST && version > best : version == wanted;
        if (is_wanted && has_programs(path)) {
            best = version;
            free(found);
            found = lh_strdup(path);
        }
        free(path);
    }
    closedir(directory);
    return found;
}

/* From "postgres (PostgreSQL) 15.8 (Debian ...)"; 0: it does not say. */
static int version_of(const char *directory)
{
    char *command = lh_format("'%s/postgres' --version", directory);
    FILE *output = strchr(directory, '\'') == NULL ? popen(command, "re") : NULL;
    int version = 0;

    free(command);
    if (output == NULL)
        return 0;
    if (fscanf(output, "%*s %*s %d", &version) != 1)
        version = 0;
    pclose(output);
    return version;
}

static char *find_on_path(int wanted)
{
    const char *path = getenv("PATH");
    char *copy = lh_strdup(path == NULL ? "" : path);
    char *rest = copy;
    char *found = NULL;

    for (char *directory; found == NULL && (directory = strsep(&rest, ":")) != NULL;) {
        int version = *directory == '/' && has_programs(directory) ? version_of(directory) : 0;
        if (version >= LH_POSTGRES_OLDEST && (wanted == 0 || version == wanted))
            found = lh_strdup(directory);
    }
    free(copy);
    return found;
}

enum lh_status lh_programs_find(const char *data, char **programs, struct lh_error *error)
{
    int wanted = data_version(data);

    *programs = find_in_debian(wanted);
    if (*programs == NULL)
        *programs = find_on_path(wanted);
    if (*programs != NULL)
        return LH_OK;
    if (wanted != 0)
        return lh_error_set(error, LH_INTERNAL,
                            "embedded: the data in %s was made by PostgreSQL %d, whose programs are not installed (on "
                            "Debian: apt install postgresql-%d)",
                            data, wanted, wanted);
    return lh_error_set(error, LH_INTERNAL,
                        "embedded: no PostgreSQL of version %d or later in " DEBIAN_DIRECTORY
                        " or on PATH (on Debian: apt install postgresql); or set database to use another",
                        LH_POSTGRES_OLDEST);
}

bool lh_programs_redirect(const char *path, bool append)
{
    int output = open(path, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC | (append ? O_APPEND : O_TRUNC), 0600);
    int input = open("/dev/null", O_RDONLY | O_CLOEXEC);

    if (output < 0 || input < 0) {
        fprintf(stderr, "%s: %s\n", output < 0 ? path : "/dev/null", strerror(errno));
        return false;
    }
    return dup2(input, 0) == 0 && dup2(output, 1) == 1 && dup2(output, 2) == 2;
}

void lh_programs_clean_environment(void)
{
    for (size_t i = 0; environ[i] != NULL;) {
        size_t size = strcspn(environ[i], "=");
        if (strncmp(environ[i], "PG", 2) == 0) {
            char *name = lh_format("%.*s", (int)size, environ[i]);
            unsetenv(name); /* moves the rest down */
            free(name);
        } else {
            i++;
        }
    }
    setenv("LC_ALL", "C", 1);
    unsetenv("LEASEHOLD_DATABASE"); /* may hold a password */
}

static void run_in_child(const char *const *arguments, const char *input, pid_t parent)
{
    int file = input == NULL ? -1 : memfd_create("input", MFD_CLOEXEC);

    prctl(PR_SET_PDEATHSIG, SIGKILL); /* half a cluster is made again; two makers at once would be worse */
    if (getppid() != parent)
        _exit(1);
    if (input != NULL && (write(file, input, strlen(input)) != (ssize_t)strlen(input) ||
                          lseek(file, 0, SEEK_SET) != 0 || dup2(file, 0) != 0))
        _exit(1);
    execv(arguments[0], (char *const *)(uintptr_t)arguments);
    fprintf(stderr, "%s: %s\n", arguments[0], strerror(errno));
    _exit(127);
}

bool lh_programs_run(const char *const *arguments, const char *input)
{
    pid_t parent = getpid();
    pid_t pid = fork();
    int wait_status = 0;

    if (pid == 0)
        run_in_child(arguments, input, parent);
    while (pid > 0 && waitpid(pid, &wait_status, 0) != pid) {
        if (errno != EINTR)
            return false;
    }
    return pid > 0 && WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0;
}

/* --- the module of leasehold_core --- */

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
    int from = open_module(version_of(programs));

    if (from < 0 || !place(from, path)) {
        free(path);
        path = NULL;
    }
    if (from >= 0)
        close(from);
    return path;
}
