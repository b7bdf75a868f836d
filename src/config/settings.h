/*
 * The daemon's settings. One table (settings.c) holds for each its name, type, default, bounds, whether a reload
 * changes it, and its help; the same table reads the file, the environment and the command line, and prints the help,
 * the effective values and a documented example file.
 *
 *     lh_settings_init(&settings);
 *     if (!lh_settings_load(&settings, argc, argv, &errors))
 *         fputs(errors.text, stderr), exit 2
 *
 * The command line wins over the environment, that over the file, and that over the defaults.
 */
#ifndef LH_CONFIG_SETTINGS_H
#define LH_CONFIG_SETTINGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define LH_SETTINGS_MAX 80

struct lh_strings {
    char **items;
    size_t count;
};

/* The action that the command line asks for. */
enum lh_config_action {
    LH_CONFIG_SERVE,
    LH_CONFIG_HELP,
    LH_CONFIG_VERSION,
    LH_CONFIG_CHECK, /* print the effective values */
    LH_CONFIG_PRINT, /* print an example file */
};

enum lh_config_rank { LH_RANK_DEFAULT, LH_RANK_FILE, LH_RANK_ENVIRONMENT, LH_RANK_FLAG };

enum lh_tls_client_auth { LH_TLS_CLIENT_REQUIRE, LH_TLS_CLIENT_REQUEST };

/*
 * The sections [database NAME] of the configuration file: where there is more than one database, each has the
 * namespaces that live in it, with all below them; one section may be the default, which has all others. A namespace
 * that several sections have under `spread` has a part of its keys in each.
 *
 *     [database eu]
 *     database = host=db1.eu,db2.eu dbname=leasehold
 *     namespaces = payments, shop.eu
 *     spread = jobs
 */
#define LH_DATABASES_MAX 64
#define LH_DATABASE_NAME_MAX_BYTES 32 /* inih cuts a header at 49 bytes */

struct lh_database_section {
    char *name;
    char *database;               /* a connection string */
    struct lh_strings namespaces; /* dotted */
    struct lh_strings spread;     /* the same; other sections may have them too */
    bool is_default;
    int line; /* line of its first setting in the file */
    int lines[4];
};

struct lh_settings {
    enum lh_config_action action;

    char *config; /* every string: NULL where there is none */
    struct lh_strings listen;
    bool insecure;
    bool reuse_port;
    int64_t socket_mode;     /* mode of unix sockets, as in chmod */
    char *tls_cert;          /* NULL: no TLS */
    char *tls_key;           /* with tls_cert */
    char *tls_client_ca;     /* NULL: clients are not asked for a certificate */
    char *tls_crl;           /* NULL: revocation is not looked at */
    int64_t tls_client_auth; /* enum lh_tls_client_auth */
    int64_t tls_min_version; /* the place in 1.2|1.3 */
    bool authorization;      /* the default: yes where `listen` is beyond this machine */
    struct lh_strings admin_principals;
    int64_t max_connection_age_us;
    char *admin; /* NULL: no admin port */
    struct lh_strings admin_hosts;
    char *port_file;
    char *pid_file;
    char *user; /* NULL: see daemon/process.h */

    char *database;
    char *embedded;                        /* the directory; set exactly when there is no database otherwise */
    struct lh_database_section *databases; /* see above; with any, database and embedded are NULL */
    size_t database_count;
    bool migrate;
    int64_t lanes;
    int64_t hook_lanes;
    int64_t metrics_namespaces;

    int64_t max_block_us;
    int64_t busy_limit_us;
    int64_t max_guard_us;
    int64_t reap_interval_us;
    int64_t idle_timeout_us;
    int64_t keepalive_us;
    int64_t keepalive_timeout_us;
    int64_t max_connections;
    int64_t max_streams;
    int64_t connection_memory; /* bytes */
    int64_t memory;
    int64_t watch_buffer;
    bool hold_by_ping;
    int64_t handshake_timeout_us;
    int64_t request_timeout_us;
    int64_t stall_timeout_us;
    int64_t max_waiters;
    int64_t max_pending;
    int64_t max_hooked;
    int64_t max_watchers;
    int64_t max_waiters_per_client; /* this and the next two: 0: a tenth of the daemon's, at least 100 */
    int64_t max_pending_per_client;
    int64_t max_watchers_per_client;

    int64_t log_level;  /* enum lh_log_level */
    int64_t log_format; /* enum lh_log_form */
    int64_t shutdown_timeout_us;

    char *trace_endpoint; /* NULL: no traces */
    char *trace_ca;       /* NULL: without TLS */
    int64_t trace_sample; /* millionths */

    /* The source of each row of the table, and the line of a file. */
    enum lh_config_rank ranks[LH_SETTINGS_MAX];
    int lines[LH_SETTINGS_MAX];
};

/* All that is wrong, one line each. Zero-initialised it is empty. */
struct lh_config_errors {
    char *text;
    size_t size;
};

void lh_settings_init(struct lh_settings *settings); /* the defaults */
void lh_settings_finish(struct lh_settings *settings);
void lh_config_errors_finish(struct lh_config_errors *errors);

/* From argv, the environment and the file they name. `settings` must be fresh from init. False: see `errors`. */
bool lh_settings_load(struct lh_settings *settings, int argc, char **argv, struct lh_config_errors *errors);

/* One more thing that is wrong: `name` with its value, and where it was set. */
void lh_settings_refuse(const struct lh_settings *settings, const char *name, const char *why,
                        struct lh_config_errors *errors);
/* The same of the connection string of the section [database] at `index`. */
void lh_settings_refuse_database(const struct lh_settings *settings, size_t index, const char *why,
                                 struct lh_config_errors *errors);

/* The same of a section [database] by its name. */
void lh_settings_refuse_section(const struct lh_settings *settings, const char *section,
                                struct lh_config_errors *errors, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/*
 * A reload adds and removes sections of spread namespaces. Returns false, and says why, if sections differ in another way.
 */
bool lh_settings_check_reload(struct lh_settings *settings, struct lh_settings *fresh, struct lh_config_errors *errors);
/*
 * After that: copy from `fresh` what may change while the daemon runs, and call `told` with a sentence for each
 * setting that differs. The sections are swapped.
 */
void lh_settings_adopt(struct lh_settings *settings, struct lh_settings *fresh,
                       void (*told)(void *arg, const char *sentence), void *arg);

/* max_block, but at most 0.97 of idle_timeout: where idle connections are closed after a time, every call must be
   answered before. 0: calls may wait for ever. */
int64_t lh_settings_max_block_us(const struct lh_settings *settings);

void lh_settings_print_help(FILE *out);
void lh_settings_print_effective(const struct lh_settings *settings, FILE *out);
void lh_settings_print_example(FILE *out);

/* A connection string or URL without its password, for logs; free() it. */
char *lh_database_redact(const char *database);

#endif
