#include "base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define LINE_MAX_BYTES 2048

static enum lh_log_level lowest_level = LH_LOG_INFO;
static lh_log_sink *current_sink;
static void *current_sink_arg;

static const char *const level_names[] = {"DEBUG", "INFO", "WARN", "ERROR"};

void lh_log_set_level(enum lh_log_level level)
{
    lowest_level = level;
}

enum lh_log_level lh_log_level(void)
{
    return lowest_level;
}

void lh_log_set_sink(lh_log_sink *sink, void *arg)
{
    current_sink = sink;
    current_sink_arg = arg;
}

/* A name with a newline in it must not be able to forge a line. */
static size_t append_escaped(char *line, size_t used, const char *text)
{
    for (; *text != '\0' && used + 5 < LINE_MAX_BYTES; text++) {
        unsigned char c = (unsigned char)*text;
        if (c < 0x20 || c == 0x7f)
            used += (size_t)snprintf(line + used, LINE_MAX_BYTES - used, "\\x%02x", c);
        else
            line[used++] = (char)c;
    }
    return used;
}

void lh_log(enum lh_log_level level, const char *format, ...)
{
    char text[LINE_MAX_BYTES / 2];
    char line[LINE_MAX_BYTES];
    struct timespec now;
    struct tm utc;
    size_t used;
    va_list arguments;

    if (level < lowest_level)
        return;
    va_start(arguments, format);
    vsnprintf(text, sizeof(text), format, arguments);
    va_end(arguments);
    if (current_sink != NULL) {
        used = append_escaped(line, 0, text);
        line[used] = '\0';
        current_sink(current_sink_arg, level, line);
        return;
    }
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    used = strftime(line, sizeof(line), "%Y-%m-%dT%H:%M:%S", &utc);
    used += (size_t)snprintf(line + used, sizeof(line) - used, ".%06ldZ %s ", now.tv_nsec / 1000, level_names[level]);
    used = append_escaped(line, used, text);
    line[used++] = '\n';
    /* One write: lines of several processes do not mix. A full disk must not stop the service. */
    if (write(STDERR_FILENO, line, used) < 0)
        return;
}
