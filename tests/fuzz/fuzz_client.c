/*
 * The library against a server that sends whatever it likes. Each request is answered once, the client can be closed at
 * any time, and it keeps nothing.
 */
#include <event2/event.h>
#include <nghttp2/nghttp2.h>
#include <stdio.h>
#include <string.h>

#include "base/base64.h"
#include "base/clock.h"
#include "client/client.h"
#include "fuzz.h"
#include "google/rpc/error_details.pb-c.h"
#include "google/rpc/status.pb-c.h"
#include "leasehold/v1/leasehold.pb-c.h"
#include "loop/internal.h"
#include "rpc/grpc.h"
#include "sockets.h"

#define REQUESTS_MAX 16
#define LEASES_MAX 8
#define STREAMS_MAX 32
#define STEP_US 1000
#define TIME_US (60 * LH_US_PER_S)
#define END_PATIENCE_TURNS 400

static struct event_base *base; /* of all inputs */
static struct lh_client *client;
static struct lh_declared *declared;
static struct lh_buffer out;
static int64_t time_left_us; /* of an input: beyond it time goes on slowly */

static struct asked {
    struct lh_request *request; /* NULL: none, or answered */
} asked[REQUESTS_MAX];
static struct lh_lease *leases[LEASES_MAX];

static void turn(int64_t step_us)
{
    if (step_us > time_left_us)
        step_us = STEP_US;
    time_left_us -= step_us;
    fuzz_now_us += step_us;
    lh_loop_wake_guest(client->loop);
    event_base_loop(base, EVLOOP_ONCE | EVLOOP_NONBLOCK);
}

/* --- what the program does --- */

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    FUZZ_CHECK(!lh_lease_is_held(lease) || lh_lease_remaining_us(lease) >= 0);
    FUZZ_CHECK(strlen(words) < 4096);
}

static void answer(struct asked *of, const struct lh_error *error)
{
    FUZZ_CHECK(of->request != NULL);
    FUZZ_CHECK(strlen(error->message) < sizeof(error->message));
    of->request = NULL;
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    answer(arg, error);
    FUZZ_CHECK((lease != NULL) == (status == LH_OK));
    for (size_t i = 0; lease != NULL && i < LEASES_MAX; i++) {
        if (leases[i] == NULL) {
            leases[i] = lease;
            return;
        }
    }
    lh_lease_destroy(lease);
}

static void on_done(void *arg, enum lh_status status, const struct lh_error *error)
{
    answer(arg, error);
}

static struct asked *free_slot(void)
{
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        if (asked[i].request == NULL)
            return &asked[i];
    return NULL;
}

static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    FUZZ_CHECK(strlen(obstacle->owner) < 65536);
}

static void acquire(uint8_t how)
{
    struct asked *slot = free_slot();
    struct lh_acquire_options options = {.wait_us = how & 0x10   ? LH_FOREVER
                                                    : how & 0x20 ? 5 * LH_US_PER_S
                                                                 : 0,
                                         .on_waiting = how & 0x40 ? on_waiting : NULL};
    char key[8];

    snprintf(key, sizeof(key), "k%u", how & 3);
    if (slot != NULL)
        lh_acquire_async(declared, key, &options, on_acquired, slot, &slot->request, NULL);
}

static void use_lease(uint8_t how)
{
    struct lh_lease **lease = &leases[how % LEASES_MAX];
    struct asked *slot = free_slot();

    if (*lease == NULL || slot == NULL)
        return;
    if (how & 0x40) {
        lh_heartbeat_async(*lease, NULL, on_done, slot, &slot->request, NULL);
    } else if (how & 0x20) {
        lh_release_async(*lease, NULL, on_done, slot, &slot->request, NULL);
    } else if (how & 0x10) {
        lh_try_release(*lease, NULL);
    } else {
        lh_lease_destroy(*lease);
        *lease = NULL;
    }
}

static void cancel(uint8_t which)
{
    if (asked[which % REQUESTS_MAX].request != NULL)
        lh_cancel(asked[which % REQUESTS_MAX].request);
}

/* --- what the server does --- */

static void flush(void)
{
    if (out.size > 0)
        fuzz_socket_put(fuzz_socket_last(), out.data, out.size);
    out.size = 0;
}

