/*
 * ZooKeeper, by its own protocol (jute records in frames with a length before them). A connection is a session.
 * Acquire: create an ephemeral node; release: delete it. Waiting for one name (handoff): the lock recipe of its
 * documents, an ephemeral sequential node, and a watch on the one before it. Requests of a session are pipelined; their
 * replies come in order. Sessions are kept alive as a whole, by whatever is sent: there is no renewal of one lease.
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
#define OP_EXISTS 3
#define OP_CHILDREN 8
#define IS_EPHEMERAL 1
#define IS_SEQUENTIAL 2
#define ERROR_NO_NODE (-101)
#define ERROR_NODE_EXISTS (-110)
#define EVENT_XID (-1)
#define PATH_BYTES 64
#define PLACE "/n-" /* and ten digits */

enum asked { ASKED_PARENT, ASKED_CREATE, ASKED_DELETE, ASKED_PLACE, ASKED_QUEUE, ASKED_WATCH };

struct question {
    struct slot *slot; /* NULL: the parent */
    int32_t xid;
    enum asked asked;
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

static int32_t ask(struct channel *channel, struct slot *slot, enum asked asked)
{
    int32_t xid = ++channel->next_xid;

    if (channel->count == channel->capacity)
        drive_die("zookeeper: more requests in flight than names");
    channel->questions[(channel->first + channel->count++) % channel->capacity] = (struct question){slot, xid, asked};
    return xid;
}

static void create(struct channel *channel, struct slot *slot, enum asked asked, const char *path, const char *data,
                   int32_t flags)
{
    struct frame frame = {.size = 4};

    add_int(&frame, ask(channel, slot, asked));
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

static void path_of(const struct slot *slot, char path[PATH_BYTES])
{
    char key[DRIVE_KEY_BYTES];
    drive_key(slot, key);
    snprintf(path, PATH_BYTES, PARENT "/%s", key);
}

/* Asks of a node, by this operation: whether it is there, or for its children. */
static void ask_of(struct slot *slot, int32_t op, enum asked asked, const char *path, bool watch)
{
    struct channel *channel = channel_of(slot);
    struct frame frame = {.size = 4};

    add_int(&frame, ask(channel, slot, asked));
    add_int(&frame, op);
    add_bytes(&frame, path, strlen(path));
    frame.bytes[frame.size++] = watch;
    send_frame(channel, &frame);
}

static void ask_for_queue(struct slot *slot)
{
    char parent[PATH_BYTES];

    path_of(slot, parent);
    ask_of(slot, OP_CHILDREN, ASKED_QUEUE, parent, false);
}

static void acquire(struct slot *slot, bool wait)
{
    char path[PATH_BYTES], value[DRIVE_CREDENTIAL_BYTES];

    slot->generation++;
    path_of(slot, path);
    drive_credential(slot, value);
    if (wait) {
        strcat(path, PLACE);
        create(channel_of(slot), slot, ASKED_PLACE, path, value, IS_EPHEMERAL | IS_SEQUENTIAL);
    } else {
        create(channel_of(slot), slot, ASKED_CREATE, path, value, IS_EPHEMERAL);
    }
}

static void release(struct slot *slot)
{
    struct channel *channel = channel_of(slot);
    struct frame frame = {.size = 4};
    char path[PATH_BYTES];

    path_of(slot, path);
    if (slot->credential != NULL)
        snprintf(path, sizeof(path), "%s", slot->credential);
    add_int(&frame, ask(channel, slot, ASKED_DELETE));
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

/* The bytes of a string or a buffer, which begin with their length; *at moves on behind them. */
static const char *bytes_at(const unsigned char *bytes, size_t size, size_t *at, size_t *length)
{
    const char *text = (const char *)bytes + *at + 4;

    if (size < *at + 4 || int_at(bytes + *at) < 0 || size - *at - 4 < (size_t)int_at(bytes + *at))
        drive_die("zookeeper: a reply is cut off");
    *length = (size_t)int_at(bytes + *at);
    *at += 4 + *length;
    return text;
}

/* Its place has a number, which is the token, too. */
static void on_place(struct slot *slot, const unsigned char *bytes, size_t size)
{
    size_t at = 16, length;
    const char *path = bytes_at(bytes, size, &at, &length);

    free(slot->credential);
    slot->credential = lh_format("%.*s", (int)length, path);
    slot->token = atoll(strrchr(slot->credential, '-') + 1) + 1;
    ask_for_queue(slot);
}

/* Whoever has the lowest place holds the lock; the others watch the place before theirs. */
static void on_queue(struct slot *slot, const unsigned char *bytes, size_t size)
{
    const char *own = strrchr(slot->credential, '/') + 1;
    char before[PATH_BYTES] = "", path[PATH_BYTES * 2];
    size_t at = 20;

    for (int32_t left = int_at(bytes + 16); left > 0; left--) {
        size_t length;
        const char *name = bytes_at(bytes, size, &at, &length);
        if (length == strlen(own) && memcmp(name, own, length) < 0 && memcmp(name, before, length) > 0)
            snprintf(before, sizeof(before), "%.*s", (int)length, name);
    }
    if (before[0] == '\0') {
        slot->drive->on_acquired(slot);
        return;
    }
    free(slot->lease);
    path_of(slot, path);
    slot->lease = lh_format("%s/%s", path, before);
    ask_of(slot, OP_EXISTS, ASKED_WATCH, slot->lease, true);
}

/* What somebody of this session has watched is gone. */
static void on_event(struct channel *channel, const unsigned char *bytes, size_t size)
{
    struct drive *drive = channel->drive;
    size_t at = 24, length;
    const char *path = bytes_at(bytes, size, &at, &length);

    for (size_t i = 0; i < drive->slot_count; i++) {
        struct slot *slot = &drive->slots[i];
        const char *watched = slot->lease;
        if (channel_of(slot) != channel || watched == NULL || strlen(watched) != length ||
            memcmp(watched, path, length) != 0)
            continue;
        free(slot->lease);
        slot->lease = NULL;
        ask_for_queue(slot);
    }
}

static void on_reply(struct channel *channel, const unsigned char *bytes, size_t size)
{
    struct question question = channel->questions[channel->first];
    int32_t error;

    if (size >= 24 && int_at(bytes) == EVENT_XID) {
        on_event(channel, bytes, size);
        return;
    }
    if (size < 16 || channel->count == 0 || int_at(bytes) != question.xid)
        drive_die("zookeeper: a reply that nobody waits for");
    error = int_at(bytes + 12);
    channel->first = (channel->first + 1) % channel->capacity;
    channel->count--;
    if (question.slot == NULL) {
        if (error != 0 && error != ERROR_NODE_EXISTS)
            drive_die("zookeeper: no " PARENT ": error %d", error);
        channel->is_ready = channel->count == 0;
        return;
    }
    if (question.asked == ASKED_WATCH && error == ERROR_NO_NODE) { /* it has gone meanwhile */
        ask_for_queue(question.slot);
        return;
    }
    if (error != 0)
        drive_die("zookeeper: error %d of question %d", error, (int)question.asked);
    if (question.asked == ASKED_CREATE)
        channel->drive->on_acquired(question.slot);
    else if (question.asked == ASKED_DELETE)
        channel->drive->on_released(question.slot);
    else if (question.asked == ASKED_PLACE)
        on_place(question.slot, bytes, size);
    else if (question.asked == ASKED_QUEUE)
        on_queue(question.slot, bytes, size);
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
        channel->capacity = drive->slot_count + 2; /* two parents */
        channel->questions = lh_alloc_zero(channel->capacity, sizeof(*channel->questions));
        if (!stream_open(&channel->stream, drive->loop, drive->target, on_bytes, channel))
            drive_die("zookeeper: it listens no more");
        ask_for_session(channel);
    }
    drive_run_until(drive, &state->is_there, 60 * LH_US_PER_S, "zookeeper");
    create(&state->channels[0], NULL, ASKED_PARENT, PARENT, "", 0);
    if (drive->is_hot) {
        char path[PATH_BYTES];
        path_of(&drive->slots[0], path);
        create(&state->channels[0], NULL, ASKED_PARENT, path, "", 0);
    }
    drive_run_until(drive, &state->channels[0].is_ready, 60 * LH_US_PER_S, "zookeeper's first answer");
}

const struct peer peer_zookeeper = {
    .name = "zookeeper", .open = open_channels, .acquire = acquire, .release = release, .renew = renew};
