/*
 * libleasehold for tests: does what lines on stdin say, and says on stdout what came of it, one line each.
 *
 *     library_driver thread|base|blocking [option=value ...]
 *
 *     declare NAME NAMESPACE [duration_ms= margin_ms= longest_ms= more_ms=]
 *     acquire ID DECLARED KEY [wait_ms=N|forever alive= timeout_ms= lease_key= under=ID waiting=1 shared=UNITS]
 *     all ID DECLARED KEY[*UNITS],... [wait_ms=N|forever lease_key= timeout_ms=]     leases ID.0, ID.1 ...
 *     many PREFIX DECLARED COUNT         acquires PREFIX0 ... in one go
 *     heartbeat ID, downgrade ID [units=], release ID [result= failure=], try ID [result=], tries PREFIX COUNT, destroy ID, cancel ID
 *     show ID, watch ID, stats, close, quit
 *
 * "thread" and "base" use the calls that do not wait, on a client's own thread and on a libevent base that this program
 * runs; "blocking" the others.
 */
#include <err.h>
#include <event2/event.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold.h"

#define NAMES_MAX 16
#define WORDS_MAX 16
#define SLOTS_MAX 20000

struct named {
    char name[32];
    struct lh_declared *declared;
    int64_t more_us;
};

struct slot {
    char id[48];
    struct lh_lease *lease;
    struct lh_request *request;
    struct lh_context_callback callback;
    int waited_for; /* "all": how many leases */
};

static const char *mode;
static struct event_base *base;
static struct lh_client *client;
static struct named names[NAMES_MAX];
static struct slot *slots;
static size_t name_count, slot_count;
static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static size_t many_left, many_held;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static void say(const char *format, ...)
{
    va_list arguments;

    pthread_mutex_lock(&output);
    va_start(arguments, format);
    vprintf(format, arguments);
    va_end(arguments);
    putchar('\n');
    fflush(stdout);
    pthread_mutex_unlock(&output);
}

/* --- words --- */

static const char *option(char **words, size_t count, const char *name)
{
    size_t size = strlen(name);

    for (size_t i = 0; i < count; i++)
        if (strncmp(words[i], name, size) == 0 && words[i][size] == '=')
            return words[i] + size + 1;
    return NULL;
}

static int64_t option_ms(char **words, size_t count, const char *name)
{
    const char *text = option(words, count, name);

    if (text == NULL)
        return 0;
    return strcmp(text, "forever") == 0 ? LH_FOREVER : atoll(text) * LH_MILLISECOND;
}

static struct slot *find(const char *id)
{
    for (size_t i = 0; i < slot_count; i++)
        if (strcmp(slots[i].id, id) == 0)
            return &slots[i];
    return NULL;
}

/* What a callback on the client's thread left there. */
static struct lh_lease *lease_of(struct slot *slot)
{
    struct lh_lease *lease;

    pthread_mutex_lock(&mutex);
    lease = slot->lease;
    pthread_mutex_unlock(&mutex);
    return lease;
}

static struct slot *make(const char *id)
{
    struct slot *slot = find(id);

    if (slot != NULL)
        return slot;
    if (slot_count == SLOTS_MAX)
        errx(2, "too many leases");
    slot = &slots[slot_count++];
    snprintf(slot->id, sizeof(slot->id), "%s", id);
    return slot;
}

static struct named *declared_as(const char *name)
{
    for (size_t i = 0; i < name_count; i++)
        if (strcmp(names[i].name, name) == 0)
            return &names[i];
    errx(2, "no declaration %s", name);
}

/* --- what is told --- */

static const char *words_of(enum lh_status status, const struct lh_error *error)
{
    return status == LH_OK ? "" : error->message;
}

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    struct slot *slot = lh_lease_user(lease);
    say("lost %s %s held=%d cancelled=%d %s", slot->id, lh_lost_reason_name(reason), lh_lease_is_held(lease),
        lh_context_is_cancelled(lh_lease_context(lease)), words);
}

static int64_t on_longest_hold(void *arg, struct lh_lease *lease)
{
    struct named *named = arg;
    struct slot *slot = lh_lease_user(lease);
    int64_t more_us = named->more_us;

    say("longest %s", slot->id);
    named->more_us = 0;
    return more_us;
}

