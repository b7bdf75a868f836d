#include <dirent.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "admin/metrics.h"
#include "base/clock.h"

#define STAT_BYTES 1024
#define AFTER_NAME_STARTTIME 20 /* fields of /proc/self/stat between the process's name and its start, see proc(5) */

static bool read_file(const char *path, char *text, size_t size)
{
    FILE *file = fopen(path, "re");
    size_t used;

    if (file == NULL)
        return false;
    used = fread(text, 1, size - 1, file);
    text[used] = '\0';
    fclose(file);
    return used > 0;
}

/* In microseconds since 1970. The kernel knows it in ticks since boot, which is our own clock. */
int64_t lh_process_started_us(void)
{
    char text[STAT_BYTES];
    const char *at;
    unsigned long long ticks = 0;

    if (!read_file("/proc/self/stat", text, sizeof(text)) || (at = strrchr(text, ')')) == NULL)
        return 0;
    for (int i = 0; i < AFTER_NAME_STARTTIME && at != NULL; i++)
        at = strchr(at + 1, ' ');
    if (at == NULL || sscanf(at, "%llu", &ticks) != 1)
        return 0;
    return lh_clock_wall_us() - lh_clock_us() + (int64_t)(ticks * LH_US_PER_S / (unsigned long)sysconf(_SC_CLK_TCK));
}

/* Since Linux 6.2 the directory's size is their number; before, they have to be counted. */
static uint64_t open_fds(void)
{
    struct stat about;
    uint64_t count = 0;
    DIR *dir;

    if (stat("/proc/self/fd", &about) == 0 && about.st_size > 0)
        return (uint64_t)about.st_size;
    dir = opendir("/proc/self/fd");
    if (dir == NULL)
        return 0;
    for (const struct dirent *entry; (entry = readdir(dir)) != NULL;)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count > 0 ? count - 1 : 0; /* not the one we count with */
}

static void expose_memory(struct lh_exposition *out)
{
    char text[STAT_BYTES];
    uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), all = 0, resident = 0;

    if (read_file("/proc/self/statm", text, sizeof(text)))
        sscanf(text, "%" SCNu64 " %" SCNu64, &all, &resident);
    lh_expose_gauge(out, "process_virtual_memory_bytes", all * page, "Virtual memory size in bytes.");
    lh_expose_gauge(out, "process_resident_memory_bytes", resident * page, "Resident memory size in bytes.");
}

static int64_t time_to_us(const struct timeval *time)
{
    return (int64_t)time->tv_sec * LH_US_PER_S + time->tv_usec;
}

void lh_metrics_process(struct lh_exposition *out, int64_t started_us)
{
    struct rusage usage = {0};
    struct rlimit limit = {0};

    getrusage(RUSAGE_SELF, &usage);
    getrlimit(RLIMIT_NOFILE, &limit);
    lh_expose_family(out, "leasehold_build_info", LH_EXPOSE_GAUGE, "Always 1; the labels say what is running.");
    lh_expose_count(out, 1, "version", LH_VERSION, NULL);
    lh_expose_family(out, "process_cpu_seconds_total", LH_EXPOSE_COUNTER, "User and system CPU time in seconds.");
    lh_expose_seconds(out, time_to_us(&usage.ru_utime) + time_to_us(&usage.ru_stime), NULL);
    lh_expose_family(out, "process_start_time_seconds", LH_EXPOSE_GAUGE, "When the process started, since 1970.");
    lh_expose_seconds(out, started_us, NULL);
    expose_memory(out);
    lh_expose_gauge(out, "process_open_fds", open_fds(), "Open file descriptors.");
    lh_expose_gauge(out, "process_max_fds", (uint64_t)limit.rlim_cur, "File descriptors that may be open.");
}
