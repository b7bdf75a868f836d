#include "base/log.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "base/standard.h"
#include "base/text.h"

#define TEXT_BYTES 1024
#define FORMAT_BYTES 512
/* Stands for the blank before a handle; a separator that no format has. */
#define MARK '\x1e'
#define MARKS "\x1e"

/* Kept free in a line of stderr, for what ends it. */
#define END_BYTES 8
/* Each byte of the text may become six, and the journal has it twice. */
#define LINE_BYTES (16 * TEXT_BYTES)

struct line {
    size_t used;
    size_t limit;
    bool is_cut; /* something did not fit */
    char bytes[LINE_BYTES];
};

#define STDERR_LINE ((struct line){.limit = LH_STANDARD_LINE_BYTES - END_BYTES})
#define JOURNAL_LINE ((struct line){.limit = LINE_BYTES})

static enum lh_log_level lowest_level = LH_LOG_INFO;
static lh_log_sink *current_sink;
static void *current_sink_arg;
static enum lh_log_form current_form;
static int journal_fd = -1;
static atomic_uint_fast64_t dropped;        /* lines, since the start */
static atomic_uint_fast64_t dropped_unsaid; /* those that no line has told of */

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

bool lh_log_set_form(enum lh_log_form form, const char *journal)
{
    int fd = -1;

    if (form == LH_LOG_JOURNALD) {
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        if ((size_t)snprintf(address.sun_path, sizeof(address.sun_path), "%s", journal) >= sizeof(address.sun_path)) {
            errno = ENAMETOOLONG;
            return false;
        }
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) != 0) {
            int reason = errno;
            if (fd >= 0)
                close(fd);
            errno = reason;
            return false;
        }
    }
    if (journal_fd >= 0)
        close(journal_fd);
    journal_fd = fd;
    current_form = form;
    return true;
}

/* A name with a newline in it must not be able to forge a line, nor one with U+009B to command a terminal. */
static void append_escaped(struct line *line, const char *text, size_t size, bool is_quoted)
{
    while (size > 0) {
        if (line->used + 8 >= line->limit) {
            line->is_cut = true;
            break;
        }
        size_t shown = lh_utf8_shown(text, size);
        if (is_quoted && (*text == '"' || *text == '\\'))
            line->bytes[line->used++] = '\\';
        if (shown > 0) {
            memcpy(line->bytes + line->used, text, shown);
            line->used += shown;
        } else {
            shown = 1;
            line->used += (size_t)snprintf(line->bytes + line->used, line->limit - line->used,
                                           is_quoted ? "\\\\x%02x" : "\\x%02x", (unsigned char)*text);
        }
        text += shown;
        size -= shown;
    }
    line->bytes[line->used] = '\0';
}

static void append(struct line *line, const char *text)
{
    size_t size = strlen(text);

    if (size >= line->limit - line->used) {
        line->is_cut = true;
        return;
    }
    memcpy(line->bytes + line->used, text, size + 1);
    line->used += size;
}

/* The end has its place, whatever was cut. */
static void append_end(struct line *line, const char *end)
{
    memcpy(line->bytes + line->used, end, strlen(end));
    line->used += strlen(end);
}

/* Whether a handle begins at `format`: " name=%". */
static bool is_handle(const char *format)
{
    size_t size = format[0] == ' ' ? strspn(format + 1, "abcdefghijklmnopqrstuvwxyz_") : 0;

    return size > 0 && format[size + 1] == '=' && format[size + 2] == '%';
}

static void append_field(struct line *line, const char *name, size_t name_size, const char *value, size_t size)
{
    if (current_form == LH_LOG_JSON) {
        size_t before = line->used;
        append(line, ",\"");
        append_escaped(line, name, name_size, true);
        append(line, "\":\"");
        if (line->is_cut) {
            line->used = before;
            return;
        }
        append_escaped(line, value, size, true);
        append_end(line, "\"");
        return;
    }
    append(line, "LEASEHOLD_");
    for (size_t i = 0; i < name_size; i++)
        append(line, (char[]){(char)toupper((unsigned char)name[i]), '\0'});
    append(line, "=");
    append_escaped(line, value, size, false);
    append(line, "\n");
}

/* `marked`: the text, with a MARK before each of its handles. */
static void append_fields(struct line *line, const char *marked)
{
    for (const char *at = strchr(marked, MARK); at != NULL && !line->is_cut;) {
        const char *next = strchr(at + 1, MARK);
        const char *value = strchr(at, '=') + 1;
        append_field(line, at + 1, (size_t)(value - 1 - (at + 1)), value,
                     next != NULL ? (size_t)(next - value) : strlen(value));
        at = next;
    }
}

static void stamp(struct line *line)
{
    struct timespec now;
    struct tm utc;

    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    line->used += strftime(line->bytes + line->used, 32, "%Y-%m-%dT%H:%M:%S", &utc);
    line->used += (size_t)snprintf(line->bytes + line->used, 16, ".%06ldZ", now.tv_nsec / 1000);
}

