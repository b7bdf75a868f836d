/*
 * Logs are sentences with handles, one line each, on stderr:
 *
 *     lh_info("lease expired scope=%s token=%lld", LH_SCOPE_NAME(ns, key), token);
 *     2026-11-20T18:28:57.123456Z INFO lease expired scope=db/7 token=42
 *
 * A handle is what the format writes as " name=%...": a value cannot make one. In the forms for machines each is a field:
 *
 *     {"time":"2026-11-20T18:28:57.123456Z","level":"info","message":"lease expired","scope":"db/7","token":"42"}
 *     MESSAGE=lease expired scope=db/7 token=42, PRIORITY=6, LEASEHOLD_SCOPE=db/7, LEASEHOLD_TOKEN=42
 *
 * The log never waits for a reader: a line that cannot be written is dropped, and counted in a line of its own once there is room.
 *
 * Info is for transitions. No credentials, no payloads. The bytes of control characters, of those that turn the
 * direction of text, and of what is no UTF-8 are written as \xNN.
 */
#ifndef LH_BASE_LOG_H
#define LH_BASE_LOG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/public_status.h"

/* The lowest level that is written; the default is LH_LOG_INFO. */
void lh_log_set_level(enum lh_log_level level);
enum lh_log_level lh_log_level(void);

/* Text and JSON go to stderr, a line each. */
enum lh_log_form { LH_LOG_TEXT, LH_LOG_JSON, LH_LOG_JOURNALD };
#define LH_JOURNAL_SOCKET "/run/systemd/journal/socket"

/* `journal`: the socket of LH_LOG_JOURNALD (systemd's native protocol). False: it cannot be reached, errno says why, and
 * the form is as it was. A line that it does not take goes to stderr. */
bool lh_log_set_form(enum lh_log_form form, const char *journal);

/* Sends lines to a sink instead of stderr, for tests and for the library; NULL: stderr again. */
typedef void lh_log_sink(void *arg, enum lh_log_level level, const char *line);
void lh_log_set_sink(lh_log_sink *sink, void *arg);

/* Returns how many lines were dropped because stderr did not take them: nobody read the pipe, or the disk was full. */
uint64_t lh_log_dropped(void);

void lh_log(enum lh_log_level level, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define lh_debug(...)                                                                                                  \
    do {                                                                                                               \
        if (lh_log_level() <= LH_LOG_DEBUG)                                                                            \
            lh_log(LH_LOG_DEBUG, __VA_ARGS__);                                                                         \
    } while (0)
#define lh_info(...) lh_log(LH_LOG_INFO, __VA_ARGS__)
#define lh_warn(...) lh_log(LH_LOG_WARN, __VA_ARGS__)
#define lh_err(...) lh_log(LH_LOG_ERROR, __VA_ARGS__)

#endif
