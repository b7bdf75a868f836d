/*
 * A server with its services and its coordinator, on the fake store: what do three clients have to send to break it?
 * When they have gone, it keeps nothing for them, and it stops. As fuzz_server_tls it is built with FUZZ_TLS 1: then
 * they speak TLS, and may send what is none.
 */
#include <netinet/in.h>
#include <string.h>

#include "fuzz.h"
#include "lease/coordinator.h"
#include "loop/internal.h"
#include "requests.h"
#include "rpc/server/server_internal.h"
#include "service/service.h"
#include "sockets.h"
#include "store.h"
#include "tls_peer.h"

#define CLIENTS 3
#define STREAMS_MAX 32 /* of a client, that the deeds speak of */
#define STEP_US 1000   /* of a turn */
#define TIME_US (100 * LH_US_PER_S)
#define PREFACE "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
#define END_PATIENCE_TURNS 200
#define HANDSHAKE_TURNS 8

struct client {
    int fd;
    uint32_t next_stream;
    struct lh_buffer out;
    struct fuzz_tls_peer *tls; /* with FUZZ_TLS */
};

static struct lh_tls_context *tls; /* NULL: without TLS */

static struct lh_loop *loop; /* of all inputs */
static struct fake_world world;
static struct fake_node *node;
static struct lh_service *service;
static struct lh_rpc_server *server;
static struct client clients[CLIENTS];
static bool is_drained;
static int64_t time_left_us; /* of an input: beyond it time goes on slowly */

/* An index over all descriptors takes half a millisecond to make, and is only read: one does for all inputs. */
struct lh_reflection *__real_lh_reflection_create(void);
struct lh_reflection *__wrap_lh_reflection_create(void);
struct lh_reflection *__wrap_lh_reflection_create(void)
{
    static struct lh_reflection *only;

    if (only == NULL)
        only = __real_lh_reflection_create();
    return only;
}

void __wrap_lh_reflection_destroy(struct lh_reflection *reflection);
void __wrap_lh_reflection_destroy(struct lh_reflection *reflection)
{
}

/* Time goes on in the coordinator's world, and the loop's time with it. */
static void turn(int64_t step_us)
{
    if (step_us > time_left_us)
        step_us = STEP_US;
    time_left_us -= step_us;
    fake_run(&world, step_us);
    fuzz_now_us = world.now_us;
    lh_loop_run_once(loop, 0);
    for (size_t i = 0; tls != NULL && i < CLIENTS; i++)
        if (clients[i].tls != NULL)
            fuzz_tls_pump(clients[i].tls);
}

static void flush(struct client *client)
{
    if (client->tls != NULL)
        fuzz_tls_write(client->tls, client->out.data, client->out.size);
    else
        fuzz_socket_put(client->fd, client->out.data, client->out.size);
    client->out.size = 0;
}

static void begin_tls(struct client *client, bool is_finished)
{
    fuzz_tls_free(client->tls);
    client->tls = fuzz_tls_connect(client->fd, client == &clients[1]);
    for (int i = 0; is_finished && i < HANDSHAKE_TURNS; i++)
        turn(0);
}

