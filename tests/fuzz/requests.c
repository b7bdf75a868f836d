#include "requests.h"

#include <stdio.h>

#include "grpc/health/v1/health.pb-c.h"
#include "grpc/reflection/v1/reflection.pb-c.h"
#include "leasehold/v1/leasehold.pb-c.h"

#define SCOPES 4
#define KEYS 8
#define LEASE "/leasehold.v1.LeaseService/"
#define ADMIN "/leasehold.v1.AdminService/"

/* Everything that requests point to. */
static struct {
    char key[8];
    char lease_key[37];
    uint8_t units; /* 0: exclusive */
    char *segments[2];
    Leasehold__V1__Scope scope;
    Leasehold__V1__LeaseRef ref, *refs[1];
    Leasehold__V1__ReleaseItem item, *items[1];
    Google__Protobuf__Duration duration, wait;
    Leasehold__V1__AcquireRequest acquire;
    Leasehold__V1__Scope scopes[SCOPES];
    char keys[SCOPES][8];
    Leasehold__V1__AcquireItem wanted[SCOPES], *all[SCOPES];
} parts;

static void pack(struct lh_buffer *packed, const ProtobufCMessage *message)
{
    size_t size = protobuf_c_message_get_packed_size(message);

    packed->size += protobuf_c_message_pack(message, lh_buffer_reserve(packed, size));
}

static void fill_scope(struct fuzz_input *input)
{
    uint8_t which = fuzz_byte(input);

    snprintf(parts.key, sizeof(parts.key), "k%u", which % SCOPES);
    snprintf(parts.lease_key, sizeof(parts.lease_key), "0f8fad5b-d9cb-469f-a165-70867728950%x", which / SCOPES % KEYS);
    parts.units = which / SCOPES / KEYS % 4;
    parts.segments[0] = (char *)(uintptr_t) "payments";
    parts.segments[1] = (char *)(uintptr_t) "invoices";
    leasehold__v1__scope__init(&parts.scope);
    parts.scope.namespace_ = parts.segments;
    parts.scope.n_namespace_ = 2;
    parts.scope.key = parts.key;
    leasehold__v1__lease_ref__init(&parts.ref);
    parts.ref.scope = &parts.scope;
    parts.ref.lease_key = parts.lease_key;
    parts.refs[0] = &parts.ref;
    leasehold__v1__release_item__init(&parts.item);
    parts.item.lease = &parts.ref;
    parts.items[0] = &parts.item;
}

static Leasehold__V1__Mode mode_of(uint8_t units)
{
    return units == 0 ? LEASEHOLD__V1__MODE__MODE_UNSPECIFIED : LEASEHOLD__V1__MODE__MODE_SHARED;
}

/* An odd length of wait: none, some, for ever. */
static void fill_acquire(struct fuzz_input *input)
{
    uint8_t length = fuzz_byte(input);

    google__protobuf__duration__init(&parts.duration);
    parts.duration.seconds = 1 + length % 16;
    google__protobuf__duration__init(&parts.wait);
    parts.wait.seconds = length / 16;
    leasehold__v1__acquire_request__init(&parts.acquire);
    parts.acquire.scope = &parts.scope;
    parts.acquire.duration = &parts.duration;
    parts.acquire.owner = (char *)(uintptr_t) "somebody";
    parts.acquire.lease_key = parts.lease_key;
    parts.acquire.wait_forever = length >= 0xf0;
    if (!parts.acquire.wait_forever)
        parts.acquire.wait = &parts.wait;
    parts.acquire.wait_while_alive = length >= 0xe0 && length < 0xf0;
    parts.acquire.mode = mode_of(parts.units);
    parts.acquire.units = parts.units;
}

/* Each bit of a byte is a scope. */
static void pack_all(struct fuzz_input *input, struct lh_buffer *packed)
{
    Leasehold__V1__AcquireAllRequest request = LEASEHOLD__V1__ACQUIRE_ALL_REQUEST__INIT;
    uint8_t which = fuzz_byte(input);

    fill_acquire(input);
    request.items = parts.all;
    for (unsigned i = 0; i < SCOPES; i++) {
        Leasehold__V1__AcquireItem *item = &parts.wanted[request.n_items];
        uint8_t units;
        if ((which >> i & 1) == 0)
            continue;
        units = fuzz_byte(input) % 4;
        leasehold__v1__acquire_item__init(item);
        parts.scopes[i] = parts.scope;
        snprintf(parts.keys[i], sizeof(parts.keys[i]), "k%u", i);
        parts.scopes[i].key = parts.keys[i];
        item->scope = &parts.scopes[i];
        item->mode = mode_of(units);
        item->units = units;
        parts.all[request.n_items++] = item;
    }
    request.duration = parts.acquire.duration;
    request.wait = parts.acquire.wait;
    request.wait_forever = parts.acquire.wait_forever;
    request.owner = parts.acquire.owner;
    request.lease_key = parts.acquire.lease_key;
    pack(packed, &request.base);
}