static void on_acquired(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct slot *slot = arg;

    pthread_mutex_lock(&mutex);
    slot->request = NULL;
    slot->lease = lease;
    pthread_mutex_unlock(&mutex);
    say("acquire %s %s token=%lld %s", slot->id, lh_status_name(status),
        lease == NULL ? 0LL : (long long)lh_lease_token(lease), words_of(status, error));
}

static void on_one_of_many(void *arg, enum lh_status status, struct lh_lease *lease, const struct lh_error *error)
{
    struct slot *slot = arg;
    bool is_last;

    pthread_mutex_lock(&mutex);
    slot->lease = lease;
    many_held += status == LH_OK;
    is_last = --many_left == 0;
    pthread_mutex_unlock(&mutex);
    if (status != LH_OK)
        say("one %s %s %s", slot->id, lh_status_name(status), error->message);
    if (is_last)
        say("many held=%zu", many_held);
}

static void on_heartbeat(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct slot *slot = arg;
    say("heartbeat %s %s %s", slot->id, lh_status_name(status), words_of(status, error));
}

static void on_downgrade(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct slot *slot = arg;
    say("downgrade %s %s %s", slot->id, lh_status_name(status), words_of(status, error));
}

static void on_release(void *arg, enum lh_status status, const struct lh_error *error)
{
    struct slot *slot = arg;
    say("release %s %s %s", slot->id, lh_status_name(status), words_of(status, error));
}

static void on_waiting(void *arg, const struct lh_obstacle *obstacle)
{
    struct slot *slot = arg;
    say("waiting %s owner=%s liveness=%d ahead=%u mode=%d units=%d holders=%u free=%d", slot->id, obstacle->owner,
        (int)obstacle->liveness, obstacle->waiters_ahead, (int)obstacle->mode, (int)obstacle->units,
        obstacle->holder_count, (int)obstacle->units_free);
}

static void on_cancel(void *arg, struct lh_context *context)
{
    struct slot *slot = arg;
    say("cancelled %s %s", slot->id, lh_context_words(context));
}

/* --- commands --- */

static void declare(char **words, size_t count)
{
    struct named *named = &names[name_count++];
    struct lh_error error = {0};
    struct lh_declare_options options = {
        .duration_us = option_ms(words, count, "duration_ms"),
        .margin_us = option_ms(words, count, "margin_ms"),
        .longest_hold_us = option_ms(words, count, "longest_ms"),
        .on_lost = on_lost,
        .on_longest_hold = option(words, count, "more_ms") != NULL ? on_longest_hold : NULL,
        .arg = named,
    };

    named->more_us = option_ms(words, count, "more_ms");
    snprintf(named->name, sizeof(named->name), "%s", words[1]);
    named->declared = lh_declare(client, words[2], &options, &error);
    if (named->declared == NULL)
        name_count--;
    say("declare %s %s %s", words[1], lh_status_name(error.status), error.message);
}

static void acquire(char **words, size_t count)
{
    struct slot *slot = make(words[1]);
    struct lh_declared *declared = declared_as(words[2])->declared;
    const char *under = option(words, count, "under");
    const char *shared = option(words, count, "shared");
    struct lh_error error = {0};
    struct lh_acquire_options options = {
        .wait_us = option_ms(words, count, "wait_ms"),
        .wait_while_alive = option(words, count, "alive") != NULL,
        .timeout_us = option_ms(words, count, "timeout_ms"),
        .lease_key = option(words, count, "lease_key"),
        .context = under != NULL ? lh_lease_context(lease_of(find(under))) : NULL,
        .on_waiting = option(words, count, "waiting") != NULL ? on_waiting : NULL,
        .on_waiting_arg = slot,
        .user = slot,
        .mode = shared != NULL ? LH_SHARED : LH_EXCLUSIVE,
        .units = shared != NULL ? (int32_t)atol(shared) : 0,
    };
    enum lh_status status;

    if (strcmp(mode, "blocking") == 0) {
        struct lh_lease *lease;
        status = lh_acquire(declared, words[3], &options, &lease, &error);
        on_acquired(slot, status, lease, &error);
        return;
    }
    pthread_mutex_lock(&mutex);
    status = lh_acquire_async(declared, words[3], &options, on_acquired, slot, &slot->request, &error);
    pthread_mutex_unlock(&mutex);
    if (status != LH_OK)
        say("acquire %s %s %s", slot->id, lh_status_name(status), error.message);
}

