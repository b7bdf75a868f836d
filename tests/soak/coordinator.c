/*
 * A daemon's share of the soak: clients that ask, wait, hold, release or give up, all in batches over one connection; those
 * that want several scopes at once ask each by itself.
 * It asks again for a waiter when an answer says `wake`, when it is notified, when its tick tells it, and while a row
 * is busy. In a rough run it dies at times: its leases and waiters are left behind, and it starts again under a new id.
 */
#include "soak.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CLIENTS 6
#define TICK_MS 1000
#define DIES_ONE_TURN_IN 3000

enum client_state {
    IDLE,
    ASKING, /* in the next batch */
    QUEUED, /* sleeps until woken */
    HOLDING,
    DOWNGRADING,
    RELEASING,
    LEAVING,
};

struct coordinator {
    struct actor *actor;
    char id[UUID_SIZE];
    int64_t tick_at_ms;
    struct client {
        enum client_state state;
        struct item items[ITEMS_MAX]; /* those that it still has, or waits for */
        int count;
        int priority;
        char lease[UUID_SIZE];
        int64_t at_ms; /* HOLDING: until then; QUEUED: patience; IDLE: start then; otherwise not before */
        int64_t pause_ms;
        bool was_queued;
    } clients[CLIENTS];
};

static void client_set_state(struct coordinator *c, struct client *client, enum client_state state, int64_t in_ms)
{
    client->was_queued = client->was_queued || state == QUEUED;
    client->state = state;
    client->at_ms = in_ms < 0 ? INT64_MAX : now_ms() + in_ms;
    client->pause_ms = 1;
    if (state == IDLE)
        __atomic_add_fetch(&c->actor->soak->progress, 1, __ATOMIC_SEQ_CST);
}

/* Somebody of this coordinator may have the turn. False: nobody waits here. */
static bool wake(struct coordinator *c, const char *scope)
{
    bool is_anyone = false;
    for (struct client *client = c->clients; client < c->clients + CLIENTS; client++) {
        for (int i = 0; i < client->count; i++) {
            if (strcmp(scope_names[client->items[i].scope], scope) != 0)
                continue;
            if (client->state == QUEUED)
                client_set_state(c, client, ASKING, 0);
            is_anyone = is_anyone || client->state == ASKING;
        }
    }
    return is_anyone;
}

/* It is over for one of its scopes. */
static void drop_item(struct coordinator *c, struct client *client, int scope)
{
    for (int i = 0; i < client->count; i++)
        if (client->items[i].scope == scope)
            client->items[i--] = client->items[--client->count];
    if (client->count == 0)
        client_set_state(c, client, IDLE, (int64_t)dice(c->actor, 10));
}

static void on_answer(struct coordinator *c, struct client *client, int scope, const char *outcome)
{
    struct actor *actor = c->actor;
    if (strcmp(outcome, "busy") == 0) {
        client->pause_ms = client->pause_ms < 50 ? client->pause_ms * 2 + 1 : 50;
        client->at_ms = now_ms() + client->pause_ms;
        return;
    }
    if (client->state == DOWNGRADING && strcmp(outcome, "ok") == 0) {
        client->items[0].units = 1;
        client_set_state(c, client, HOLDING, (int64_t)dice(actor, 15));
    } else if (client->state != ASKING) {
        drop_item(c, client, scope); /* ok, or lost: either way it is over */
    } else if (strcmp(outcome, "granted") == 0 || strcmp(outcome, "renewed") == 0) {
        actor->grants++;
        actor->waits += client->was_queued;
        client_set_state(c, client, HOLDING, (int64_t)dice(actor, 15));
        for (int i = 0; i < client->count; i++)
            if (client->items[i].units != 0) /* there may be room for the next of our own */
                wake(c, scope_names[client->items[i].scope]);
    } else if (strcmp(outcome, "queued") == 0) {
        client_set_state(c, client, QUEUED, dice(actor, 5) == 0 ? (int64_t)dice(actor, 200) : -1);
    } else if (strcmp(outcome, "ended") == 0) {
        client_set_state(c, client, IDLE, 0); /* expired behind our back: a reply was lost */
    } else {
        fprintf(stderr, "soak: coordinator %d: unexpected outcome %s\n", actor->number, outcome);
        actor->soak->has_failed = true;
    }
}

