#include "client/endpoints.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

#define DEFAULT_ENDPOINT "127.0.0.1:7420"
#define CONNECT_TIMEOUT_US (2 * LH_US_PER_S)

/* A server that stands still is found out after twice that, where a call waits for its answer. */
#define KEEPALIVE_US (5 * LH_US_PER_S)

/* --- TLS --- */

/* An empty variable is as good as none. */
static const char *environment(const char *name)
{
    const char *value = getenv(name);
    return value != NULL && value[0] != '\0' ? value : NULL;
}

static bool is_one_of(const char *word, const char *one, const char *two, const char *three, const char *four)
{
    return strcmp(word, one) == 0 || strcmp(word, two) == 0 || strcmp(word, three) == 0 || strcmp(word, four) == 0;
}

/* Commands of leasehold run have the key of their lease in LEASEHOLD_KEY: without a certificate it is no file. */
static const char *key_file_of_environment(void)
{
    const char *moved = environment("LEASEHOLD_TLS_KEY");

    if (moved != NULL || environment("LEASEHOLD_CERT") == NULL)
        return moved;
    return environment("LEASEHOLD_KEY");
}

void lh_tls_move_key_file(void)
{
    const char *key_file = key_file_of_environment();

    if (key_file != NULL)
        setenv("LEASEHOLD_TLS_KEY", key_file, 1);
}

enum lh_status lh_tls_from_environment(struct lh_client_tls *tls, struct lh_error *error)
{
    const char *word = environment("LEASEHOLD_TLS");

    *tls = (struct lh_client_tls){
        .ca_file = environment("LEASEHOLD_CA"),
        .crl_file = environment("LEASEHOLD_CRL"),
        .cert_file = environment("LEASEHOLD_CERT"),
        .key_file = key_file_of_environment(),
        .server_name = environment("LEASEHOLD_SERVER_NAME"),
        .token_file = environment("LEASEHOLD_TOKEN_FILE"),
    };
    tls->plaintext = tls->ca_file == NULL && tls->crl_file == NULL && tls->cert_file == NULL && tls->key_file == NULL &&
                     tls->server_name == NULL;
    if (word == NULL)
        return LH_OK;
    tls->plaintext = is_one_of(word, "no", "off", "false", "0");
    if (!tls->plaintext && !is_one_of(word, "yes", "on", "true", "1"))
        return lh_error_set(error, LH_INVALID_ARGUMENT, "LEASEHOLD_TLS is %s; it takes yes or no", word);
    return LH_OK;
}

static enum lh_status choose_tls(const struct lh_client_tls *wanted, struct lh_client_tls *tls, struct lh_error *error)
{
    if (wanted != NULL)
        *tls = *wanted;
    else if (lh_tls_from_environment(tls, error) != LH_OK)
        return LH_INVALID_ARGUMENT;
    if (!tls->plaintext && (tls->cert_file == NULL) != (tls->key_file == NULL))
        return lh_error_set(error, LH_INVALID_ARGUMENT,
                            "a certificate and its private key belong together: the %s is missing",
                            tls->key_file == NULL ? "key" : "certificate");
    return LH_OK;
}

/* --- the servers --- */

static enum lh_status add(struct endpoints *endpoints, struct lh_loop *loop, char *target,
                          const struct lh_client_options *options, const struct lh_client_tls *tls,
                          struct lh_error *error)
{
    const struct lh_rpc_tls files = {tls->ca_file, tls->crl_file, tls->cert_file, tls->key_file, tls->server_name};
    struct lh_rpc_channel_options channel_options;
    struct endpoint *endpoint;
    struct lh_rpc_channel *channel;

    if (endpoints->count == LH_ENDPOINTS_MAX)
        return lh_error_set(error, LH_INVALID_ARGUMENT, "endpoints: there are more than %d", LH_ENDPOINTS_MAX);
    lh_rpc_channel_options_init(&channel_options);
    channel_options.connect_timeout_us =
        options->connect_timeout_us > 0 ? options->connect_timeout_us : CONNECT_TIMEOUT_US;
    channel_options.keepalive_us = KEEPALIVE_US;
    channel_options.tls = tls->plaintext ? NULL : &files;
    channel_options.token_file = tls->token_file;
    channel = lh_rpc_channel_create(loop, target, &channel_options, error);
    if (channel == NULL)
        return LH_INVALID_ARGUMENT;
    endpoint = &endpoints->items[endpoints->count++];
    endpoint->target = lh_strdup(target);
    endpoint->channel = channel;
    lh_breaker_init(&endpoint->breaker, endpoint->target, options->breaker_failures, options->breaker_open_us);
    return LH_OK;
}

enum lh_status lh_endpoints_init(struct endpoints *endpoints, struct lh_loop *loop,
                                 const struct lh_client_options *options, struct lh_error *error)
{
    const char *text = options->endpoints != NULL ? options->endpoints : getenv("LEASEHOLD_SERVER");
    char *copy, *rest, *target;
    struct lh_client_tls tls;
    enum lh_status status = choose_tls(options->tls, &tls, error);

    *endpoints = (struct endpoints){0};
    rest = copy = lh_strdup(text != NULL ? text : DEFAULT_ENDPOINT);
    while (status == LH_OK && (target = strsep(&rest, ",")) != NULL) {
        target += strspn(target, " ");
        target[strcspn(target, " ")] = '\0';
        status = add(endpoints, loop, target, options, &tls, error);
    }
    free(copy);
    if (status != LH_OK)
        lh_endpoints_finish(endpoints);
    return status;
}

