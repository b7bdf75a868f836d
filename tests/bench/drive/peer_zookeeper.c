/*
 * ZooKeeper, by its own protocol (jute records in frames with a length before them). A connection is a session.
 * Acquire: create an ephemeral node; release: delete it. Requests of a session are pipelined; their replies come in
 * order. Sessions are kept alive as a whole, by whatever is sent: there is no renewal of one lease.
 * https://zookeeper.apache.org/doc/r3.8.0/zookeeperInternals.html, and zookeeper.jute of its source.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "drive.h"
#include "stream.h"

#define SESSION_TIMEOUT_MS 40000
#define PARENT "/bench"
#define OP_CREATE 1
#define OP_DELETE 2
#define IS_EPHEMERAL 1
#define ERROR_NODE_EXISTS (-110)

struct question {
    struct slot *slot; /* NULL: the parent */
    int32_t xid;
    bool is_create;
};

struct channel {
    struct drive *drive;
    struct stream stream;
    struct question *questions; /* a ring */
    size_t first, count, capacity;
    int32_t next_xid;
    bool is_connected, is_ready;
};

struct state {
    struct channel *channels;
    size_t connected;
    bool is_there;
};

/* A frame that is being written. */
struct frame {
    unsigned char bytes[256];
    size_t size;
};

static void add_int(struct frame *frame, int32_t value)
{
    uint32_t wire = htonl((uint32_t)value);
    memcpy(frame->bytes + frame->size, &wire, 4);
    frame->size += 4;
}

static void add_long(struct frame *frame, int64_t value)
{
    uint64_t wire = htobe64((uint64_t)value);
    memcpy(frame->bytes + frame->size, &wire, 8);
    frame->size += 8;
}

static void add_bytes(struct frame *frame, const void *bytes, size_t size)
{
    if (frame->size + 4 + size > sizeof(frame->bytes) / 2)
        drive_die("zookeeper: a frame is too long");
    add_int(frame, (int32_t)size);
    memcpy(frame->bytes + frame->size, bytes, size);
    frame->size += size;
}

static int32_t int_at(const unsigned char *bytes)
{
    uint32_t wire;
    memcpy(&wire, bytes, 4);
    return (int32_t)ntohl(wire);
}

static void send_frame(struct channel *channel, struct frame *frame)
{
    uint32_t wire = htonl((uint32_t)(frame->size - 4));
    memcpy(frame->bytes, &wire, 4);
    stream_write(&channel->stream, frame->bytes, frame->size);
}

static int32_t ask(struct channel *channel, struct slot *slot, bool is_create)
{
    int32_t xid = ++channel->next_xid;

    if (channel->count == channel->capacity)
        drive_die("zookeeper: more requests in flight than names");
    channel->questions[(channel->first + channel->count++) % channel->capacity] =
        (struct question){slot, xid, is_create};
    return xid;
}

static void create(struct channel *channel, struct slot *slot, const char *path, const char *data, int32_t flags)
{
    struct frame frame = {.size = 4};

    add_int(&frame, ask(channel, slot, true));
    add_int(&frame, OP_CREATE);
    add_bytes(&frame, path, strlen(path));
    add_bytes(&frame, data, strlen(data));
    add_int(&frame, 1); /* one entry of access control: everything for everybody */
    add_int(&frame, 31);
    add_bytes(&frame, "world", 5);
    add_bytes(&frame, "anyone", 6);
    add_int(&frame, flags);
    send_frame(channel, &frame);
}

static struct channel *channel_of(const struct slot *slot)
{
    struct state *state = slot->drive->state;
    return &state->channels[slot->number % slot->drive->channels];
}

static void path_of(const struct slot *slot, char path[64])
{
    char key[DRIVE_KEY_BYTES];
    drive_key(slot, key);
    snprintf(path, 64, PARENT "/%s", key);
}

static void acquire(struct slot *slot, bool wait)
{
    char path[64], value[DRIVE_CREDENTIAL_BYTES];

    if (wait)
        drive_die("waiting is not driven for zookeeper");
    slot->generation++;
    path_of(slot, path);
    drive_credential(slot, value);
    create(channel_of(slot), slot, path, value, IS_EPHEMERAL);
}

