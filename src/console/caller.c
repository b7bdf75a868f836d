/* Who a request comes from: a bearer token, else the session of a cookie, else whoever the connection is. */
#include "console/caller.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "console/answer.h"
#include "rpc/server.h"

void lh_console_forget_cookie(struct lh_http_request *request)
{
    lh_http_add_header(request, "Set-Cookie", SESSION_COOKIE "=; HttpOnly; SameSite=Strict; Path=/; Max-Age=0");
}

void lh_console_set_cookie(struct lh_http_request *request, const struct session *session)
{
    char *cookie = lh_format("%s=%s; HttpOnly; SameSite=Strict; Path=/; Max-Age=%lld%s", SESSION_COOKIE, session->id,
                             (long long)(SESSION_LIFE_US / LH_US_PER_S), request->is_tls ? "; Secure" : "");

    lh_http_add_header(request, "Set-Cookie", cookie);
    free(cookie);
}

bool lh_console_identify(struct lh_console *console, struct lh_http_request *request, struct console_caller *caller)
{
    const char *csrf = lh_http_head_find(&request->head, "x-csrf-token");
    char id[SESSION_SECRET_BYTES];

    *caller = (struct console_caller){.authorization = lh_http_head_find(&request->head, "authorization")};
    if (caller->authorization != NULL ||
        !lh_session_cookie(lh_http_head_find(&request->head, "cookie"), SESSION_COOKIE, id, sizeof(id)))
        return true;
    caller->session = lh_session_find(&console->sessions, id, lh_clock_us());
    if (caller->session == NULL) {
        lh_console_forget_cookie(request);
        lh_console_refuse(request, 401, "the session has ended: sign in again");
        return false;
    }
    if (strcmp(request->head.method, "POST") == 0 && (csrf == NULL || !lh_session_is_csrf(caller->session, csrf))) {
        lh_console_refuse(request, 403, "the header X-CSRF-Token must be the csrf_token of /api/v1/session");
        return false;
    }
    caller->authorization = caller->session->authorization;
    return true;
}

static bool is_private(const struct lh_http_request *request)
{
    return request->is_tls || request->is_unix || strncmp(request->peer, "127.", 4) == 0 ||
           strncmp(request->peer, "[::1]", 5) == 0 || strncmp(request->peer, "[::ffff:127.", 12) == 0;
}

struct lh_rpc_channel *lh_console_connect(struct lh_console *console, struct lh_http_request *request)
{
    char *user = request->is_unix ? lh_rpc_unix_principal(request->fd) : NULL;
    struct lh_rpc_visitor visitor = {
        .principal = user != NULL ? user : request->principal,
        .peer = request->peer,
        .is_private = is_private(request),
    };
    int fd = console->server == NULL ? -1 : lh_rpc_server_open(console->server, &visitor);

    free(user);
    if (fd >= 0)
        return lh_rpc_channel_create_on(console->loop, fd);
    lh_console_refuse(request, 503, "the daemon is starting or shutting down");
    return NULL;
}
