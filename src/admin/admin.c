#include "admin/admin.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "admin/ready.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "lease/coordinator.h"
#include "loop/loop.h"

#define HEADER_MAX_BYTES 8192
#define BODY_MAX_BYTES 4096
#define TIMEOUT_S 10 /* of a connection that says nothing, or takes nothing */

struct lh_admin {
    struct evhttp *http;
    struct lh_coordinator *coordinator;
    const char *phase;
};

static void answer(struct evhttp_request *request, int code, const char *text)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);
    struct evbuffer *body = evhttp_request_get_output_buffer(request);

    evhttp_add_header(headers, "Content-Type", "text/plain; charset=utf-8");
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evbuffer_add(body, text, strlen(text));
    evbuffer_add(body, "\n", 1);
    evhttp_send_reply(request, code, NULL, NULL);
}

static void on_healthz(struct evhttp_request *request, void *arg)
{
    answer(request, HTTP_OK, "ok");
}

static void on_readyz(struct evhttp_request *request, void *arg)
{
    const struct lh_admin *admin = arg;
    struct lh_ready_facts facts = {.phase = admin->phase, .now_us = lh_clock_us()};
    char words[LH_READY_WORDS_BYTES];
    bool is_ready;

    if (admin->coordinator != NULL) {
        struct lh_coordinator_stats stats;
        struct lh_store *store = lh_coordinator_store(admin->coordinator);
        lh_coordinator_stats(admin->coordinator, &stats);
        facts.has_coordinator = true;
        facts.is_connected = store->ops->is_connected(store);
        facts.last_tick_us = stats.last_tick_us;
    }
    is_ready = lh_ready_judge(&facts, words);
    answer(request, is_ready ? HTTP_OK : HTTP_SERVUNAVAIL, words);
}

static void on_other(struct evhttp_request *request, void *arg)
{
    answer(request, HTTP_NOTFOUND, "there is nothing here; try /healthz or /readyz");
}

static const struct {
    const char *path;
    void (*on_request)(struct evhttp_request *request, void *arg);
} routes[] = {
    {"/healthz", on_healthz},
    {"/readyz", on_readyz},
};

struct lh_admin *lh_admin_create(struct lh_loop *loop, int fd)
{
    struct lh_admin *admin = lh_alloc_zero(1, sizeof(*admin));

    admin->phase = "starting";
    admin->http = evhttp_new(lh_loop_base(loop));
    if (admin->http == NULL || evhttp_accept_socket(admin->http, fd) != 0) {
        lh_err("admin: the HTTP server cannot be set up");
        close(fd);
        if (admin->http != NULL)
            evhttp_free(admin->http);
        free(admin);
        return NULL;
    }
    evhttp_set_max_headers_size(admin->http, HEADER_MAX_BYTES);
    evhttp_set_max_body_size(admin->http, BODY_MAX_BYTES);
    evhttp_set_timeout(admin->http, TIMEOUT_S);
    evhttp_set_allowed_methods(admin->http, EVHTTP_REQ_GET | EVHTTP_REQ_HEAD);
    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++)
        evhttp_set_cb(admin->http, routes[i].path, routes[i].on_request, admin);
    evhttp_set_gencb(admin->http, on_other, admin);
    return admin;
}

void lh_admin_destroy(struct lh_admin *admin)
{
    if (admin == NULL)
        return;
    evhttp_free(admin->http); /* closes the listening socket and what is open */
    free(admin);
}

void lh_admin_set_phase(struct lh_admin *admin, const char *phase)
{
    if (admin != NULL)
        admin->phase = phase;
}

void lh_admin_set_coordinator(struct lh_admin *admin, struct lh_coordinator *coordinator)
{
    if (admin != NULL)
        admin->coordinator = coordinator;
}
