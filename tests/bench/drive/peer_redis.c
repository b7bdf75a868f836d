/*
 * Redis. Acquire: SET name value NX PX duration. Release and renew: scripts that compare the value first. Shared (--units):
 * a sorted set of holders by the time of their end, as semaphores are written in Lua (--capacity) and the readers' side of
 * a read/write lock, whose writer has a key beside it. Waiting for one name (handoff): BLPOP from a list that has one
 * element while nobody holds it, RPUSH puts it back; such a connection does nothing else while it waits, so each slot
 * needs its own. Commands of a connection are pipelined; their replies come in order.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "drive.h"
#include "stream.h"

#define RELEASE_SCRIPT "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end"
#define RENEW_SCRIPT                                                                                                   \
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end"
#define NOW "local t=redis.call('time') local now=t[1]*1000+math.floor(t[2]/1000) "
#define ENTER                                                                                                          \
    "redis.call('zremrangebyscore',KEYS[1],'-inf',now) "                                                               \
    "if redis.call('zcard',KEYS[1])>=tonumber(ARGV[3]) then return 0 end "                                             \
    "redis.call('zadd',KEYS[1],now+ARGV[2],ARGV[1]) return 1"
#define SEMAPHORE_SCRIPT NOW ENTER
#define READ_SCRIPT NOW "if redis.call('exists',KEYS[1]..':writer')==1 then return 0 end " ENTER
#define LEAVE_SCRIPT "return redis.call('zrem',KEYS[1],ARGV[1])"
#define STAY_SCRIPT                                                                                                    \
    NOW "local s=redis.call('zscore',KEYS[1],ARGV[1]) if not s or tonumber(s)<=now then return 0 end "                 \
        "redis.call('zadd',KEYS[1],now+ARGV[2],ARGV[1]) return 1"
#define NO_CAPACITY "1000000"
#define SHA_BYTES 40
#define BATON "baton"

enum asked { ASKED_ACQUIRE, ASKED_BATON, ASKED_FIRST_BATON, ASKED_RELEASE, ASKED_RENEW, ASKED_SCRIPT };

struct question {
    enum asked asked;
    void *arg;
};

struct channel {
    struct drive *drive;
    struct stream stream;
    struct question *questions; /* a ring: replies come in this order */
    size_t first, count, capacity;
    long elements; /* of an array, that are still to come */
};

struct state {
    struct channel *channels;
    char acquire_sha[SHA_BYTES + 1], release_sha[SHA_BYTES + 1],
        renew_sha[SHA_BYTES + 1]; /* the first: of shared ones */
    bool is_there;
};

static void ask(struct channel *channel, enum asked asked, void *arg)
{
    if (channel->count == channel->capacity) {
        size_t capacity = channel->capacity == 0 ? 256 : channel->capacity * 2;
        struct question *questions = lh_alloc_zero(capacity, sizeof(*questions));
        for (size_t i = 0; i < channel->count; i++)
            questions[i] = channel->questions[(channel->first + i) % channel->capacity];
        free(channel->questions);
        channel->questions = questions;
        channel->first = 0;
        channel->capacity = capacity;
    }
    channel->questions[(channel->first + channel->count++) % channel->capacity] = (struct question){asked, arg};
}

static struct channel *channel_of(const struct slot *slot)
{
    struct state *state = slot->drive->state;
    return &state->channels[slot->number % slot->drive->channels];
}

static void on_script(struct channel *channel, char *sha, const char *text, size_t size)
{
    struct state *state = channel->drive->state;

    if (size != SHA_BYTES)
        drive_die("redis: a script was refused");
    memcpy(sha, text, SHA_BYTES);
    state->is_there = state->acquire_sha[0] != '\0' && state->release_sha[0] != '\0' && state->renew_sha[0] != '\0';
}

/* `text` is the reply without its frame: OK, 1, a string; `type` its first character. */
static void on_reply(struct channel *channel, char type, const char *text, size_t size)
{
    struct question question = channel->questions[channel->first];
    bool is_one = type == ':' && size == 1 && text[0] == '1';

    if (channel->count == 0 || type == '-')
        drive_die("redis: %.*s", (int)size, text);
    if (channel->elements > 0 && --channel->elements > 0)
        return; /* the name of the list that BLPOP has found */
    channel->first = (channel->first + 1) % channel->capacity;
    channel->count--;
    if (question.asked == ASKED_SCRIPT) {
        on_script(channel, question.arg, text, size);
    } else if (question.asked == ASKED_ACQUIRE) {
        if (channel->drive->units > 0 ? !is_one : type != '+')
            drive_die("redis: a key that should be free is not");
        channel->drive->on_acquired(question.arg);
    } else if (question.asked == ASKED_BATON) {
        if (size != strlen(BATON) || memcmp(text, BATON, size) != 0)
            drive_die("redis: not what was put into the list");
        channel->drive->on_acquired(question.arg);
    } else if (!is_one) {
        drive_die("redis: a lease is not held any more");
    } else if (question.asked == ASKED_FIRST_BATON) {
        return; /* whoever asks for it first gets it */
    } else if (question.asked == ASKED_RELEASE) {
        channel->drive->on_released(question.arg);
    } else {
        struct batch *batch = question.arg;
        if (++batch->answered == batch->count)
            channel->drive->on_renewed(batch);
    }
}