static void on_all_acquired(void *arg, enum lh_status status, struct lh_lease *const *leases,
                            const struct lh_error *error)
{
    struct slot *slot = arg;
    char tokens[512] = "";
    size_t size = 0;

    pthread_mutex_lock(&mutex);
    slot->request = NULL;
    for (int i = 0; leases != NULL && i < slot->waited_for; i++) {
        slot[i + 1].lease = leases[i];
        size += (size_t)sprintf(tokens + size, "%s%lld", i > 0 ? "," : "", (long long)lh_lease_token(leases[i]));
    }
    pthread_mutex_unlock(&mutex);
    say("all %s %s tokens=%s %s", slot->id, lh_status_name(status), tokens, words_of(status, error));
}

/* Its leases are the slots behind its own. */
static void all(char **words, size_t count)
{
    struct slot *slot = make(words[1]);
    struct lh_acquire_options options = {.wait_us = option_ms(words, count, "wait_ms"),
                                         .timeout_us = option_ms(words, count, "timeout_ms"),
                                         .lease_key = option(words, count, "lease_key")};
    struct lh_acquire_scope scopes[LH_ACQUIRE_ALL_MAX] = {{0}};
    struct lh_lease *leases[LH_ACQUIRE_ALL_MAX];
    struct lh_error error = {0};
    enum lh_status status;
    size_t wanted = 0;
    char *key;

    while (wanted < LH_ACQUIRE_ALL_MAX && (key = strsep(&words[3], ",")) != NULL) {
        char id[96], *units = strchr(key, '*');
        snprintf(id, sizeof(id), "%s.%zu", slot->id, wanted);
        if (units != NULL)
            *units++ = '\0';
        scopes[wanted++] = (struct lh_acquire_scope){.declared = declared_as(words[2])->declared,
                                                     .key = key,
                                                     .mode = units != NULL ? LH_SHARED : LH_EXCLUSIVE,
                                                     .units = units != NULL ? (int32_t)atol(units) : 0,
                                                     .user = make(id)};
    }
    slot->waited_for = (int)wanted;
    if (strcmp(mode, "blocking") == 0) {
        status = lh_acquire_all(scopes, wanted, &options, leases, &error);
        on_all_acquired(slot, status, status == LH_OK ? leases : NULL, &error);
        return;
    }
    pthread_mutex_lock(&mutex);
    status = lh_acquire_all_async(scopes, wanted, &options, on_all_acquired, slot, &slot->request, &error);
    pthread_mutex_unlock(&mutex);
    if (status != LH_OK)
        say("all %s %s %s", slot->id, lh_status_name(status), error.message);
}

static void many(char **words, size_t count)
{
    size_t wanted = (size_t)atol(words[3]);
    struct lh_error error = {0};

    many_left = wanted;
    many_held = 0;
    for (size_t i = 0; i < wanted; i++) {
        char id[48];
        struct slot *slot = &slots[slot_count++];
        struct lh_acquire_options options = {.user = slot, .timeout_us = 60 * LH_SECOND};

        if (slot_count >= SLOTS_MAX)
            errx(2, "too many leases");
        snprintf(id, sizeof(id), "%s%zu", words[1], i);
        memcpy(slot->id, id, sizeof(id));
        if (lh_acquire_async(declared_as(words[2])->declared, id, &options, on_one_of_many, slot, NULL, &error) !=
            LH_OK)
            errx(2, "many: %s", error.message);
    }
}

static void heartbeat(char **words, size_t count)
{
    struct slot *slot = make(words[1]);
    struct lh_call_options options = {.timeout_us = option_ms(words, count, "timeout_ms")};
    struct lh_error error = {0};
    enum lh_status status;

    if (strcmp(mode, "blocking") == 0)
        on_heartbeat(slot, lh_heartbeat(lease_of(slot), &options, &error), &error);
    else if ((status = lh_heartbeat_async(lease_of(slot), &options, on_heartbeat, slot, NULL, &error)) != LH_OK)
        on_heartbeat(slot, status, &error);
}

