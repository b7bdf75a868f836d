/*
 * Changes as they come (https://html.spec.whatwg.org/multipage/server-sent-events.html), from WatchLeases:
 *
 *     synced    from now on no change is missed
 *     changes   what has changed since, at most 4 times a second; of each scope the newest event, and of each shared holder
 *     reset     more changed than is kept between two of these: load the lists again
 *     end       the caller may not see them any more: do not come back
 *
 * A stream costs the daemon a watch, and what waits for its turn: CHANGES_MAX changes or CHANGES_MAX_BYTES. A client that
 * leaves UNREAD_MAX_BYTES unread is cut; it may come back.
 */
#include "console/console_internal.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/table.h"
#include "leasehold/v1/console.pb-c.h"
#include "json/print.h"

#define TURN_US (250 * LH_US_PER_MS)
#define LOOK_US (5 * LH_US_PER_S) /* after the caller's token, and whether the client is still there */
#define CHANGES_MAX 1000
#define CHANGES_MAX_BYTES (1024 * 1024)
#define UNREAD_MAX_BYTES (1024 * 1024)

struct change {
    struct lh_table_entry entry;
    struct lh_link link;
    char *name; /* of its scope, and of a shared lease its token: what is below is in one piece with it */
    size_t size;
    uint8_t *event;
};

struct stream {
    struct lh_link link;
    struct lh_console *console;
    struct lh_http_request *request;
    struct lh_rpc_channel *channel;
    struct lh_deferred end; /* outside of the channel's callbacks */
    struct lh_timer turn;
    struct lh_timer look;
    struct lh_table changes;
    struct lh_link in_order;
    size_t bytes;
    bool is_too_much;
    bool is_open;
    bool is_looking;
    uint64_t session;    /* 0: none */
    char *authorization; /* NULL: none */
    json_t *last_words;  /* of an "end"; NULL: the client may come back */
    int code;            /* of an answer that is no stream */
};

static bool is_change_of(const struct lh_table_entry *entry, const void *name)
{
    return strcmp(LH_CONTAINER(const struct change, entry, entry)->name, name) == 0;
}

static void forget(struct stream *stream, struct change *change)
{
    lh_table_remove(&stream->changes, &change->entry);
    lh_list_remove(&change->link);
    stream->bytes -= change->size;
    free(change->name);
    free(change->event);
    free(change);
}

static void forget_all(struct stream *stream)
{
    while (!lh_list_is_empty(&stream->in_order))
        forget(stream, LH_LIST_FIRST(struct change, &stream->in_order, link));
}

static void destroy(void *arg)
{
    struct stream *stream = arg;

    stream->console->stats.streams--;
    lh_list_remove(&stream->link);
    lh_deferred_cancel(&stream->end);
    lh_timer_finish(&stream->turn);
    lh_timer_finish(&stream->look);
    stream->request = NULL;
    lh_rpc_channel_destroy(stream->channel);
    forget_all(stream);
    lh_table_finish(&stream->changes);
    json_decref(stream->last_words);
    if (stream->authorization != NULL)
        explicit_bzero(stream->authorization, strlen(stream->authorization));
    free(stream->authorization);
    free(stream);
}

/* --- what the client hears --- */

/* Takes the reference. False: it does not read. */
static bool tell(struct stream *stream, const char *event, json_t *data)
{
    char *text, *message;
    size_t unread;

    lh_console_remove_lease_keys(data);
    text = json_dumps(data, JSON_COMPACT);
    message = lh_format("event: %s\ndata: %s\n\n", event, text);
    unread = lh_http_write_stream(stream->request, message, strlen(message));

    json_decref(data);
    free(text);
    free(message);
    return unread <= UNREAD_MAX_BYTES;
}

static void on_end(void *arg)
{
    struct stream *stream = arg;

    if (!stream->is_open) {
        lh_console_answer_json(stream->request, stream->code, json_incref(stream->last_words));
    } else {
        if (stream->last_words != NULL)
            tell(stream, "end", json_incref(stream->last_words));
        lh_http_end_stream(stream->request);
    }
    destroy(stream);
}

static json_t *take_changes(struct stream *stream)
{
    json_t *events = json_array();

    LH_LIST_EACH(struct change, change, &stream->in_order, link) {
        Leasehold__V1__LeaseEvent *event = leasehold__v1__lease_event__unpack(NULL, change->size, change->event);
        if (event != NULL)
            json_array_append_new(events, lh_json_from_message(&event->base, LH_JSON_ALL_FIELDS));
        leasehold__v1__lease_event__free_unpacked(event, NULL);
    }
    forget_all(stream);
    return json_pack("{s:o}", "events", events);
}

