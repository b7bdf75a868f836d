/*
 * libleasehold, driven from its standard input: one command a line, one line of answer, from the blocking functions of
 * the public header and nothing else. A command that begins with & runs on a thread of its own.
 *
 *     library_driver ENDPOINTS OWNER TIMEOUT_MS
 *
 *     declare NAMESPACE DURATION_MS MARGIN_MS      once, first
 *     acquire NAME KEY WAIT_MS [UNDER]             NAME is this lease from now on; UNDER: within that lease's context
 *     heartbeat NAME    release NAME    try NAME    drop NAME (destroy it without a release)
 *     held NAME         1 or 0, and what is left in ms
 *     context NAME      1 when it is cancelled, or 0; what is left in ms; its words
 *     cycle COUNT KEYS HOLD_MS SEED                so many times: acquire one of the keys, hold it, release it
 *     stats    close
 *
 * Whenever a lease is lost: `lost NAME REASON`, in time or late by this process's clock.
 */
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "leasehold.h"

#define LEASES_MAX 256
#define NAME_BYTES 64
#define WORDS_MAX 6

struct named {
    char name[NAME_BYTES];
    struct lh_lease *lease;
};

static struct lh_client *client;
static struct lh_declared *declared;
static struct named leases[LEASES_MAX];
static pthread_mutex_t names_lock = PTHREAD_MUTEX_INITIALIZER;

static void say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* One write a line: threads do not mix them. */
static void say(const char *format, ...)
{
    char line[1024];
    va_list arguments;
    int used;

    va_start(arguments, format);
    used = vsnprintf(line, sizeof(line) - 1, format, arguments);
    va_end(arguments);
    if (used > (int)sizeof(line) - 2)
        used = (int)sizeof(line) - 2;
    line[used++] = '\n';
    if (write(STDOUT_FILENO, line, (size_t)used) != used)
        exit(1);
}

static struct named *find(const char *name)
{
    struct named *found = NULL;

    pthread_mutex_lock(&names_lock);
    for (size_t i = 0; i < LEASES_MAX && found == NULL; i++) {
        if (strcmp(leases[i].name, name) == 0)
            found = &leases[i];
    }
    pthread_mutex_unlock(&names_lock);
    return found;
}

static struct named *take_place(const char *name)
{
    struct named *place = find(name);

    if (place != NULL)
        return place;
    pthread_mutex_lock(&names_lock);
    for (size_t i = 0; i < LEASES_MAX && place == NULL; i++) {
        if (leases[i].name[0] == '\0')
            place = &leases[i];
    }
    if (place == NULL)
        exit(1);
    snprintf(place->name, sizeof(place->name), "%s", name);
    pthread_mutex_unlock(&names_lock);
    return place;
}

static struct lh_lease *lease_of(const char *name)
{
    struct named *place = find(name);
    return place != NULL ? place->lease : NULL;
}

static void on_lost(void *arg, struct lh_lease *lease, enum lh_lost_reason reason, const char *words)
{
    struct named *place = lh_lease_user(lease);

    say("lost %s %s %s", place != NULL ? place->name : "?", lh_lost_reason_name(reason),
        lh_lease_remaining_us(lease) > 0 ? "in time" : "late");
}

static void run_declare(char **words)
{
    struct lh_declare_options options = {.duration_us = atoll(words[2]) * LH_MILLISECOND,
                                         .margin_us = atoll(words[3]) * LH_MILLISECOND,
                                         .on_lost = on_lost};
    struct lh_error error;

    declared = lh_declare(client, words[1], &options, &error);
    say("declare %s", declared != NULL ? "OK" : error.message);
}

static void run_acquire(char **words)
{
    struct named *place = take_place(words[1]);
    struct lh_acquire_options options = {.wait_us = atoll(words[3]) * LH_MILLISECOND, .user = place};
    struct lh_error error = {.message = ""};
    struct lh_lease *lease;
    enum lh_status status;

    if (words[4] != NULL && lease_of(words[4]) != NULL)
        options.context = lh_lease_context(lease_of(words[4]));
    status = lh_acquire(declared, words[2], &options, &lease, &error);
    place->lease = lease;
    say("acquire %s %s %lld %s", words[1], lh_status_name(status),
        lease != NULL ? (long long)lh_lease_token(lease) : 0LL, error.message);
}

static void run_heartbeat(char **words)
{
    struct lh_error error = {.message = ""};
    enum lh_status status = lh_heartbeat(lease_of(words[1]), NULL, &error);

    say("heartbeat %s %s %s", words[1], lh_status_name(status), error.message);
}

static void run_release(char **words)
{
    struct lh_release_options options = {.result = "{\"by\": \"driver\"}"};
    struct lh_error error = {.message = ""};
    enum lh_status status = lh_release(lease_of(words[1]), &options, &error);

    say("release %s %s %s", words[1], lh_status_name(status), error.message);
}

static void run_try(char **words)
{
    say("try %s %s", words[1], lh_status_name(lh_try_release(lease_of(words[1]), NULL)));
}

static void run_drop(char **words)
{
    struct named *place = find(words[1]);

    lh_lease_destroy(place->lease);
    place->lease = NULL;
    say("drop %s OK", words[1]);
}