static void downgrade(char **words, size_t count)
{
    struct slot *slot = make(words[1]);
    const char *units_text = option(words, count, "units");
    int32_t units = units_text != NULL ? (int32_t)atol(units_text) : 0;
    struct lh_error error = {0};
    enum lh_status status;

    if (strcmp(mode, "blocking") == 0)
        on_downgrade(slot, lh_downgrade(lease_of(slot), units, NULL, &error), &error);
    else if ((status = lh_downgrade_async(lease_of(slot), units, NULL, on_downgrade, slot, NULL, &error)) != LH_OK)
        on_downgrade(slot, status, &error);
}

static void release(char **words, size_t count)
{
    struct slot *slot = make(words[1]);
    struct lh_error error = {0};
    struct lh_release_options options = {
        .result = option(words, count, "result"),
        .failure = option(words, count, "failure"),
        .call.timeout_us = option_ms(words, count, "timeout_ms"),
    };
    enum lh_status status;

    if (strcmp(mode, "blocking") == 0)
        on_release(slot, lh_release(lease_of(slot), &options, &error), &error);
    else if ((status = lh_release_async(lease_of(slot), &options, on_release, slot, NULL, &error)) != LH_OK)
        on_release(slot, status, &error);
}

static void show(struct slot *slot)
{
    char key[37], numbers[256] = "";
    size_t count, size = 0;
    const int32_t *granted = lh_lease_slots(lease_of(slot), &count);

    for (size_t i = 0; i < count && size < sizeof(numbers) - 16; i++)
        size += (size_t)sprintf(numbers + size, "%s%d", i > 0 ? "," : "", (int)granted[i]);
    lh_lease_key(lease_of(slot), key);
    say("show %s held=%d remaining_ms=%lld token=%lld reason=%s key=%s scope=%s/%s cancelled=%d context_ms=%lld "
        "mode=%d "
        "units=%d slots=%s",
        slot->id, lh_lease_is_held(lease_of(slot)), (long long)(lh_lease_remaining_us(lease_of(slot)) / 1000),
        (long long)lh_lease_token(lease_of(slot)), lh_lost_reason_name(lh_lease_lost_reason(lease_of(slot))), key,
        lh_lease_namespace(lease_of(slot)), lh_lease_scope_key(lease_of(slot)),
        lh_context_is_cancelled(lh_lease_context(lease_of(slot))),
        (long long)(lh_context_remaining_us(lh_lease_context(lease_of(slot))) / 1000),
        (int)lh_lease_mode(lease_of(slot)), (int)lh_lease_units(lease_of(slot)), numbers);
}

static void show_stats(void)
{
    struct lh_client_stats s;

    lh_client_get_stats(client, &s);
    say("stats leases=%llu requests=%llu releases=%llu rpcs=%llu batches=%llu renewals=%llu retries=%llu refusals=%llu "
        "lost=%llu left=%llu",
        (unsigned long long)s.leases, (unsigned long long)s.requests, (unsigned long long)s.releases,
        (unsigned long long)s.rpcs, (unsigned long long)s.renewal_batches, (unsigned long long)s.renewals,
        (unsigned long long)s.retries, (unsigned long long)s.refusals, (unsigned long long)s.lost,
        (unsigned long long)s.left_to_expire);
}

static void cancel(struct slot *slot)
{
    pthread_mutex_lock(&mutex);
    if (slot->request != NULL)
        lh_cancel(slot->request);
    pthread_mutex_unlock(&mutex);
}

static void on_closed(void *arg)
{
    say("closed");
}

static void try_release(struct slot *slot, char **words, size_t count)
{
    struct lh_release_options options = {.result = option(words, count, "result")};
    say("try %s %s", slot->id, lh_status_name(lh_try_release(lease_of(slot), &options)));
}

static void try_many(char **words)
{
    size_t size = strlen(words[1]), done = 0;

    for (size_t i = 0; i < slot_count; i++)
        if (strncmp(slots[i].id, words[1], size) == 0 && lease_of(&slots[i]) != NULL)
            done += lh_try_release(lease_of(&slots[i]), NULL) == LH_OK;
    say("tries %s %zu", words[1], done);
}

