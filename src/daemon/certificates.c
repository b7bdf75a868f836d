#include "daemon/certificates.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "config/settings.h"
#include "loop/loop.h"
#include "tls/context.h"

#define LOOK_US (10 * LH_US_PER_S)
#define FILES 4

/* What tells one content of a file from the next; zeroed where there is no file. */
struct stamp {
    dev_t device;
    ino_t inode;
    off_t size;
    struct timespec changed;
};

struct contexts {
    struct lh_tls_context *rpc;
    struct lh_tls_context *admin;
};

struct lh_certificates {
    const struct lh_settings *settings;
    struct contexts contexts;
    struct stamp stamps[FILES]; /* of the files that were read last, whether they fitted or not */
    struct lh_timer timer;
    void (*on_new)(void *arg);
    void *arg;
};

static void release(struct contexts *contexts)
{
    lh_tls_context_release(contexts->rpc);
    lh_tls_context_release(contexts->admin);
}

/* False: `error` says why, and `contexts` is as before. */
static bool read_files(const struct lh_settings *settings, struct contexts *contexts, struct lh_error *error)
{
    struct lh_tls_server_options options = {
        .cert_file = settings->tls_cert,
        .key_file = settings->tls_key,
        .client_ca_file = settings->tls_client_ca,
        .crl_file = settings->tls_crl,
        .min_version = settings->tls_min_version == 0 ? LH_TLS_1_2 : LH_TLS_1_3,
    };
    /* Probes have no certificate; people may show theirs. */
    struct contexts fresh = {.admin = lh_tls_server_context_create(&options, error)};

    options.needs_client_cert = settings->tls_client_auth == LH_TLS_CLIENT_REQUIRE;
    options.protocol = "h2";
    if (fresh.admin != NULL)
        fresh.rpc = lh_tls_server_context_create(&options, error);
    if (fresh.rpc == NULL) {
        release(&fresh);
        return false;
    }
    release(contexts);
    *contexts = fresh;
    return true;
}

enum lh_status lh_certificates_check(const struct lh_settings *settings, struct lh_error *error)
{
    struct contexts contexts = {0};
    bool is_good = read_files(settings, &contexts, error);

    release(&contexts);
    return is_good ? LH_OK : LH_INVALID_ARGUMENT;
}

static void take_stamps(const struct lh_settings *settings, struct stamp stamps[FILES])
{
    const char *const files[FILES] = {settings->tls_cert, settings->tls_key, settings->tls_client_ca,
                                      settings->tls_crl};

    memset(stamps, 0, FILES * sizeof(stamps[0]));
    for (size_t i = 0; i < FILES; i++) {
        struct stat found;
        if (files[i] == NULL || stat(files[i], &found) != 0)
            continue;
        stamps[i].device = found.st_dev;
        stamps[i].inode = found.st_ino;
        stamps[i].size = found.st_size;
        stamps[i].changed = found.st_ctim;
    }
}

static void tell_lists(const struct lh_certificates *certificates)
{
    const struct lh_tls_lists found = lh_tls_context_lists(certificates->contexts.rpc);
    const char *file = certificates->settings->tls_crl;

    if (found.lists == 0)
        return;
    lh_info("revocation lists in force file=%s lists=%zu revoked=%zu", file, found.lists, found.revoked);
    if (found.left_s < 0)
        lh_warn("a revocation list is overdue: it stays in force, and what was revoked since is not known file=%s "
                "hours=%lld",
                file, (long long)(-found.left_s / 3600));
}

static void tell(const struct lh_certificates *certificates)
{
    int64_t left_s = lh_tls_context_not_after_s(certificates->contexts.rpc) - (int64_t)time(NULL);

    lh_info("TLS certificate in force file=%s name=%s hours_left=%lld", certificates->settings->tls_cert,
            lh_tls_context_name(certificates->contexts.rpc), (long long)(left_s / 3600));
    if (left_s <= 0)
        lh_warn("the TLS certificate has expired, clients will refuse it file=%s", certificates->settings->tls_cert);
    tell_lists(certificates);
}

void lh_certificates_reload(struct lh_certificates *certificates)
{
    struct lh_error error = {0};

    take_stamps(certificates->settings, certificates->stamps); /* before: what changes meanwhile is read again */
    if (!read_files(certificates->settings, &certificates->contexts, &error)) {
        lh_err("TLS: %s; what was read before stays in force", error.message);
        return;
    }
    tell(certificates);
    certificates->on_new(certificates->arg);
}

static void look(void *arg)
{
    struct lh_certificates *certificates = arg;
    struct stamp now[FILES];

    take_stamps(certificates->settings, now);
    if (memcmp(now, certificates->stamps, sizeof(now)) != 0)
        lh_certificates_reload(certificates);
    lh_timer_arm_at_us(&certificates->timer, lh_clock_us() + LOOK_US);
}

struct lh_certificates *lh_certificates_create(struct lh_loop *loop, const struct lh_settings *settings,
                                               void (*on_new)(void *arg), void *arg, struct lh_error *error)
{
    struct lh_certificates *certificates = lh_alloc_zero(1, sizeof(*certificates));

    certificates->settings = settings;
    certificates->on_new = on_new;
    certificates->arg = arg;
    take_stamps(settings, certificates->stamps);
    if (!read_files(settings, &certificates->contexts, error)) {
        free(certificates);
        return NULL;
    }
    tell(certificates);
    lh_timer_init(&certificates->timer, loop, look, certificates);
    lh_timer_arm_at_us(&certificates->timer, lh_clock_us() + LOOK_US);
    return certificates;
}

struct lh_tls_context *lh_certificates_for_rpc(const struct lh_certificates *certificates)
{
    return certificates->contexts.rpc;
}

struct lh_tls_context *lh_certificates_for_admin(const struct lh_certificates *certificates)
{
    return certificates->contexts.admin;
}

void lh_certificates_destroy(struct lh_certificates *certificates)
{
    if (certificates == NULL)
        return;
    lh_timer_finish(&certificates->timer);
    release(&certificates->contexts);
    free(certificates);
}
