/* Access rules and tokens, changed in the database without a daemon, with the results of the AdminService. Answers
   live in `arena`. */
#ifndef LH_CLI_ACCESS_DATABASE_H
#define LH_CLI_ACCESS_DATABASE_H

#include "cli/database.h"

enum lh_exit lh_access_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListAccessResponse **response);

/* Grants or revokes `rights`, written with commas between. `rule` gets the rule as changed; NULL: none is left. */
enum lh_exit lh_access_database_change(const struct lh_cli *cli, bool is_grant, const char *principal, const char *ns,
                                       const char *rights, struct lh_arena *arena, Leasehold__V1__AccessRule **rule);

/* Creates a token. `expires_us` 0: it never expires. */
enum lh_exit lh_token_database_create(const struct lh_cli *cli, const char *name, int64_t expires_us,
                                      struct lh_arena *arena, Leasehold__V1__CreateTokenResponse **response);
enum lh_exit lh_token_database_revoke(const struct lh_cli *cli, const char *name_or_id, struct lh_arena *arena,
                                      Leasehold__V1__RevokeTokenResponse **response);
enum lh_exit lh_token_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                    Leasehold__V1__ListTokensResponse **response);

#endif