static void on_turn(void *arg)
{
    struct stream *stream = arg;
    bool reads;

    if (stream->is_too_much)
        reads = tell(stream, "reset", json_pack("{s:s}", "message", "too many changes at once: load the lists again"));
    else
        reads = tell(stream, "changes", take_changes(stream));
    stream->is_too_much = false;
    if (reads)
        return;
    stream->console->stats.slow_streams++;
    lh_http_end_stream(stream->request);
    destroy(stream);
}

/* --- what the watch says --- */

static void on_open(void *arg)
{
    struct stream *stream = arg;

    if (stream->request == NULL || stream->is_open)
        return;
    stream->is_open = true;
    lh_console_add_headers(stream->request);
    lh_http_add_header(stream->request, "Cache-Control", "no-store");
    lh_http_begin_stream(stream->request, "text/event-stream");
    lh_http_write_stream(stream->request, "retry: 2000\n\n", 13);
    tell(stream, "synced", json_object());
    lh_timer_arm_at_us(&stream->look, lh_clock_us() + LOOK_US);
}

static char *name_of(const Leasehold__V1__Lease *lease)
{
    const Leasehold__V1__Scope *scope = lease->scope;
    struct lh_buffer name = {0};
    char token[32] = "";

    for (size_t i = 0; i < scope->n_namespace_; i++) {
        lh_buffer_append(&name, scope->namespace_[i], strlen(scope->namespace_[i]));
        lh_buffer_append(&name, ".", 1);
    }
    if (lease->mode == LEASEHOLD__V1__MODE__MODE_SHARED)
        snprintf(token, sizeof(token), "%" PRId64, lease->token);
    lh_buffer_append(&name, "\n", 1);
    lh_buffer_append(&name, token, strlen(token));
    lh_buffer_append(&name, "\n", 1);
    lh_buffer_append(&name, scope->key, strlen(scope->key) + 1);
    return (char *)name.data;
}

static void keep(struct stream *stream, const Leasehold__V1__Lease *lease, const void *data, size_t size)
{
    struct change *change = lh_alloc_zero(1, sizeof(*change));
    uint64_t hash;
    struct lh_table_entry *before;

    change->name = name_of(lease);
    change->size = size;
    change->event = lh_alloc(size + 1);
    memcpy(change->event, data, size);
    hash = lh_hash(change->name, strlen(change->name), 0);
    before = lh_table_find(&stream->changes, hash, change->name);
    if (before != NULL)
        forget(stream, LH_CONTAINER(struct change, entry, before));
    lh_table_insert(&stream->changes, &change->entry, hash);
    lh_list_append(&stream->in_order, &change->link);
    stream->bytes += size;
}

static void on_message(void *arg, const void *data, size_t size)
{
    struct stream *stream = arg;
    Leasehold__V1__LeaseEvent *event = leasehold__v1__lease_event__unpack(NULL, size, data);

    if (stream->request != NULL && event != NULL && event->lease != NULL && event->lease->scope != NULL) {
        if (!stream->is_too_much)
            keep(stream, event->lease, data, size);
        if (stream->changes.count > CHANGES_MAX || stream->bytes > CHANGES_MAX_BYTES) {
            stream->is_too_much = true;
            forget_all(stream);
        }
        if (!lh_timer_is_armed(&stream->turn))
            lh_timer_arm_at_us(&stream->turn, lh_clock_us() + TURN_US);
    }
    leasehold__v1__lease_event__free_unpacked(event, NULL);
}

static void end_with(struct stream *stream, const struct lh_rpc_result *result)
{
    bool is_final = result->code == LH_GRPC_UNAUTHENTICATED || result->code == LH_GRPC_PERMISSION_DENIED;

    if (stream->last_words == NULL && (is_final || !stream->is_open)) {
        stream->last_words = lh_console_error_of(result);
        stream->code = lh_console_code_of(result->code);
    }
    lh_defer(stream->console->loop, &stream->end);
}

static void on_watch_done(void *arg, const struct lh_rpc_result *result)
{
    struct stream *stream = arg;

    if (stream->request != NULL)
        end_with(stream, result);
}

/* --- is the caller still who it was? --- */