static uint32_t pick_stream(struct fuzz_input *input)
{
    return (uint32_t)fuzz_byte(input) % STREAMS_MAX * 2 + 1;
}

static void put_headers(uint32_t stream, const struct lh_buffer *block, bool is_last)
{
    fuzz_frame(&out, NGHTTP2_HEADERS, (uint8_t)(NGHTTP2_FLAG_END_HEADERS | (is_last ? NGHTTP2_FLAG_END_STREAM : 0)),
               stream, block->data, block->size);
}

static void put_response(uint32_t stream)
{
    struct lh_buffer block = {0};

    fuzz_field(&block, ":status", "200", 3);
    fuzz_field(&block, "content-type", "application/grpc", 16);
    put_headers(stream, &block, false);
    lh_buffer_finish(&block);
}

static void put_any_response(struct fuzz_input *input)
{
    struct lh_buffer block = {0};
    uint32_t stream = pick_stream(input);
    uint8_t how = fuzz_byte(input);
    const uint8_t *value;
    size_t size = fuzz_bytes(input, &value);

    fuzz_field(&block, how & 1 ? ":status" : "x-any", value, size);
    size = fuzz_bytes(input, &value);
    fuzz_field(&block, how & 2 ? "content-type" : "grpc-status", value, size);
    put_headers(stream, &block, how & 4);
    lh_buffer_finish(&block);
}

/* google.rpc.Status with one detail of a kind that clients look at. */
static void pack_details(struct lh_buffer *details, int code, uint8_t kind, const uint8_t *value, size_t size)
{
    static const char *const kinds[] = {"google.rpc.ErrorInfo", "google.rpc.RetryInfo", "google.rpc.BadRequest",
                                        "leasehold.v1.Contention"};
    Google__Rpc__Status status = GOOGLE__RPC__STATUS__INIT;
    Google__Protobuf__Any any = GOOGLE__PROTOBUF__ANY__INIT, *anys = &any;
    Google__Rpc__ErrorInfo info = GOOGLE__RPC__ERROR_INFO__INIT;
    uint8_t packed_info[256];
    char url[64];
    size_t total;

    snprintf(url, sizeof(url), "type.googleapis.com/%s", kinds[kind % 4]);
    any.type_url = url;
    any.value.data = (uint8_t *)(uintptr_t)value;
    any.value.len = size;
    if (kind & 0x80) { /* one of our reasons */
        info.domain = (char *)(uintptr_t) "leasehold";
        info.reason = (char *)(uintptr_t)lh_status_name((enum lh_status)(kind % LH_STATUS_COUNT));
        any.type_url = (char *)(uintptr_t) "type.googleapis.com/google.rpc.ErrorInfo";
        any.value.data = packed_info;
        any.value.len = google__rpc__error_info__pack(&info, packed_info);
    }
    status.code = code;
    status.n_details = 1;
    status.details = &anys;
    total = google__rpc__status__get_packed_size(&status);
    details->size += google__rpc__status__pack(&status, lh_buffer_reserve(details, total));
}

static void put_trailers(uint32_t stream, int code, uint8_t kind, const uint8_t *value, size_t size)
{
    struct lh_buffer block = {0}, details = {0}, text = {0};
    char number[8];

    snprintf(number, sizeof(number), "%d", code);
    fuzz_field(&block, "grpc-status", number, strlen(number));
    fuzz_field(&block, "grpc-message", value, size < 40 ? size : 40);
    if (code != 0) {
        pack_details(&details, code, kind, value, size);
        lh_base64_encode(&text, details.data, details.size);
        fuzz_field(&block, "grpc-status-details-bin", text.data, text.size);
    }
    put_headers(stream, &block, true);
    lh_buffer_finish(&block);
    lh_buffer_finish(&details);
    lh_buffer_finish(&text);
}

static void put_failure(struct fuzz_input *input)
{
    uint32_t stream = pick_stream(input);
    uint8_t code = fuzz_byte(input), kind = fuzz_byte(input);
    const uint8_t *value;
    size_t size = fuzz_bytes(input, &value);

    if (kind & 0x40)
        put_response(stream);
    put_trailers(stream, code % 20, kind, value, size);
}