static void run_held(char **words)
{
    const struct lh_lease *lease = lease_of(words[1]);

    say("held %s %d %lld", words[1], lh_lease_is_held(lease), (long long)lh_lease_remaining_us(lease) / 1000);
}

static void run_context(char **words)
{
    struct lh_context *context = lh_lease_context(lease_of(words[1]));
    int64_t left_us = lh_context_remaining_us(context);

    say("context %s %d %lld %s", words[1], lh_context_is_cancelled(context),
        left_us == LH_FOREVER ? -1LL : (long long)left_us / 1000, lh_context_words(context));
}

/*
 * What a controller does all day. Says every token that it believed to hold, and how it gave it back: `hold KEY TOKEN
 * STATUS`; STATUS is that of the release, or LOST where the lease was found lost before.
 */
static void run_cycle(char **words)
{
    unsigned seed = (unsigned)atoi(words[4]);
    int count = atoi(words[1]), keys = atoi(words[2]), hold_ms = atoi(words[3]);
    const struct lh_acquire_options options = {.wait_us = 5 * LH_SECOND};
    const struct lh_release_options done = {.result = "\"cycle\""};

    for (int i = 0; i < count; i++) {
        char key[32];
        struct lh_lease *lease;
        enum lh_status status;

        snprintf(key, sizeof(key), "k%d", rand_r(&seed) % keys);
        status = lh_acquire(declared, key, &options, &lease, NULL);
        if (status != LH_OK) {
            say("refused %s %s", key, lh_status_name(status));
            continue;
        }
        for (int ms = 0; ms < hold_ms && lh_lease_is_held(lease); ms += 5)
            usleep(5000); /* the work */
        if (i % 2 == 0)
            status = lh_release(lease, &done, NULL);
        else
            status = lh_try_release(lease, &done);
        say("hold %s %lld %s %s", key, (long long)lh_lease_token(lease), i % 2 == 0 ? "release" : "try",
            lh_status_name(status));
        lh_lease_destroy(lease);
    }
    say("cycle %s OK", words[4]);
}

static void run_stats(char **words)
{
    struct lh_client_stats stats;

    lh_client_get_stats(client, &stats);
    say("stats leases=%llu requests=%llu releases=%llu retries=%llu refusals=%llu lost=%llu left=%llu",
        (unsigned long long)stats.leases, (unsigned long long)stats.requests, (unsigned long long)stats.releases,
        (unsigned long long)stats.retries, (unsigned long long)stats.refusals, (unsigned long long)stats.lost,
        (unsigned long long)stats.left_to_expire);
}

static void run_close(char **words)
{
    lh_client_close(client, NULL, NULL);
    say("close OK");
}

static const struct {
    const char *name;
    int words; /* at least */
    void (*run)(char **words);
} commands[] = {
    {"declare", 4, run_declare}, {"acquire", 4, run_acquire}, {"heartbeat", 2, run_heartbeat},
    {"release", 2, run_release}, {"try", 2, run_try},         {"drop", 2, run_drop},
    {"held", 2, run_held},       {"context", 2, run_context}, {"cycle", 5, run_cycle},
    {"stats", 1, run_stats},     {"close", 1, run_close},
};

static void run(char *line)
{
    char *words[WORDS_MAX] = {NULL}, *rest = NULL;
    int count = 0;

    for (char *word = strtok_r(line, " \n", &rest); word != NULL && count < WORDS_MAX - 1;
         word = strtok_r(NULL, " \n", &rest))
        words[count++] = word;
    for (size_t i = 0; count > 0 && i < sizeof(commands) / sizeof(commands[0]); i++) {
        if (strcmp(commands[i].name, words[0]) == 0 && count >= commands[i].words) {
            commands[i].run(words);
            return;
        }
    }
    say("what? %s", count > 0 ? words[0] : "");
}

static void *run_on_thread(void *arg)
{
    run(arg);
    free(arg);
    return NULL;
}

int main(int argc, char **argv)
{
    struct lh_client_options options = {0};
    struct lh_error error;
    pthread_t threads[LEASES_MAX];
    size_t thread_count = 0;
    char line[1024];

    if (argc != 4)
        return 2;
    lh_log_to(LH_LOG_INFO, NULL, NULL);
    options.endpoints = argv[1];
    options.owner = argv[2];
    options.timeout_us = atoll(argv[3]) * LH_MILLISECOND;
    client = lh_client_create(&options, &error);
    if (client == NULL) {
        say("%s", error.message);
        return 1;
    }
    while (fgets(line, sizeof(line), stdin) != NULL) {
        if (line[0] != '&')
            run(line);
        else if (thread_count < LEASES_MAX)
            pthread_create(&threads[thread_count++], NULL, run_on_thread, strdup(line + 1));
    }
    for (size_t i = 0; i < thread_count; i++)
        pthread_join(threads[i], NULL);
    lh_client_close(client, NULL, NULL);
    for (size_t i = 0; i < LEASES_MAX; i++)
        lh_lease_destroy(leases[i].lease);
    lh_client_destroy(client);
    return 0;
}