static void release(struct slot *slot)
{
    struct channel *channel = channel_of(slot);
    struct frame frame = {.size = 4};
    char path[64];

    path_of(slot, path);
    add_int(&frame, ask(channel, slot, false));
    add_int(&frame, OP_DELETE);
    add_bytes(&frame, path, strlen(path));
    add_int(&frame, -1); /* whatever its version */
    send_frame(channel, &frame);
}

static void renew(struct batch *batch)
{
    drive_die("zookeeper has no renewal of a lease");
}

static void on_connected(struct channel *channel, const unsigned char *bytes, size_t size)
{
    struct state *state = channel->drive->state;

    if (size < 16 || int_at(bytes + 4) <= 0)
        drive_die("zookeeper: no session");
    channel->is_connected = true;
    state->is_there = ++state->connected == channel->drive->channels;
}

static void on_reply(struct channel *channel, const unsigned char *bytes, size_t size)
{
    struct question question = channel->questions[channel->first];
    int32_t error;

    if (size < 16 || channel->count == 0 || int_at(bytes) != question.xid)
        drive_die("zookeeper: a reply that nobody waits for");
    error = int_at(bytes + 12);
    channel->first = (channel->first + 1) % channel->capacity;
    channel->count--;
    if (question.slot == NULL) {
        if (error != 0 && error != ERROR_NODE_EXISTS)
            drive_die("zookeeper: no " PARENT ": error %d", error);
        channel->is_ready = true;
        return;
    }
    if (error != 0)
        drive_die("zookeeper: error %d of a %s", error, question.is_create ? "create" : "delete");
    if (question.is_create)
        channel->drive->on_acquired(question.slot);
    else
        channel->drive->on_released(question.slot);
}

static size_t on_bytes(void *arg, const unsigned char *bytes, size_t size)
{
    struct channel *channel = arg;
    size_t used = 0;

    while (size - used >= 4) {
        size_t length = (size_t)int_at(bytes + used);
        if (size - used < 4 + length)
            break;
        if (channel->is_connected)
            on_reply(channel, bytes + used + 4, length);
        else
            on_connected(channel, bytes + used + 4, length);
        used += 4 + length;
    }
    return used;
}

static void ask_for_session(struct channel *channel)
{
    struct frame frame = {.size = 4};

    add_int(&frame, 0);  /* the protocol's version */
    add_long(&frame, 0); /* the last transaction that was seen */
    add_int(&frame, SESSION_TIMEOUT_MS);
    add_long(&frame, 0); /* a new session */
    add_bytes(&frame, (const unsigned char[16]){0}, 16);
    send_frame(channel, &frame);
}

static void open_channels(struct drive *drive)
{
    struct state *state = lh_alloc_zero(1, sizeof(*state));

    /* While it starts it takes connections, and then forgets what it was asked on them. */
    while (!stream_is_answered(drive->target, "srvr", "Zookeeper version")) {
        if (!drive->is_patient)
            drive_die("zookeeper: nobody serves at %s", drive->target);
        drive_run_for(drive, LH_US_PER_MS);
    }
    drive->state = state;
    state->channels = lh_alloc_zero(drive->channels, sizeof(*state->channels));
    for (size_t i = 0; i < drive->channels; i++) {
        struct channel *channel = &state->channels[i];
        channel->drive = drive;
        channel->capacity = drive->slot_count + 1;
        channel->questions = lh_alloc_zero(channel->capacity, sizeof(*channel->questions));
        if (!stream_open(&channel->stream, drive->loop, drive->target, on_bytes, channel))
            drive_die("zookeeper: it listens no more");
        ask_for_session(channel);
    }
    drive_run_until(drive, &state->is_there, 60 * LH_US_PER_S, "zookeeper");
    create(&state->channels[0], NULL, PARENT, "", 0);
    drive_run_until(drive, &state->channels[0].is_ready, 60 * LH_US_PER_S, "zookeeper's first answer");
}

const struct peer peer_zookeeper = {
    .name = "zookeeper", .open = open_channels, .acquire = acquire, .release = release, .renew = renew};
