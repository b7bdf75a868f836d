/*
 * The console: a page and its JSON, on the admin port.
 *
 *     GET /, /app.js, ...           the page (files of this folder, compiled in)
 *     GET, POST /api/v1/...         messages of gRPC as JSON, see console_route.c
 *     GET /api/v1/events            changes as they come, see events.c
 *
 * The story of a call: its origin and its host are judged, so that no other site can use a browser that may come in here;
 * its parameters become the messages of gRPC methods (parameters.c); these are called in this process, over a connection of
 * their own whose client is the one that came in here: rights, limits and audit are those of a gRPC call. Their answers
 * become one JSON object.
 */
#ifndef LH_CONSOLE_CONSOLE_H
#define LH_CONSOLE_CONSOLE_H

#include <stddef.h>
#include <stdint.h>

struct lh_console;
struct lh_http_request;
struct lh_loop;
struct lh_rpc_server;

struct lh_console *lh_console_create(struct lh_loop *loop);
void lh_console_destroy(struct lh_console *console); /* answers what is open */

/* Names by which browsers may come in without TLS, beside addresses and localhost. Borrowed. */
void lh_console_set_hosts(struct lh_console *console, const char *const *hosts, size_t count);
/* Sets the server that gets the calls from now on; NULL: none (any more), and open requests are answered. */
void lh_console_set_server(struct lh_console *console, struct lh_rpc_server *server);

/* lh_admin_set_other's; `arg` is the console. */
void lh_console_on_request(void *arg, struct lh_http_request *request);

struct lh_console_stats {
    size_t sessions;
    size_t streams;
    uint64_t requests;
    uint64_t refused_origins; /* another site's, and unknown hosts */
    uint64_t refused_sign_ins;
    uint64_t slow_streams; /* cut */
};
void lh_console_stats(const struct lh_console *console, struct lh_console_stats *stats);

#endif
