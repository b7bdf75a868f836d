#include "admin/admin.h"

#include <event2/buffer.h>
#include <event2/http.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "admin/metrics.h"
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
    int64_t started_us; /* the process */
    void (*write_metrics)(void *arg, struct lh_exposition *out);
    void *metrics_arg;
};

static void answer_with(struct evhttp_request *request, int code, const char *type, const void *bytes, size_t size)
{
    struct evkeyvalq *headers = evhttp_request_get_output_headers(request);

    evhttp_add_header(headers, "Content-Type", type);
    evhttp_add_header(headers, "Cache-Control", "no-store");
    evbuffer_add(evhttp_request_get_output_buffer(request), bytes, size);
    evhttp_send_reply(request, code, NULL, NULL);
}

static void answer(struct evhttp_request *request, int code, const char *text)
{
    char *line = lh_format("%s\n", text);
    answer_with(request, code, "text/plain; charset=utf-8", line, strlen(line));
    free(line);
}

static void on_healthz(struct evhttp_request *request, void *arg)
{
    answer(request, HTTP_OK, "ok");
}

static bool is_ready(const struct lh_admin *admin, char words[LH_READY_WORDS_BYTES])
{
    struct lh_ready_facts facts = {.phase = admin->phase, .now_us = lh_clock_us()};

    if (admin->coordinator != NULL) {
        struct lh_coordinator_stats stats;
        struct lh_store *store = lh_coordinator_store(admin->coordinator);
        lh_coordinator_stats(admin->coordinator, &stats);
        facts.has_coordinator = true;
        facts.is_connected = store->ops->is_connected(store);
        facts.last_tick_us = stats.last_tick_us;
    }
    return lh_ready_judge(&facts, words);
}

static void on_readyz(struct evhttp_request *request, void *arg)
{
    char words[LH_READY_WORDS_BYTES];
    bool is_good = is_ready(arg, words);

    answer(request, is_good ? HTTP_OK : HTTP_SERVUNAVAIL, words);
}

static void on_metrics(struct evhttp_request *request, void *arg)
{
    const struct lh_admin *admin = arg;
    struct lh_exposition out = {0};
    char words[LH_READY_WORDS_BYTES];

    lh_metrics_process(&out, admin->started_us);
    lh_expose_gauge(&out, "leasehold_ready", is_ready(admin, words), "1 when /readyz says that this daemon can work.");
    if (admin->coordinator != NULL)
        lh_metrics_coordinator(&out, admin->coordinator);
    if (admin->write_metrics != NULL)
        admin->write_metrics(admin->metrics_arg, &out);
    answer_with(request, HTTP_OK, "text/plain; version=0.0.4; charset=utf-8", out.text.data, out.text.size);
    lh_buffer_finish(&out.text);
}

static void on_other(struct evhttp_request *request, void *arg)
{
    answer(request, HTTP_NOTFOUND, "there is nothing here; try /metrics, /healthz or /readyz");
}

static const struct {
    const char *path;
    void (*on_request)(struct evhttp_request *request, void *arg);
} routes[] = {
    {"/metrics", on_metrics},
    {"/healthz", on_healthz},
    {"/readyz", on_readyz},
};

struct lh_admin *lh_admin_create(struct lh_loop *loop, int fd)
{
    struct lh_admin *admin = lh_alloc_zero(1, sizeof(*admin));
    int yes = 1;

    /* Accepted sockets take it over. The metrics are more than one segment: the last would wait for an acknowledgement.
     */
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
    admin->phase = "starting";
    admin->started_us = lh_process_started_us();
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

void lh_admin_set_metrics(struct lh_admin *admin, void (*write)(void *arg, struct lh_exposition *out), void *arg)
{
    if (admin == NULL)
        return;
    admin->write_metrics = write;
    admin->metrics_arg = arg;
}