static void put_any_message(struct fuzz_input *input)
{
    uint32_t stream = pick_stream(input);
    uint8_t how = fuzz_byte(input);
    const uint8_t *bytes;
    size_t size = fuzz_bytes(input, &bytes);

    if (how & 1)
        put_response(stream);
    fuzz_message(&out, stream, bytes, size, false);
    if (how & 2)
        put_trailers(stream, 0, 0, NULL, 0);
}

/* A message as it should be, with numbers from the input. */
static void pack_answer(struct lh_buffer *packed, struct fuzz_input *input, uint8_t kind)
{
    Leasehold__V1__AcquireResponse acquired = LEASEHOLD__V1__ACQUIRE_RESPONSE__INIT;
    Leasehold__V1__AcquireEvent event = LEASEHOLD__V1__ACQUIRE_EVENT__INIT;
    Leasehold__V1__Contention contention = LEASEHOLD__V1__CONTENTION__INIT;
    Leasehold__V1__Lease lease = LEASEHOLD__V1__LEASE__INIT;
    Leasehold__V1__HeartbeatResult beat = LEASEHOLD__V1__HEARTBEAT_RESULT__INIT,
                                   *beats[4] = {&beat, &beat, &beat, &beat};
    Leasehold__V1__HeartbeatResponse beaten = LEASEHOLD__V1__HEARTBEAT_RESPONSE__INIT;
    Leasehold__V1__ReleaseResult released = LEASEHOLD__V1__RELEASE_RESULT__INIT,
                                 *many[4] = {&released, &released, &released, &released};
    Leasehold__V1__ReleaseResponse releases = LEASEHOLD__V1__RELEASE_RESPONSE__INIT;
    Google__Protobuf__Duration remaining = GOOGLE__PROTOBUF__DURATION__INIT;
    const ProtobufCMessage *message;
    uint8_t of = fuzz_byte(input), outcome = fuzz_byte(input);

    remaining.seconds = of < 0x80 ? of : (int64_t)((uint64_t)of << 56 | (uint64_t)of << 30);
    remaining.nanos = outcome & 0x80 ? INT32_MIN : 0;
    lease.remaining = contention.holder == NULL ? &remaining : NULL;
    lease.token = of;
    lease.lease_key = (char *)(uintptr_t) "0f8fad5b-d9cb-469f-a165-70867728950e";
    acquired.lease = &lease;
    contention.holder = &lease;
    event.event_case =
        outcome & 1 ? LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_QUEUED : LEASEHOLD__V1__ACQUIRE_EVENT__EVENT_GRANTED;
    if (outcome & 1)
        event.queued = &contention;
    else
        event.granted = &lease;
    beat.remaining = &remaining;
    beat.outcome = (Leasehold__V1__Outcome)(outcome % 8);
    beat.end_reason = released.end_reason = (Leasehold__V1__EndReason)(outcome / 8 % 8);
    released.outcome = beat.outcome;
    beaten.n_results = releases.n_results = of % 5;
    beaten.results = beats;
    releases.results = many;
    message = kind == 0 ? &acquired.base : kind == 1 ? &event.base : kind == 2 ? &beaten.base : &releases.base;
    packed->size +=
        protobuf_c_message_pack(message, lh_buffer_reserve(packed, protobuf_c_message_get_packed_size(message)));
}

static void put_answer(struct fuzz_input *input)
{
    uint32_t stream = pick_stream(input);
    uint8_t how = fuzz_byte(input);
    struct lh_buffer packed = {0};

    pack_answer(&packed, input, how % 4);
    if ((how & 0x10) == 0)
        put_response(stream);
    fuzz_message(&out, stream, packed.data, packed.size, false);
    if ((how & 0x20) == 0)
        put_trailers(stream, 0, 0, NULL, 0);
    lh_buffer_finish(&packed);
}

static void put_any_frame(struct fuzz_input *input)
{
    uint8_t type = fuzz_byte(input) % 12, flags = fuzz_byte(input), stream = fuzz_byte(input);
    const uint8_t *payload;
    size_t size = fuzz_bytes(input, &payload);

    fuzz_frame(&out, type, flags, stream, payload, size);
}