static bool on_line(char *line)
{
    char *words[WORDS_MAX], *word;
    size_t count = 0;

    line[strcspn(line, "\n")] = '\0';
    while (count < WORDS_MAX && (word = strsep(&line, " ")) != NULL)
        words[count++] = word;
    if (strcmp(words[0], "quit") == 0)
        return false;
    if (strcmp(words[0], "declare") == 0)
        declare(words, count);
    else if (strcmp(words[0], "acquire") == 0)
        acquire(words, count);
    else if (strcmp(words[0], "all") == 0)
        all(words, count);
    else if (strcmp(words[0], "many") == 0)
        many(words, count);
    else if (strcmp(words[0], "heartbeat") == 0)
        heartbeat(words, count);
    else if (strcmp(words[0], "downgrade") == 0)
        downgrade(words, count);
    else if (strcmp(words[0], "release") == 0)
        release(words, count);
    else if (strcmp(words[0], "try") == 0)
        try_release(make(words[1]), words, count);
    else if (strcmp(words[0], "tries") == 0)
        try_many(words);
    else if (strcmp(words[0], "destroy") == 0) {
        lh_lease_destroy(lease_of(make(words[1])));
        make(words[1])->lease = NULL;
    } else if (strcmp(words[0], "cancel") == 0)
        cancel(make(words[1]));
    else if (strcmp(words[0], "show") == 0)
        show(make(words[1]));
    else if (strcmp(words[0], "watch") == 0) {
        struct slot *slot = make(words[1]);
        slot->callback = (struct lh_context_callback){.on_cancel = on_cancel, .arg = slot};
        lh_context_add(lh_lease_context(lease_of(slot)), &slot->callback);
    } else if (strcmp(words[0], "stats") == 0)
        show_stats();
    else if (strcmp(words[0], "close") == 0)
        lh_client_close(client, on_closed, NULL);
    else
        errx(2, "no such command: %s", words[0]);
    return true;
}

static void on_readable(evutil_socket_t fd, short what, void *arg)
{
    static char buffer[65536];
    static size_t used;
    ssize_t got = read(fd, buffer + used, sizeof(buffer) - 1 - used);
    char *end;

    used += got > 0 ? (size_t)got : 0;
    buffer[used] = '\0';
    while ((end = strchr(buffer, '\n')) != NULL) {
        size_t size = (size_t)(end - buffer) + 1;
        *end = '\0';
        if (!on_line(buffer))
            got = 0;
        used -= size;
        memmove(buffer, buffer + size, used + 1);
    }
    if (got <= 0)
        event_base_loopbreak(base);
}

static void run(void)
{
    static char line[65536];

    if (base != NULL) {
        struct event *input = event_new(base, STDIN_FILENO, EV_READ | EV_PERSIST, on_readable, NULL);
        event_add(input, NULL);
        event_base_dispatch(base);
        event_free(input);
        return;
    }
    while (fgets(line, sizeof(line), stdin) != NULL && on_line(line))
        ;
}

int main(int argc, char **argv)
{
    struct lh_error error = {0};
    char **words = argv + 2;
    size_t count = (size_t)(argc > 2 ? argc - 2 : 0);
    struct lh_client_options options = {
        .endpoints = option(words, count, "endpoints"),
        .namespace_prefix = option(words, count, "prefix"),
        .timeout_us = option_ms(words, count, "timeout_ms"),
        .connect_timeout_us = option_ms(words, count, "connect_timeout_ms"),
        .flush_us = option_ms(words, count, "flush_ms"),
        .max_releases = (uint32_t)(option_ms(words, count, "max_releases") / LH_MILLISECOND),
        .max_requests = (uint32_t)(option_ms(words, count, "max_requests") / LH_MILLISECOND),
    };

    if (argc < 2)
        errx(2, "which mode?");
    mode = argv[1];
    lh_log_to(option(words, count, "log") != NULL ? LH_LOG_INFO : LH_LOG_WARN, NULL, NULL);
    slots = calloc(SLOTS_MAX, sizeof(*slots));
    if (strcmp(mode, "base") == 0)
        options.event_base = base = event_base_new();
    client = lh_client_create(&options, &error);
    if (client == NULL) {
        say("create %s %s", lh_status_name(error.status), error.message);
        return 1;
    }
    say("ready");
    run();
    for (size_t i = 0; i < slot_count; i++)
        lh_lease_destroy(lease_of(&slots[i]));
    lh_client_destroy(client);
    if (base != NULL)
        event_base_free(base);
    free(slots);
    say("bye");
    return 0;
}