static void pack_downgrade(struct fuzz_input *input, struct lh_buffer *packed)
{
    Leasehold__V1__DowngradeRequest request = LEASEHOLD__V1__DOWNGRADE_REQUEST__INIT;

    request.lease = &parts.ref;
    request.units = fuzz_byte(input) % 4;
    pack(packed, &request.base);
}

static void pack_hold(struct fuzz_input *input, struct lh_buffer *packed)
{
    Leasehold__V1__HoldRequest request = LEASEHOLD__V1__HOLD_REQUEST__INIT;
    Leasehold__V1__Alive alive = LEASEHOLD__V1__ALIVE__INIT;
    uint8_t kind = fuzz_byte(input) % 3;

    request.request_case = kind == 0   ? LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ACQUIRE
                           : kind == 1 ? LEASEHOLD__V1__HOLD_REQUEST__REQUEST_RELEASE
                                       : LEASEHOLD__V1__HOLD_REQUEST__REQUEST_ALIVE;
    if (kind == 0) {
        fill_acquire(input);
        request.acquire = &parts.acquire;
    } else if (kind == 1) {
        request.release = &parts.item;
    } else {
        alive.sequence = fuzz_byte(input);
        request.alive = &alive;
    }
    pack(packed, &request.base);
}

static void pack_batch(struct lh_buffer *packed, bool is_release)
{
    Leasehold__V1__HeartbeatRequest heartbeat = LEASEHOLD__V1__HEARTBEAT_REQUEST__INIT;
    Leasehold__V1__ReleaseRequest release = LEASEHOLD__V1__RELEASE_REQUEST__INIT;

    heartbeat.n_leases = release.n_items = 1;
    heartbeat.leases = parts.refs;
    release.items = parts.items;
    pack(packed, is_release ? &release.base : &heartbeat.base);
}

static void pack_list(struct lh_buffer *packed, bool is_watch)
{
    Leasehold__V1__ListLeasesRequest list = LEASEHOLD__V1__LIST_LEASES_REQUEST__INIT;
    Leasehold__V1__WatchLeasesRequest watch = LEASEHOLD__V1__WATCH_LEASES_REQUEST__INIT;

    list.include_children = watch.include_children = watch.include_initial = true;
    pack(packed, is_watch ? &watch.base : &list.base);
}

static void pack_admin(struct lh_buffer *packed, bool is_force)
{
    Leasehold__V1__ForceReleaseRequest force = LEASEHOLD__V1__FORCE_RELEASE_REQUEST__INIT;
    Leasehold__V1__ReapRequest reap = LEASEHOLD__V1__REAP_REQUEST__INIT;

    force.scope = &parts.scope;
    force.reason = (char *)(uintptr_t) "a test";
    pack(packed, is_force ? &force.base : &reap.base);
}

static void pack_reflection(struct lh_buffer *packed)
{
    Grpc__Reflection__V1__ServerReflectionRequest request = GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__INIT;

    request.message_request_case =
        GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_FILE_CONTAINING_SYMBOL;
    request.file_containing_symbol = (char *)(uintptr_t) "leasehold.v1.LeaseService";
    pack(packed, &request.base);
}

void fuzz_request(struct fuzz_input *input, struct lh_buffer *packed, const char **path)
{
    static const char *const paths[] = {
        LEASE "Acquire",
        LEASE "AcquireStream",
        LEASE "Hold",
        LEASE "Heartbeat",
        LEASE "KeepAlive",
        LEASE "Release",
        LEASE "GetLease",
        LEASE "ListLeases",
        LEASE "WatchLeases",
        ADMIN "Reap",
        ADMIN "ForceRelease",
        "/grpc.health.v1.Health/Watch",
        "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo",
        ADMIN "GetStatus",
        ADMIN "ListPolicies",
        ADMIN "GetPolicy",
        LEASE "AcquireAll",
        LEASE "Downgrade",
    };
    uint8_t which = fuzz_byte(input) % (sizeof(paths) / sizeof(paths[0]));
    Leasehold__V1__GetLeaseRequest get = LEASEHOLD__V1__GET_LEASE_REQUEST__INIT;

    *path = paths[which];
    fill_scope(input);
    if (which <= 1) {
        fill_acquire(input);
        pack(packed, &parts.acquire.base);
    } else if (which == 2) {
        pack_hold(input, packed);
    } else if (which <= 5) {
        pack_batch(packed, which == 5);
    } else if (which == 6) {
        get.scope = &parts.scope;
        pack(packed, &get.base);
    } else if (which <= 8) {
        pack_list(packed, which == 8);
    } else if (which <= 10) {
        pack_admin(packed, which == 10);
    } else if (which == 12) {
        pack_reflection(packed);
    } else if (which == 16) {
        pack_all(input, packed);
    } else if (which == 17) {
        pack_downgrade(input, packed);
    }
}