/* Each client that asks for several scopes at once. */
static enum outcome ask_all(struct coordinator *c)
{
    struct actor *actor = c->actor;
    enum outcome outcome = DONE;
    for (struct client *client = c->clients; client < c->clients + CLIENTS && outcome == DONE; client++) {
        struct item *items = client->items;
        if (client->state != ASKING || client->at_ms > now_ms() || client->count == 1)
            continue;
        outcome =
            run(actor, "select soak.ask_all('%s', '{%s,%s,%s}', '%s', '{%s,%s,%s}')", c->id,
                scope_names[items[0].scope], scope_names[items[1].scope], scope_names[items[2].scope], client->lease,
                units_text(items[0].units), units_text(items[1].units), units_text(items[2].units));
        if (outcome == DONE)
            on_answer(c, client, -1, PQgetvalue(actor->result, 0, 0));
    }
    return outcome;
}

/* Send what is in `state` and due as one batch of `function`. */
static enum outcome send_batch(struct coordinator *c, const char *function, enum client_state state)
{
    struct actor *actor = c->actor;
    struct client *clients[CLIENTS * ITEMS_MAX];
    int item_scopes[CLIENTS * ITEMS_MAX];
    char scopes[1024] = "", leases[1024] = "", units[128] = "", priorities[128] = "";
    int count = 0;
    for (struct client *client = c->clients; client < c->clients + CLIENTS; client++) {
        if (client->state != state || client->at_ms > now_ms() || (state == ASKING && client->count > 1))
            continue;
        for (int i = 0; i < client->count; i++) {
            const char *comma = count > 0 ? "," : "";
            snprintf(scopes + strlen(scopes), sizeof scopes - strlen(scopes), "%s%s", comma,
                     scope_names[client->items[i].scope]);
            snprintf(leases + strlen(leases), sizeof leases - strlen(leases), "%s%s", comma, client->lease);
            snprintf(units + strlen(units), sizeof units - strlen(units), "%s%s", comma,
                     units_text(state == DOWNGRADING ? 1 : client->items[i].units));
            snprintf(priorities + strlen(priorities), sizeof priorities - strlen(priorities), "%s%d", comma,
                     client->priority);
            clients[count] = client;
            item_scopes[count++] = client->items[i].scope;
        }
    }
    if (count == 0)
        return DONE;
    char more[300] = "";
    if (state == ASKING)
        snprintf(more, sizeof more, ", '{%s}', '{%s}'", units, priorities);
    else if (state == DOWNGRADING)
        snprintf(more, sizeof more, ", '{%s}'", units);
    enum outcome outcome =
        run(actor, "select * from soak.%s('%s', '{%s}', '{%s}'%s)", function, c->id, scopes, leases, more);
    if (outcome != DONE)
        return outcome;
    if (PQntuples(actor->result) != count) {
        fprintf(stderr, "soak: coordinator %d: %d answers to %d items\n", actor->number, PQntuples(actor->result),
                count);
        actor->soak->has_failed = true;
        return SOAK_BUG;
    }
    for (int i = 0; i < count; i++) {
        int n = atoi(PQgetvalue(actor->result, i, 0)) - 1;
        on_answer(c, clients[n], item_scopes[n], PQgetvalue(actor->result, i, 1));
    }
    for (int i = 0; i < count; i++)
        if (PQnfields(actor->result) > 2 && strcmp(PQgetvalue(actor->result, i, 2), "t") == 0)
            wake(c, scope_names[item_scopes[atoi(PQgetvalue(actor->result, i, 0)) - 1]]);
    return DONE;
}

/* Sign of life, slow poll and reaper. In a calm run nobody is woken by them. */
static enum outcome tick(struct coordinator *c)
{
    struct actor *actor = c->actor;
    static const char *const calls[] = {"alive", "sweep"};
    if (now_ms() < c->tick_at_ms)
        return DONE;
    for (int i = 0; i < (actor->soak->is_calm ? 1 : 2); i++) {
        enum outcome outcome = run(actor, "select * from soak.%s('%s')", calls[i], c->id);
        if (outcome != DONE)
            return outcome;
        for (int row = 0; row < PQntuples(actor->result) && !actor->soak->is_calm; row++)
            wake(c, PQgetvalue(actor->result, row, 0));
    }
    c->tick_at_ms = now_ms() + TICK_MS;
    return DONE;
}