static void on_looked(void *arg, const struct lh_rpc_result *result)
{
    struct stream *stream = arg;

    stream->is_looking = false;
    if (stream->request != NULL && result->code == LH_GRPC_UNAUTHENTICATED)
        end_with(stream, result);
}

static void start(struct stream *stream, const char *method, const void *packed, size_t size,
                  const struct lh_rpc_stream_callbacks *callbacks, bool is_watch)
{
    const struct lh_rpc_metadata metadata = {"authorization", stream->authorization};
    struct lh_rpc_client_call *call =
        lh_rpc_client_call_start(stream->channel, method, is_watch ? LH_RPC_FOREVER : lh_clock_us() + LOOK_US,
                                 &metadata, stream->authorization == NULL ? 0 : 1, callbacks, stream);

    if (is_watch)
        lh_rpc_client_call_on_open(call, on_open);
    lh_rpc_client_call_send(call, packed, size);
    lh_rpc_client_call_half_close(call);
}

static void on_look(void *arg)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_done = on_looked};
    static const struct lh_rpc_result signed_out = {.code = LH_GRPC_UNAUTHENTICATED,
                                                    .message = "the session has ended: sign in again"};
    struct stream *stream = arg;
    int64_t now_us = lh_clock_us();

    lh_timer_arm_at_us(&stream->look, now_us + LOOK_US);
    if (stream->session != 0 && lh_session_find_number(&stream->console->sessions, stream->session, now_us) == NULL) {
        end_with(stream, &signed_out);
        return;
    }
    lh_http_write_stream(stream->request, ": still here\n\n", 14);
    if (stream->authorization == NULL || stream->is_looking)
        return;
    stream->is_looking = true;
    start(stream, "/leasehold.v1.ConsoleService/GetSession", "", 0, &callbacks, false);
}

/* --- begin and end --- */

static void begin(struct lh_console *console, struct lh_http_request *request, const struct console_caller *caller,
                  const ProtobufCMessage *message)
{
    static const struct lh_rpc_stream_callbacks callbacks = {.on_message = on_message, .on_done = on_watch_done};
    struct lh_rpc_channel *channel = lh_console_connect(console, request);
    size_t size = protobuf_c_message_get_packed_size(message);
    struct stream *stream;
    uint8_t *packed;

    if (channel == NULL)
        return;
    stream = lh_alloc_zero(1, sizeof(*stream));
    stream->console = console;
    stream->request = request;
    stream->channel = channel;
    stream->session = caller->session != NULL ? caller->session->number : 0;
    stream->authorization = lh_strdup(caller->authorization);
    lh_table_init(&stream->changes, is_change_of);
    lh_list_init(&stream->in_order);
    lh_deferred_init(&stream->end, on_end, stream);
    lh_timer_init(&stream->turn, console->loop, on_turn, stream);
    lh_timer_init(&stream->look, console->loop, on_look, stream);
    lh_list_append(&console->streams, &stream->link);
    console->stats.streams++;
    request->on_gone = destroy;
    request->data = stream;
    packed = lh_alloc(size + 1);
    protobuf_c_message_pack(message, packed);
    start(stream, "/leasehold.v1.LeaseService/WatchLeases", packed, size, &callbacks, true);
    free(packed);
}

void lh_console_stream(struct lh_console *console, struct lh_http_request *request, const json_t *parameters)
{
    struct lh_arena arena = {0};
    struct lh_json_problem problem = {0};
    struct console_caller caller;
    ProtobufCMessage *message;

    if (!lh_console_identify(console, request, &caller))
        return;
    message = lh_request_message(&leasehold__v1__watch_leases_request__descriptor, parameters, false, &arena, &problem);
    if (message == NULL || ((Leasehold__V1__WatchLeasesRequest *)(void *)message)->include_initial)
        lh_console_refuse(request, 400, "the parameters are namespace and include_children (true or false)");
    else if (console->stats.streams >= CONSOLE_STREAMS_MAX)
        lh_console_refuse(request, 429, "too many streams of events are open: close one");
    else
        begin(console, request, &caller, message);
    lh_arena_finish(&arena);
}

void lh_console_end_streams(struct lh_console *console)
{
    LH_LIST_EACH(struct stream, stream, &console->streams, link) {
        if (stream->is_open)
            lh_http_end_stream(stream->request);
        else
            lh_console_refuse(stream->request, 503, "the daemon is shutting down");
        destroy(stream);
    }
}