static size_t on_bytes(void *arg, const unsigned char *bytes, size_t size)
{
    struct channel *channel = arg;
    size_t used = 0;

    while (used < size) {
        const char *line = (const char *)bytes + used;
        const char *end = memchr(line, '\n', size - used);
        size_t length, text_size;
        long bulk;
        if (end == NULL || end - line < 2)
            break;
        length = (size_t)(end - line) + 1;
        text_size = length - 3;
        if (line[0] == '*') {
            channel->elements = strtol(line + 1, NULL, 10);
            used += length;
            continue;
        }
        if (line[0] != '$') {
            on_reply(channel, line[0], line + 1, text_size);
            used += length;
            continue;
        }
        bulk = strtol(line + 1, NULL, 10);
        if (bulk < 0) {
            on_reply(channel, '$', "", 0);
            used += length;
            continue;
        }
        if (size - used < length + (size_t)bulk + 2)
            break;
        on_reply(channel, '$', line + length, (size_t)bulk);
        used += length + (size_t)bulk + 2;
    }
    return used;
}

static void command(struct channel *channel, size_t count, const char *const *words)
{
    char text[1024];
    size_t used = (size_t)snprintf(text, sizeof(text), "*%zu\r\n", count);

    for (size_t i = 0; i < count; i++)
        used += (size_t)snprintf(text + used, sizeof(text) - used, "$%zu\r\n%s\r\n", strlen(words[i]), words[i]);
    if (used >= sizeof(text))
        drive_die("redis: a command is too long");
    stream_write(&channel->stream, text, used);
}

static void acquire(struct slot *slot, bool wait)
{
    struct state *state = slot->drive->state;
    char key[DRIVE_KEY_BYTES], value[DRIVE_CREDENTIAL_BYTES], milliseconds[24], capacity[24] = NO_CAPACITY;

    slot->generation++;
    drive_key(slot, key);
    if (wait) {
        command(channel_of(slot), 3, (const char *const[]){"BLPOP", key, "0"});
        ask(channel_of(slot), ASKED_BATON, slot);
        return;
    }
    drive_credential(slot, value);
    snprintf(milliseconds, sizeof(milliseconds), "%lld", (long long)slot->drive->duration_s * 1000);
    if (slot->drive->capacity > 0)
        snprintf(capacity, sizeof(capacity), "%zu", slot->drive->capacity);
    if (slot->drive->units > 0)
        command(channel_of(slot), 7,
                (const char *const[]){"EVALSHA", state->acquire_sha, "1", key, value, milliseconds, capacity});
    else
        command(channel_of(slot), 6, (const char *const[]){"SET", key, value, "NX", "PX", milliseconds});
    ask(channel_of(slot), ASKED_ACQUIRE, slot);
}

static void put_baton(struct slot *slot, enum asked asked, void *arg)
{
    char key[DRIVE_KEY_BYTES];

    drive_key(slot, key);
    command(channel_of(slot), 3, (const char *const[]){"RPUSH", key, BATON});
    ask(channel_of(slot), asked, arg);
}

static void release(struct slot *slot)
{
    struct state *state = slot->drive->state;
    char key[DRIVE_KEY_BYTES], value[DRIVE_CREDENTIAL_BYTES];

    drive_key(slot, key);
    if (slot->drive->is_hot && slot->drive->units == 0) {
        put_baton(slot, ASKED_RELEASE, slot);
        return;
    }
    drive_credential(slot, value);
    command(channel_of(slot), 5, (const char *const[]){"EVALSHA", state->release_sha, "1", key, value});
    ask(channel_of(slot), ASKED_RELEASE, slot);
}

static void renew(struct batch *batch)
{
    struct state *state = batch->drive->state;
    struct channel *channel = &state->channels[batch->lane % batch->drive->channels];
    char key[DRIVE_KEY_BYTES], value[DRIVE_CREDENTIAL_BYTES], milliseconds[24];

    snprintf(milliseconds, sizeof(milliseconds), "%lld", (long long)batch->drive->duration_s * 1000);
    for (size_t i = 0; i < batch->count; i++) {
        drive_key(&batch->drive->slots[batch->first + i], key);
        drive_credential(&batch->drive->slots[batch->first + i], value);
        command(channel, 6, (const char *const[]){"EVALSHA", state->renew_sha, "1", key, value, milliseconds});
        ask(channel, ASKED_RENEW, batch);
    }
}

static void load(struct channel *channel, const char *script, char *sha)
{
    command(channel, 3, (const char *const[]){"SCRIPT", "LOAD", script});
    ask(channel, ASKED_SCRIPT, sha);
}

static void open_channels(struct drive *drive)
{
    bool is_shared = drive->units > 0;
    struct state *state = lh_alloc_zero(1, sizeof(*state));

    drive->state = state;
    state->channels = lh_alloc_zero(drive->channels, sizeof(*state->channels));
    for (size_t i = 0; i < drive->channels; i++) {
        struct channel *channel = &state->channels[i];
        channel->drive = drive;
        while (!stream_open(&channel->stream, drive->loop, drive->target, on_bytes, channel)) {
            if (!drive->is_patient)
                drive_die("redis: nobody listens at %s", drive->target);
            drive_run_for(drive, LH_US_PER_MS);
        }
    }
    if (drive->units > 1)
        drive_die("redis: a holder has one unit");
    load(&state->channels[0], drive->capacity > 0 ? SEMAPHORE_SCRIPT : READ_SCRIPT, state->acquire_sha);
    load(&state->channels[0], is_shared ? LEAVE_SCRIPT : RELEASE_SCRIPT, state->release_sha);
    load(&state->channels[0], is_shared ? STAY_SCRIPT : RENEW_SCRIPT, state->renew_sha);
    drive_run_until(drive, &state->is_there, 60 * LH_US_PER_S, "redis");
    if (drive->is_hot && !is_shared)
        put_baton(&drive->slots[0], ASKED_FIRST_BATON, NULL);
}

const struct peer peer_redis = {
    .name = "redis", .open = open_channels, .acquire = acquire, .release = release, .renew = renew};