/* Listen, on a new connection or under a new id. */
static enum outcome listen(struct coordinator *c)
{
    char channel[UUID_SIZE] = "";
    size_t size = 0;
    for (const char *from = c->id; *from != '\0'; from++)
        if (*from != '-')
            channel[size++] = *from;
    enum outcome outcome;
    do {
        outcome = run(c->actor, "unlisten *; listen leasehold_%s", channel);
    } while (outcome == AGAIN);
    c->tick_at_ms = 0;
    return outcome;
}

/* The connection was lost: connect again, and ask for everything again, for a notification may have been missed. */
static bool come_back(struct coordinator *c)
{
    do {
        if (!actor_connect(c->actor))
            return false;
    } while (listen(c) == BROKEN);
    for (int i = 0; i < SCOPES; i++)
        wake(c, scope_names[i]);
    return true;
}

/* Gone without a word; another one starts in its place. */
static bool die(struct coordinator *c)
{
    bool is_told = c->id[0] == '\0';
    while (!is_told && !c->actor->soak->has_failed) {
        enum outcome outcome = run(c->actor, "select soak.is_gone(null, null, '%s')", c->id);
        is_told = outcome == DONE;
        if (outcome == BROKEN && !actor_connect(c->actor))
            return false;
    }
    make_uuid(c->actor, c->id);
    memset(c->clients, 0, sizeof c->clients);
    return come_back(c);
}

static void advance_clients(struct coordinator *c)
{
    struct actor *actor = c->actor;
    for (struct client *client = c->clients; client < c->clients + CLIENTS; client++) {
        if (client->at_ms > now_ms())
            continue;
        if (client->state == IDLE && !actor->soak->is_stopping) {
            client->count = pick_items(actor, client->items);
            client->priority = pick_priority(actor);
            client->was_queued = false;
            make_uuid(actor, client->lease);
            client_set_state(c, client, ASKING, 0);
        } else if (client->state == HOLDING) {
            bool is_to_share = client->count == 1 && client->items[0].units != 1 && dice(actor, 4) == 0;
            client_set_state(c, client, is_to_share ? DOWNGRADING : RELEASING, 0);
        } else if (client->state == QUEUED) {
            actor->gave_up++;
            client_set_state(c, client, LEAVING, 0);
        }
    }
}

static bool is_idle(const struct coordinator *c)
{
    for (const struct client *client = c->clients; client < c->clients + CLIENTS; client++)
        if (client->state != IDLE)
            return false;
    return true;
}

static enum outcome turn(struct coordinator *c)
{
    static const struct {
        const char *function;
        enum client_state state;
    } batches[] = {{"give", RELEASING}, {"go", LEAVING}, {"down", DOWNGRADING}, {"ask", ASKING}};
    struct actor *actor = c->actor;
    char payload[256];
    enum outcome outcome = tick(c);
    advance_clients(c);
    for (int i = 0; i < 4 && outcome != BROKEN && outcome != SOAK_BUG; i++)
        outcome = send_batch(c, batches[i].function, batches[i].state);
    if (outcome != BROKEN && outcome != SOAK_BUG)
        outcome = ask_all(c);
    while (outcome == DONE && wait_for_notify(actor, 2, payload, sizeof payload)) {
        const char *key = strchr(payload, '\n');
        for (int i = 0; key == NULL && i < SCOPES; i++)
            wake(c, scope_names[i]);
        if (key != NULL && !wake(c, key + 1))
            do {
                outcome =
                    run(actor, "select leasehold_internal.pass_on('%s', soak.ns('%s'), '%s')", c->id, key + 1, key + 1);
            } while (outcome == AGAIN);
    }
    return outcome;
}

void *coordinator_main(void *argument)
{
    struct coordinator c = {.actor = argument};
    struct soak *soak = c.actor->soak;
    bool is_up = die(&c);
    while (is_up && !soak->has_failed && !(soak->is_stopping && is_idle(&c))) {
        if (turn(&c) == BROKEN)
            is_up = come_back(&c);
        else if (!soak->is_calm && !soak->is_stopping && dice(c.actor, DIES_ONE_TURN_IN) == 0)
            is_up = die(&c);
    }
    c.actor->backend_pid = 0;
    __atomic_sub_fetch(&soak->running, 1, __ATOMIC_SEQ_CST);
    __atomic_add_fetch(&soak->progress, 1, __ATOMIC_SEQ_CST);
    return NULL;
}