static void connect_client(struct client *client, bool has_preface)
{
    struct lh_address peer = {.size = sizeof(struct sockaddr_in)};
    struct sockaddr_in *address = (struct sockaddr_in *)(void *)&peer.storage;

    address->sin_family = AF_INET;
    address->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    client->fd = fuzz_socket_open();
    client->next_stream = 1;
    lh_rpc_server_accept(server, client->fd, &peer);
    if (tls != NULL)
        begin_tls(client, has_preface);
    if (!has_preface)
        return;
    lh_buffer_append(&client->out, PREFACE, sizeof(PREFACE) - 1);
    fuzz_frame(&client->out, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

static void set_up(uint8_t options_of)
{
    struct lh_coordinator_options options;
    struct lh_service_options of_service;
    struct lh_rpc_server_options of_server;
    size_t count;
    const struct lh_rpc_method *methods = lh_service_methods(&count);

    time_left_us = TIME_US;
    fake_world_init(&world, 1);
    fuzz_now_us = world.now_us;
    lh_coordinator_options_init(&options);
    lh_service_options_init(&of_service);
    lh_rpc_server_options_init(&of_server);
    if (options_of & 1) { /* bounds that a short input reaches */
        of_server.connection_memory = 256 * 1024;
        of_server.memory = 400 * 1024;
        of_server.max_streams = 8;
        of_server.reset_burst = 4;
        of_server.control_burst = 16;
        of_server.max_message_bytes = 4096;
        of_server.output_mark_bytes = 4096;
        of_server.stream_mark_bytes = 1024;
        of_server.max_stream_bytes = 4096;
        of_service.watch_buffer = 1024;
        options.max_waiters = 4;
        options.max_pending = 4;
        for (size_t i = 0; i < LH_USAGE_BOUNDS; i++)
            of_service.caller_limits[i] = 2;
    }
    world.is_hooked = (options_of & 2) != 0;
    world.hook_timeout_us = LH_US_PER_S;
    world.hook_reject_percent = 30;
    node = fake_node_start(&world, &options);
    fuzz_store_complete(node);
    service = lh_service_create(node->coordinator, &of_service);
    of_server.encode_error = lh_service_encode_error;
    of_server.on_late_cancel = lh_service_on_late_cancel;
    of_server.on_client_gone = lh_service_on_client_gone;
    server = lh_rpc_server_create(loop, &of_server, methods, count, service);
    if (tls != NULL)
        lh_rpc_server_set_tls(server, tls);
    turn(10 * LH_US_PER_MS);
    lh_service_tick(service);
}

static void on_stopped(void *arg)
{
    *(bool *)arg = true;
}

static void tear_down(void)
{
    struct lh_rpc_server_stats stats;
    struct lh_coordinator_stats core;
    bool has_stopped = false;

    time_left_us = INT64_MAX;
    for (size_t i = 0; i < CLIENTS; i++) {
        fuzz_socket_set_stuck(clients[i].fd, false);
        fuzz_socket_end(clients[i].fd, false);
        fuzz_tls_free(clients[i].tls);
        clients[i].tls = NULL;
        lh_buffer_finish(&clients[i].out);
    }
    lh_rpc_server_stats(server, &stats);
    for (int i = 0; i < END_PATIENCE_TURNS && stats.connections > 0; i++) {
        turn(100 * LH_US_PER_MS);
        lh_rpc_server_stats(server, &stats);
    }
    FUZZ_CHECK(stats.connections == 0);
    FUZZ_CHECK(stats.calls == 0);
    FUZZ_CHECK(stats.memory == 0);
    FUZZ_CHECK(stats.buffered_bytes == 0);
    FUZZ_CHECK(stats.handshakes == 0);
    fake_database_raise(&world);
    lh_coordinator_stop(node->coordinator, on_stopped, &has_stopped);
    for (int i = 0; i < END_PATIENCE_TURNS && !has_stopped; i++)
        turn(100 * LH_US_PER_MS);
    FUZZ_CHECK(has_stopped);
    lh_coordinator_stats(node->coordinator, &core);
    FUZZ_CHECK(core.waiters == 0 && core.pending == 0);
    lh_rpc_server_destroy(server);
    lh_service_destroy(service);
    lh_loop_run_once(loop, 0);
    fake_world_finish(&world); /* and the coordinator */
    is_drained = false;
}

/* --- deeds --- */

static uint32_t pick_stream(struct client *client, struct fuzz_input *input)
{
    return (uint32_t)fuzz_byte(input) % STREAMS_MAX * 2 + 1;
}

static void put_call(struct client *client, const char *path, struct fuzz_input *input, uint8_t flags)
{
    struct lh_buffer block = {0};
    const uint8_t *value;
    size_t size;

    fuzz_field(&block, ":method", "POST", 4);
    fuzz_field(&block, ":scheme", "http", 4);
    fuzz_field(&block, ":path", path, strlen(path));
    fuzz_field(&block, "content-type", "application/grpc", 16);
    fuzz_field(&block, "te", "trailers", 8);
    if (flags & 0x40) {
        size = fuzz_bytes(input, &value);
        fuzz_field(&block, "grpc-timeout", value, size);
    }
    if (flags & 0x80) {
        size = fuzz_bytes(input, &value);
        fuzz_field(&block, "x-more-bin", value, size);
    }
    fuzz_frame(&client->out, NGHTTP2_HEADERS,
               (uint8_t)(NGHTTP2_FLAG_END_HEADERS | (flags & 0x20 ? NGHTTP2_FLAG_END_STREAM : 0)), client->next_stream,
               block.data, block.size);
    lh_buffer_finish(&block);
    client->next_stream += 2;
}

static void put_any_frame(struct client *client, struct fuzz_input *input)
{
    uint8_t type = fuzz_byte(input) % 12, flags = fuzz_byte(input), stream = fuzz_byte(input);
    const uint8_t *payload;
    size_t size = fuzz_bytes(input, &payload);

    fuzz_frame(&client->out, type, flags, stream, payload, size);
}

static void put_any_call(struct client *client, struct fuzz_input *input)
{
    size_t count;
    const struct lh_rpc_method *methods = lh_service_methods(&count);
    const char *path = methods[fuzz_byte(input) % count].path;

    put_call(client, path, input, fuzz_byte(input));
}

static void put_any_message(struct client *client, struct fuzz_input *input)
{
    uint32_t stream = pick_stream(client, input);
    bool is_last = fuzz_byte(input) & 1;
    const uint8_t *bytes;
    size_t size = fuzz_bytes(input, &bytes);

    fuzz_message(&client->out, stream, bytes, size, is_last);
}

/* A call as it should be, or one more message of one. */
static void put_request(struct client *client, struct fuzz_input *input)
{
    uint8_t how = fuzz_byte(input);
    struct lh_buffer packed = {0};
    const char *path;
    uint32_t stream = how & 2 ? pick_stream(client, input) : client->next_stream;

    fuzz_request(input, &packed, &path);
    if ((how & 2) == 0)
        put_call(client, path, input, how & 0x40);
    fuzz_message(&client->out, stream, packed.data, packed.size, how & 1);
    lh_buffer_finish(&packed);
}

static void put_settings(struct client *client, struct fuzz_input *input)
{
    uint8_t value = fuzz_byte(input);
    uint8_t payload[6] = {
        0, (uint8_t)(value % 8), fuzz_byte(input), fuzz_byte(input), fuzz_byte(input), fuzz_byte(input)};

    fuzz_frame(&client->out, NGHTTP2_SETTINGS, 0, 0, payload, sizeof(payload));
}

/* RST_STREAM or WINDOW_UPDATE. */
static void put_number(struct client *client, struct fuzz_input *input, uint8_t type)
{
    uint32_t stream = pick_stream(client, input);
    uint8_t payload[4] = {0, fuzz_byte(input), fuzz_byte(input), fuzz_byte(input)};

    if (type == NGHTTP2_WINDOW_UPDATE && payload[1] == 0)
        stream = 0;
    fuzz_frame(&client->out, type, 0, stream, payload, sizeof(payload));
}

/* The client is gone; another one comes in its place. */
static void replace(struct client *client, uint8_t how)
{
    if (client->tls != NULL && how & 4)
        fuzz_tls_end(client->tls);
    fuzz_socket_end(client->fd, how & 1);
    turn(STEP_US);
    turn(STEP_US);
    if (fuzz_socket_is_open(client->fd))
        return; /* it has more to be told */
    client->out.size = 0;
    if (!is_drained)
        connect_client(client, (how & 2) == 0);
}

static void break_or_mend(uint8_t what)
{
    if (what & 1)
        fake_database_drop(&world);
    else
        fake_database_raise(&world);
}

static void drain(void)
{
    if (is_drained)
        return;
    is_drained = true;
    lh_service_drain(service);
    lh_rpc_server_drain(server, NULL, NULL, NULL);
}

static struct client *do_one(struct client *client, struct fuzz_input *input)
{
    const uint8_t *bytes;
    size_t size;

    switch (fuzz_byte(input) % 19) {
    case 0:
        size = fuzz_bytes(input, &bytes);
        lh_buffer_append(&client->out, bytes, size);
        break;
    case 1:
        put_any_frame(client, input);
        break;
    case 2:
        put_any_call(client, input);
        break;
    case 3:
        put_any_message(client, input);
        break;
    case 4:
    case 5:
        put_request(client, input);
        break;
    case 6:
        flush(client);
        turn(STEP_US);
        break;
    case 7:
        flush(client);
        turn(INT64_C(1) << fuzz_byte(input) % 25);
        break;
    case 8:
        fuzz_socket_set_stuck(client->fd, fuzz_byte(input) & 1);
        break;
    case 9:
        put_number(client, input, NGHTTP2_RST_STREAM);
        break;
    case 10:
        put_number(client, input, NGHTTP2_WINDOW_UPDATE);
        break;
    case 11:
        flush(client);
        return &clients[fuzz_byte(input) % CLIENTS];
    case 12:
        flush(client);
        replace(client, fuzz_byte(input));
        break;
    case 13:
        break_or_mend(fuzz_byte(input));
        break;
    case 14:
        put_settings(client, input);
        break;
    case 15:
        lh_service_tick(service);
        node->events->on_watch(node->events_arg);
        break;
    case 17: /* not through TLS */
        flush(client);
        size = fuzz_bytes(input, &bytes);
        fuzz_socket_put(client->fd, bytes, size);
        break;
    case 18:
        flush(client);
        if (client->tls != NULL)
            fuzz_tls_update_keys(client->tls);
        break;
    default:
        if (fuzz_byte(input) == 0xdd)
            drain();
        break;
    }
    return client;
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    loop = lh_loop_create();
    tls = FUZZ_TLS ? fuzz_tls_init() : NULL;
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    struct client *client = &clients[0];
    uint8_t options = fuzz_byte(&input);

    set_up(options);
    for (size_t i = 0; i < CLIENTS; i++)
        connect_client(&clients[i], (options & 4) == 0 || i > 0);
    while (input.left > 0)
        client = do_one(client, &input);
    flush(client);
    turn(STEP_US);
    turn(STEP_US);
    tear_down();
    return 0;
}