static void format_text(struct line *line, enum lh_log_level level, const char *text)
{
    stamp(line);
    append(line, " ");
    append(line, level_names[level]);
    append(line, " ");
    append_escaped(line, text, strlen(text), false);
    append_end(line, "\n");
}

static void format_json(struct line *line, enum lh_log_level level, const char *marked)
{
    append(line, "{\"time\":\"");
    stamp(line);
    append(line, "\",\"level\":\"");
    for (const char *at = level_names[level]; *at != '\0'; at++)
        append(line, (char[]){(char)tolower((unsigned char)*at), '\0'});
    append(line, "\",\"message\":\"");
    append_escaped(line, marked, strcspn(marked, MARKS), true);
    append_end(line, "\"");
    append_fields(line, marked);
    append_end(line, "}\n");
}

/* Writes each line at once, so that the lines of several processes do not mix. */
static bool write_line(enum lh_log_level level, const char *marked)
{
    struct line line = STDERR_LINE;

    if (current_form == LH_LOG_JSON)
        format_json(&line, level, marked);
    else
        format_text(&line, level, marked);
    return lh_standard_error(line.bytes, line.used, 0);
}

/* Drops the line when nobody reads, or the disk is full: a log must not stop the service. The next line that can be written comes
 * after one that tells how many were dropped. */
static void write_or_drop(enum lh_log_level level, const char *marked)
{
    uint64_t unsaid = atomic_exchange(&dropped_unsaid, 0);
    char notice[TEXT_BYTES];

    snprintf(notice, sizeof(notice), "lines of the log were dropped because they could not be written%s%" PRIu64,
             current_form == LH_LOG_JSON ? MARKS "lines=" : " lines=", unsaid);
    if (unsaid > 0 && !write_line(LH_LOG_WARN, notice)) {
        atomic_fetch_add(&dropped_unsaid, unsaid + 1);
        atomic_fetch_add(&dropped, 1);
    } else if (!write_line(level, marked)) {
        atomic_fetch_add(&dropped_unsaid, 1);
        atomic_fetch_add(&dropped, 1);
    }
}

uint64_t lh_log_dropped(void)
{
    return atomic_load(&dropped);
}

static void write_journal(enum lh_log_level level, const char *text, const char *marked)
{
    static const char *const priorities[] = {"7", "6", "4", "3"};
    struct line line = JOURNAL_LINE;

    append(&line, "SYSLOG_IDENTIFIER=leaseholdd\nPRIORITY=");
    append(&line, priorities[level]);
    append(&line, "\nMESSAGE=");
    append_escaped(&line, text, strlen(text), false);
    append(&line, "\n");
    append_fields(&line, marked);
    if (send(journal_fd, line.bytes, line.used, MSG_NOSIGNAL | MSG_DONTWAIT) < 0)
        write_or_drop(level, text);
}

/* The text, cut so that no half of a character is at its end. */
__attribute__((format(printf, 2, 0))) static void print(char text[TEXT_BYTES], const char *format, va_list arguments)
{
    vsnprintf(text, TEXT_BYTES, format, arguments);
    text[lh_utf8_cut(text, strlen(text), TEXT_BYTES - 4)] = '\0';
}

/* `plain` with a MARK in place of the blank before each handle. A value that has one of its own makes no field of any. */
static void print_marked(char text[TEXT_BYTES], const char *plain, const char *format, va_list arguments)
{
    char marked[FORMAT_BYTES];

    if (strchr(plain, MARK) == NULL && (size_t)snprintf(marked, sizeof(marked), "%s", format) < sizeof(marked)) {
        for (char *at = marked; *at != '\0'; at++)
            if (is_handle(at))
                *at = MARK;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* the caller's format, with other blanks */
        print(text, marked, arguments);
#pragma GCC diagnostic pop
        return;
    }
    memcpy(text, plain, strlen(plain) + 1);
    for (char *at = strchr(text, MARK); at != NULL; at = strchr(at, MARK))
        *at = '?';
}

void lh_log(enum lh_log_level level, const char *format, ...)
{
    char text[TEXT_BYTES];
    char marked[TEXT_BYTES];
    va_list arguments;

    if (level < lowest_level)
        return;
    va_start(arguments, format);
    print(text, format, arguments);
    va_end(arguments);
    if (current_sink != NULL) {
        struct line line = JOURNAL_LINE;
        append_escaped(&line, text, strlen(text), false);
        current_sink(current_sink_arg, level, line.bytes);
        return;
    }
    if (current_form == LH_LOG_TEXT) {
        write_or_drop(level, text);
        return;
    }
    va_start(arguments, format);
    print_marked(marked, text, format, arguments);
    va_end(arguments);
    if (current_form == LH_LOG_JSON)
        write_or_drop(level, marked);
    else
        write_journal(level, text, marked);
}