static void put_goaway(struct fuzz_input *input)
{
    uint8_t payload[8] = {0, 0, 0, fuzz_byte(input), 0, 0, 0, fuzz_byte(input)};

    fuzz_frame(&out, NGHTTP2_GOAWAY, 0, 0, payload, sizeof(payload));
}

static void put_reset(struct fuzz_input *input)
{
    uint32_t stream = pick_stream(input);
    uint8_t payload[4] = {0, 0, 0, fuzz_byte(input)};

    fuzz_frame(&out, NGHTTP2_RST_STREAM, 0, stream, payload, sizeof(payload));
}

static void do_one(struct fuzz_input *input)
{
    const uint8_t *bytes;
    size_t size;

    switch (fuzz_byte(input) % 16) {
    case 0:
        size = fuzz_bytes(input, &bytes);
        lh_buffer_append(&out, bytes, size);
        break;
    case 1:
        put_any_frame(input);
        break;
    case 2:
        put_any_response(input);
        break;
    case 3:
        put_any_message(input);
        break;
    case 4:
    case 5:
        put_answer(input);
        break;
    case 6:
        put_failure(input);
        break;
    case 7:
        flush();
        turn(STEP_US);
        break;
    case 8:
        flush();
        turn(INT64_C(1) << fuzz_byte(input) % 24);
        break;
    case 9:
        put_goaway(input);
        break;
    case 10:
        put_reset(input);
        break;
    case 11:
        flush();
        fuzz_socket_end(fuzz_socket_last(), fuzz_byte(input) & 1);
        break;
    case 12:
        fuzz_reach = (enum fuzz_reach)(fuzz_byte(input) % 3);
        break;
    case 13:
        acquire(fuzz_byte(input));
        break;
    case 14:
        use_lease(fuzz_byte(input));
        break;
    default:
        cancel(fuzz_byte(input));
        break;
    }
}

/* The first byte: what was asked already when the server begins, and is it on its way? */
static void set_up(uint8_t how)
{
    struct lh_client_options options = {.endpoints = how & 0x80 ? "127.0.0.1:1,127.0.0.1:2" : "127.0.0.1:1",
                                        .event_base = base,
                                        .owner = "somebody",
                                        .flush_us = LH_US_PER_S};
    struct lh_declare_options of_lease = {.duration_us = 5 * LH_US_PER_S, .on_lost = on_lost};

    fuzz_now_us = 1000 * LH_US_PER_S;
    fuzz_reach = FUZZ_REACHED;
    time_left_us = TIME_US;
    client = lh_client_create(&options, NULL);
    FUZZ_CHECK(client != NULL);
    declared = lh_declare(client, "payments", &of_lease, NULL);
    FUZZ_CHECK(declared != NULL);
    acquire(how);
    if (how & 4)
        acquire(how + 1);
    for (int i = 0; i < 3; i++)
        turn(STEP_US);
    fuzz_frame(&out, NGHTTP2_SETTINGS, 0, 0, NULL, 0);
}

static void on_closed(void *arg)
{
    *(bool *)arg = true;
}

static void tear_down(bool is_gently)
{
    bool has_closed = false;

    time_left_us = INT64_MAX;
    if (is_gently) {
        lh_client_close(client, on_closed, &has_closed);
        for (int i = 0; i < END_PATIENCE_TURNS && !has_closed; i++)
            turn(100 * LH_US_PER_MS);
        FUZZ_CHECK(has_closed);
    }
    lh_client_destroy(client);
    for (size_t i = 0; i < REQUESTS_MAX; i++)
        FUZZ_CHECK(asked[i].request == NULL);
    for (size_t i = 0; i < LEASES_MAX; i++)
        lh_lease_destroy(leases[i]);
    memset(leases, 0, sizeof(leases));
    lh_buffer_finish(&out);
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    base = event_base_new();
    return base == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    uint8_t how = fuzz_byte(&input);

    set_up(how);
    while (input.left > 0)
        do_one(&input);
    flush();
    turn(STEP_US);
    turn(STEP_US);
    tear_down((how & 8) == 0);
    return 0;
}
