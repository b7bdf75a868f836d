#include "cli/reap_server.h"

#include <stdlib.h>

#include "cli/message.h"

#define SERVICE (&leasehold__v1__admin_service__descriptor)
#define MAX_DEFAULT 1000

static enum lh_exit round_by_server(struct lh_reap_pass *pass, struct lh_server *server, bool *more)
{
    Leasehold__V1__ReapRequest request = LEASEHOLD__V1__REAP_REQUEST__INIT;
    size_t count = pass->cli->args.word_count;
    struct lh_segments *segments = lh_alloc_zero(count + 1, sizeof(*segments));
    Leasehold__V1__Namespace **list = lh_alloc_zero(count + 1, sizeof(*list));
    const Leasehold__V1__ReapResponse *response;
    struct lh_reply reply;
    enum lh_exit status;

    for (size_t i = 0; i < count; i++) {
        lh_segments_split(&segments[i], pass->cli->args.words[i]);
        list[i] = &segments[i].message;
    }
    request.namespaces = list;
    request.n_namespaces = count;
    request.include_children = pass->include_children;
    request.max = (int32_t)(pass->max > 0 ? pass->max : MAX_DEFAULT);
    status = lh_server_call(server, SERVICE, "Reap", &request.base, LH_REPEAT, &reply);
    response = (const Leasehold__V1__ReapResponse *)reply.message;
    *more = response != NULL && response->more;
    lh_reap_pass_add_reaped(pass, response != NULL ? response->reaped : 0);
    for (size_t i = 0; response != NULL && i < response->n_failures; i++)
        lh_reap_pass_add_failure(pass, response->failures[i]);
    lh_reply_finish(&reply);
    for (size_t i = 0; i < count; i++)
        lh_segments_finish(&segments[i]);
    free(segments);
    free(list);
    return status;
}

enum lh_exit lh_reap_by_server(struct lh_reap_pass *pass, struct lh_server *server)
{
    enum lh_exit status;
    bool more;

    do
        status = round_by_server(pass, server, &more);
    while (status == LH_EXIT_DONE && more);
    return status;
}
