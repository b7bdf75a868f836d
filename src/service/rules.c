#include "service/rules.h"

#include <string.h>

#include "base/text.h"
#include "service/message.h"

#define RIGHTS_COUNT 4

/* --- requests --- */

static bool check_principal(struct lh_validator *v, const char *principal)
{
    const char *wildcard = strchr(principal, '*');

    if (!lh_validate_text(v, LH_TEXT_PRINCIPAL, principal, "principal"))
        return false;
    if (wildcard == NULL || wildcard[1] == '\0')
        return true;
    return lh_violations_add(v->violations, "principal", "must have * at its end only, is \"%.*s\"",
                             (int)lh_utf8_cut(principal, strlen(principal), 63), principal);
}

static bool read_rights(struct lh_validator *v, const Leasehold__V1__Right *rights, size_t count, unsigned *result)
{
    char path[LH_VIOLATION_FIELD_BYTES];
    bool is_valid = true;

    *result = 0;
    for (size_t i = 0; i < count; i++) {
        if (rights[i] >= LEASEHOLD__V1__RIGHT__RIGHT_READ && rights[i] <= LEASEHOLD__V1__RIGHT__RIGHT_ADMIN) {
            *result |= 1u << ((unsigned)rights[i] - 1);
        } else {
            is_valid =
                lh_violations_add(v->violations, lh_field_nth(path, "rights", i),
                                  "must be RIGHT_READ, RIGHT_LEASE, RIGHT_GUARD or RIGHT_ADMIN, is %d", (int)rights[i]);
        }
    }
    return is_valid;
}

static bool read_rule(struct lh_validator *v, const char *principal, const Leasehold__V1__Namespace *ns,
                      const Leasehold__V1__Right *rights, size_t count, struct lh_access_change *change)
{
    bool is_valid = check_principal(v, principal);

    change->rule.principal = principal;
    is_valid &= lh_validate_namespace(v, ns != NULL ? ns->segments : NULL, ns != NULL ? ns->n_segments : 0, true,
                                      "namespace.segments", &change->rule.ns) &&
                lh_validate_place(v, change->rule.ns, false, "namespace.segments");
    is_valid &= read_rights(v, rights, count, &change->rule.rights);
    return is_valid;
}

bool lh_rule_from_grant(struct lh_validator *v, const Leasehold__V1__GrantAccessRequest *request,
                        struct lh_access_change *change)
{
    bool is_valid = read_rule(v, request->principal, request->namespace_, request->rights, request->n_rights, change);

    change->is_revoke = false;
    if (request->n_rights == 0)
        is_valid = lh_violations_add(v->violations, "rights", "must have at least one right");
    return is_valid;
}

bool lh_rule_from_revoke(struct lh_validator *v, const Leasehold__V1__RevokeAccessRequest *request,
                         struct lh_access_change *change)
{
    change->is_revoke = true;
    return read_rule(v, request->principal, request->namespace_, request->rights, request->n_rights, change);
}

static bool check_token_name(struct lh_validator *v, const char *name, const char *field)
{
    size_t size = strlen(name);

    if (size >= 1 && size <= LH_TOKEN_NAME_MAX_BYTES && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789._-") == size)
        return true;
    return lh_violations_add(v->violations, field, "must be 1 to %d of a-z, 0-9, '.', '_' and '-', is \"%.*s\"",
                             LH_TOKEN_NAME_MAX_BYTES, (int)lh_utf8_cut(name, size, LH_TOKEN_NAME_MAX_BYTES), name);
}

/* As make_token() in SQL makes IDs: to revoke one must not revoke tokens of that name too. */
static bool is_like_id(const char *name)
{
    return strlen(name) == 8 && strspn(name, "0123456789abcdef") == 8;
}

bool lh_validate_create_token(struct lh_validator *v, const Leasehold__V1__CreateTokenRequest *request,
                              int64_t *expires_us)
{
    bool is_valid = check_token_name(v, request->name, "name");

    if (is_like_id(request->name))
        is_valid = lh_violations_add(v->violations, "name",
                                     "must be other than 8 of 0-9 and a-f, which is what IDs of tokens are, is \"%s\"",
                                     request->name);
    *expires_us = 0;
    if (request->expires != NULL)
        is_valid &= lh_validate_duration(v, request->expires, 1, "expires", expires_us);
    return is_valid;
}

bool lh_validate_revoke_token(struct lh_validator *v, const Leasehold__V1__RevokeTokenRequest *request)
{
    return check_token_name(v, request->name_or_id, "name_or_id");
}

/* --- answers --- */

Leasehold__V1__AccessRule *lh_rule_to_message(const struct lh_rule_facts *facts, struct lh_arena *arena)
{
    Leasehold__V1__AccessRule *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__access_rule__init(message);
    message->principal = (char *)(uintptr_t)facts->rule.principal;
    message->namespace_ = lh_message_namespace(facts->rule.ns, arena);
    message->rights = lh_arena_alloc(arena, RIGHTS_COUNT * sizeof(*message->rights));
    for (unsigned i = 0; i < RIGHTS_COUNT; i++)
        if ((facts->rule.rights & 1u << i) != 0)
            message->rights[message->n_rights++] = (Leasehold__V1__Right)(i + 1);
    message->created_at = lh_message_timestamp(facts->created_at_us, arena);
    message->created_by = (char *)(uintptr_t)facts->created_by;
    return message;
}

Leasehold__V1__AccessToken *lh_token_to_message(const struct lh_token_facts *facts, struct lh_arena *arena)
{
    Leasehold__V1__AccessToken *message = lh_arena_alloc(arena, sizeof(*message));

    leasehold__v1__access_token__init(message);
    message->id = (char *)(uintptr_t)facts->id;
    message->name = (char *)(uintptr_t)facts->name;
    message->created_at = lh_message_timestamp(facts->created_at_us, arena);
    message->created_by = (char *)(uintptr_t)facts->created_by;
    if (facts->expires_at_us != INT64_MAX)
        message->expires_at = lh_message_timestamp(facts->expires_at_us, arena);
    if (facts->last_used_at_us != INT64_MIN)
        message->last_used_at = lh_message_timestamp(facts->last_used_at_us, arena);
    return message;
}
