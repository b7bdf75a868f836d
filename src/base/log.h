/*
 * Logs are sentences with handles, one line each, on stderr:
 *
 *     lh_info("lease expired scope=%s/%s token=%lld", ns, key, token);
 *     2026-11-20T18:28:57.123456Z INFO lease expired scope=db/7 token=42
 *
 * Info is for transitions. No credentials, no payloads. Control characters are written as \xNN.
 */
#ifndef LH_BASE_LOG_H
#define LH_BASE_LOG_H

#ifndef LEASEHOLD_H /* the public header declares it too */
enum lh_log_level { LH_LOG_DEBUG, LH_LOG_INFO, LH_LOG_WARN, LH_LOG_ERROR };
#endif

/* The lowest level that is written; the default is LH_LOG_INFO. */
void lh_log_set_level(enum lh_log_level level);
enum lh_log_level lh_log_level(void);

/* Where lines go instead of stderr, for tests and for the library; NULL: stderr again. */
typedef void lh_log_sink(void *arg, enum lh_log_level level, const char *line);
void lh_log_set_sink(lh_log_sink *sink, void *arg);

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
