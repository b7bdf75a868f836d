#include "admin/admin.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "admin/metrics.h"
#include "base/memory.h"
#include "lease/readiness.h"

#define PLAIN "text/plain; charset=utf-8"

struct lh_admin {
    struct lh_http *http;
    const char *phase;
    int64_t started_us; /* the process */
    void (*judge)(void *arg, struct lh_readiness *readiness);
    void (*write_metrics)(void *arg, struct lh_exposition *out);
    void *source;
    lh_http_cb *on_other;
    void *other_arg;
};

static void answer(struct lh_http_request *request, int code, const char *text)
{
    char *line = lh_format("%s\n", text);
    lh_http_add_header(request, "Cache-Control", "no-store");
    lh_http_answer(request, code, PLAIN, line, strlen(line));
    free(line);
}

static void on_healthz(struct lh_admin *admin, struct lh_http_request *request)
{
    answer(request, 200, "ok");
}

static bool judge_now(const struct lh_admin *admin, struct lh_readiness *readiness)
{
    *readiness = (struct lh_readiness){0};
    if (admin->phase == NULL && admin->judge != NULL)
        admin->judge(admin->source, readiness);
    else
        snprintf(readiness->words, sizeof(readiness->words), "%s", admin->phase != NULL ? admin->phase : "starting");
    return readiness->is_ready;
}

static void on_readyz(struct lh_admin *admin, struct lh_http_request *request)
{
    struct lh_readiness readiness;
    bool is_ready = judge_now(admin, &readiness);
    char *words = lh_format("%s%s%s%s", is_ready ? "ready " : "not ready: ", readiness.words,
                            readiness.warning[0] != '\0' ? "\nwarning: " : "", readiness.warning);

    answer(request, is_ready ? 200 : 503, words);
    free(words);
}

static void expose_port(struct lh_exposition *out, const struct lh_http *http)
{
    struct lh_http_stats stats;

    lh_http_stats(http, &stats);
    lh_expose_gauge(out, "leasehold_admin_connections_open", stats.connections, "Connections of the admin port.");
    lh_expose_gauge(out, "leasehold_admin_connections_max", LH_HTTP_CONNECTIONS_MAX,
                    "Connections that the admin port has at most.");
    lh_expose_family(out, "leasehold_admin_connections_cut_total", LH_EXPOSE_COUNTER,
                     "Connections of the admin port that were cut, by why: the most were open, or the request or its "
                     "answer took too long.");
    lh_expose_count(out, stats.evicted, "reason", "max_connections", NULL);
    lh_expose_count(out, stats.timed_out, "reason", "timeout", NULL);
}

static void on_metrics(struct lh_admin *admin, struct lh_http_request *request)
{
    struct lh_exposition out = {0};
    struct lh_readiness readiness;

    lh_metrics_process(&out, admin->started_us);
    lh_expose_gauge(&out, "leasehold_ready", judge_now(admin, &readiness),
                    "1 when /readyz says that this daemon can work.");
    expose_port(&out, admin->http);
    if (admin->write_metrics != NULL)
        admin->write_metrics(admin->source, &out);
    lh_http_add_header(request, "Cache-Control", "no-store");
    lh_http_answer(request, 200, "text/plain; version=0.0.4; charset=utf-8", out.text.data, out.text.size);
    lh_buffer_finish(&out.text);
}

static const struct {
    const char *path;
    void (*on_request)(struct lh_admin *admin, struct lh_http_request *request);
} routes[] = {
    {"/metrics", on_metrics},
    {"/healthz", on_healthz},
    {"/readyz", on_readyz},
};

static void on_request(void *arg, struct lh_http_request *request)
{
    struct lh_admin *admin = arg;

    for (size_t i = 0; i < sizeof(routes) / sizeof(routes[0]); i++) {
        if (strcmp(request->head.path, routes[i].path) != 0)
            continue;
        if (strcmp(request->head.method, "POST") == 0) {
            lh_http_add_header(request, "Allow", "GET, HEAD");
            answer(request, 405, "Method Not Allowed");
        } else {
            routes[i].on_request(admin, request);
        }
        return;
    }
    if (admin->on_other != NULL)
        admin->on_other(admin->other_arg, request);
    else
        answer(request, 404, "there is nothing here; try /metrics, /healthz or /readyz");
}

struct lh_admin *lh_admin_create(struct lh_loop *loop, int fd, struct lh_error *error)
{
    struct lh_admin *admin = lh_alloc_zero(1, sizeof(*admin));

    admin->phase = "starting";
    admin->started_us = lh_process_started_us();
    admin->http = lh_http_create(loop, fd, on_request, admin, error);
    if (admin->http == NULL) {
        free(admin);
        return NULL;
    }
    return admin;
}

void lh_admin_destroy(struct lh_admin *admin)
{
    if (admin == NULL)
        return;
    lh_http_destroy(admin->http);
    free(admin);
}

void lh_admin_set_tls(struct lh_admin *admin, struct lh_tls_context *context)
{
    if (admin != NULL)
        lh_http_set_tls(admin->http, context);
}

void lh_admin_set_phase(struct lh_admin *admin, const char *phase)
{
    if (admin != NULL)
        admin->phase = phase;
}

void lh_admin_set_source(struct lh_admin *admin, void (*judge)(void *arg, struct lh_readiness *readiness),
                         void (*write)(void *arg, struct lh_exposition *out), void *arg)
{
    if (admin == NULL)
        return;
    admin->judge = judge;
    admin->write_metrics = write;
    admin->source = arg;
}

void lh_admin_set_other(struct lh_admin *admin, lh_http_cb *on_other, void *arg)
{
    if (admin == NULL)
        return;
    admin->on_other = on_other;
    admin->other_arg = arg;
}
