#include "console/console_internal.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"

/* --- secrets --- */

static void make_secret(char text[SESSION_SECRET_BYTES])
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    uint8_t bytes[SESSION_SECRET_BYTES - 1];

    if (getrandom(bytes, sizeof(bytes), 0) != (ssize_t)sizeof(bytes)) {
        lh_err("no random bytes; stopping");
        abort();
    }
    for (size_t i = 0; i < sizeof(bytes); i++)
        text[i] = digits[bytes[i] & 63];
    text[sizeof(bytes)] = '\0';
}

static bool is_secret(const char *secret, const char *text)
{
    unsigned char difference = 0;

    if (strlen(text) != SESSION_SECRET_BYTES - 1)
        return false;
    for (size_t i = 0; i < SESSION_SECRET_BYTES - 1; i++)
        difference |= (unsigned char)(secret[i] ^ text[i]);
    return difference == 0;
}

bool lh_session_is_csrf(const struct session *session, const char *text)
{
    return is_secret(session->csrf, text);
}

/* --- sessions --- */

void lh_session_end(struct session_table *table, struct session *session)
{
    if (session->id[0] == '\0')
        return;
    explicit_bzero(session->authorization, strlen(session->authorization));
    free(session->authorization);
    explicit_bzero(session, sizeof(*session));
    table->count--;
}

static void end_old(struct session_table *table, int64_t now_us)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (table->sessions[i].id[0] != '\0' && table->sessions[i].ends_at_us <= now_us)
            lh_session_end(table, &table->sessions[i]);
}

struct session *lh_session_find(struct session_table *table, const char *id, int64_t now_us)
{
    end_old(table, now_us);
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (table->sessions[i].id[0] != '\0' && is_secret(table->sessions[i].id, id))
            return &table->sessions[i];
    return NULL;
}

struct session *lh_session_find_number(struct session_table *table, uint64_t number, int64_t now_us)
{
    end_old(table, now_us);
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        if (table->sessions[i].id[0] != '\0' && table->sessions[i].number == number)
            return &table->sessions[i];
    return NULL;
}

struct session *lh_session_create(struct session_table *table, const char *authorization, int64_t now_us)
{
    struct session *session = NULL;

    end_old(table, now_us);
    for (size_t i = 0; i < SESSIONS_MAX && (session == NULL || session->id[0] != '\0'); i++)
        if (session == NULL || table->sessions[i].id[0] == '\0' || table->sessions[i].number < session->number)
            session = &table->sessions[i];
    lh_session_end(table, session);
    make_secret(session->id);
    make_secret(session->csrf);
    session->authorization = lh_strdup(authorization);
    session->number = ++table->made;
    session->ends_at_us = now_us + SESSION_LIFE_US;
    table->count++;
    return session;
}

void lh_session_finish(struct session_table *table)
{
    for (size_t i = 0; i < SESSIONS_MAX; i++)
        lh_session_end(table, &table->sessions[i]);
}

/* "a=1; b=2" (RFC 6265, section 4.2) */
bool lh_session_cookie(const char *header, const char *name, char *value, size_t room)
{
    size_t size = strlen(name);

    while (header != NULL && *header != '\0') {
        size_t length;
        header += strspn(header, " \t;");
        length = strcspn(header, ";");
        if (length > size && strncmp(header, name, size) == 0 && header[size] == '=') {
            length -= size + 1;
            if (length >= room)
                return false;
            memcpy(value, header + size + 1, length);
            value[length] = '\0';
            return true;
        }
        header += length;
    }
    return false;
}

/* --- attempts --- */

/* Without its port; of IPv6 the network. */
static void source_of(const char *peer, char address[64])
{
    const char *end = strrchr(peer, ':');
    struct in6_addr v6;

    snprintf(address, 64, "%.*s", (int)(end == NULL ? strlen(peer) : (size_t)(end - peer)), peer);
    if (address[0] != '[')
        return;
    address[strcspn(address, "]")] = '\0';
    if (inet_pton(AF_INET6, address + 1, &v6) != 1)
        return;
    memset(v6.s6_addr + 8, 0, 8);
    inet_ntop(AF_INET6, &v6, address, 64);
}

bool lh_session_may_sign_in(struct session_table *table, const char *peer, int64_t now_us)
{
    struct sign_in_source *source = &table->sources[0];
    char address[64];

    source_of(peer, address);
    for (size_t i = 0; i < SIGN_IN_SOURCES; i++) {
        if (strcmp(table->sources[i].address, address) == 0) {
            source = &table->sources[i];
            break;
        }
        if (table->sources[i].full_at_us < source->full_at_us)
            source = &table->sources[i];
    }
    if (strcmp(source->address, address) != 0) {
        snprintf(source->address, sizeof(source->address), "%s", address);
        source->full_at_us = now_us;
    }
    if (source->full_at_us < now_us)
        source->full_at_us = now_us;
    if (source->full_at_us - now_us > (SIGN_IN_BURST - 1) * LH_US_PER_S)
        return false;
    source->full_at_us += LH_US_PER_S;
    return true;
}