void lh_endpoints_finish(struct endpoints *endpoints)
{
    for (size_t i = 0; i < endpoints->count; i++) {
        lh_rpc_channel_destroy(endpoints->items[i].channel);
        free(endpoints->items[i].target);
    }
    endpoints->count = 0;
}

struct endpoint *lh_endpoints_admit(struct endpoints *endpoints, size_t wanted, int64_t now_us, uint64_t *ticket)
{
    for (size_t i = 0; i < endpoints->count; i++) {
        struct endpoint *endpoint = &endpoints->items[(wanted + i) % endpoints->count];
        *ticket = lh_breaker_admit(&endpoint->breaker, now_us);
        if (*ticket != BREAKER_OPEN)
            return endpoint;
    }
    return NULL;
}

void lh_endpoints_leave(struct endpoints *endpoints, const struct endpoint *endpoint)
{
    size_t index = lh_endpoints_index(endpoints, endpoint);
    if (endpoints->current == index)
        endpoints->current = (index + 1) % endpoints->count;
}

size_t lh_endpoints_index(const struct endpoints *endpoints, const struct endpoint *endpoint)
{
    return (size_t)(endpoint - endpoints->items);
}

/* --- breakers --- */

static void set_state(struct breaker *breaker, enum breaker_state state, const char *why)
{
    static const char *const names[] = {"closed", "open", "half open"};

    if (breaker->state == state)
        return;
    lh_info("circuit %s endpoint=%s failures=%u: %s", names[state], breaker->name, breaker->failures, why);
    breaker->state = state;
}

void lh_breaker_init(struct breaker *breaker, const char *name, uint32_t failures, int64_t open_us)
{
    memset(breaker, 0, sizeof(*breaker));
    breaker->name = name;
    breaker->limit = failures > 0 ? failures : BREAKER_FAILURES_DEFAULT;
    breaker->open_us = open_us > 0 ? open_us : BREAKER_OPEN_US_DEFAULT;
    breaker->ticket = BREAKER_OPEN + 1;
}

bool lh_breaker_is_open(const struct breaker *breaker, int64_t now_us)
{
    return breaker->state != BREAKER_CLOSED && now_us < breaker->probe_at_us;
}

uint64_t lh_breaker_admit(struct breaker *breaker, int64_t now_us)
{
    if (lh_breaker_is_open(breaker, now_us))
        return BREAKER_OPEN;
    if (breaker->state == BREAKER_IS_OPEN) {
        breaker->probe = breaker->ticket;
        set_state(breaker, BREAKER_HALF_OPEN, "one call goes out to try it");
    }
    breaker->probe_at_us = now_us + breaker->open_us;
    return breaker->ticket++;
}

static void open_it(struct breaker *breaker, int64_t now_us, const char *why)
{
    breaker->probe_at_us = now_us + breaker->open_us;
    breaker->opened++;
    set_state(breaker, BREAKER_IS_OPEN, why);
}

static void settle_probe(struct breaker *breaker, enum breaker_result result, int64_t now_us)
{
    switch (result) {
    case BREAKER_SUCCEEDED:
        breaker->failures = 0;
        set_state(breaker, BREAKER_CLOSED, "it answers again");
        break;
    case BREAKER_FAILED:
        breaker->failures++;
        open_it(breaker, now_us, "it still fails");
        break;
    case BREAKER_SAID_NOTHING:
        breaker->probe_at_us = now_us; /* the next call is the next probe */
        set_state(breaker, BREAKER_IS_OPEN, "the try ended without an answer");
        break;
    }
}

void lh_breaker_settle(struct breaker *breaker, uint64_t ticket, enum breaker_result result, int64_t now_us)
{
    if (breaker->state == BREAKER_HALF_OPEN && ticket >= breaker->probe) {
        if (result == BREAKER_FAILED)
            breaker->failed_at = breaker->ticket;
        settle_probe(breaker, result, now_us);
        return;
    }
    if (breaker->state != BREAKER_CLOSED || ticket == BREAKER_OPEN)
        return; /* from before it opened: old news */
    if (result == BREAKER_SUCCEEDED && ticket >= breaker->failed_at)
        breaker->failures = 0;
    if (result != BREAKER_FAILED || ticket < breaker->failed_at)
        return;
    breaker->failed_at = breaker->ticket;
    if (++breaker->failures >= breaker->limit)
        open_it(breaker, now_us, "it failed too often");
}

enum breaker_result lh_breaker_result_of(enum lh_rpc_delivery stage, enum lh_grpc_code code)
{
    if (stage == LH_RPC_ANSWERED)
        return BREAKER_SUCCEEDED;
    switch (code) {
    case LH_GRPC_CANCELLED:
    case LH_GRPC_DEADLINE_EXCEEDED:
    case LH_GRPC_RESOURCE_EXHAUSTED:
    case LH_GRPC_UNAUTHENTICATED: /* each call says which certificate is wrong */
        return BREAKER_SAID_NOTHING;
    default:
        return BREAKER_FAILED;
    }
}
