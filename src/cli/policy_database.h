/* Policies, read and changed in the database without a daemon, with the results of the AdminService. Answers live in
   `arena`. */
#ifndef LH_CLI_POLICY_DATABASE_H
#define LH_CLI_POLICY_DATABASE_H

#include "cli/database.h"

enum lh_exit lh_policy_database_get(const struct lh_cli *cli, const char *ns, struct lh_arena *arena,
                                    Leasehold__V1__GetPolicyResponse *response);
enum lh_exit lh_policy_database_list(const struct lh_cli *cli, struct lh_arena *arena,
                                     Leasehold__V1__ListPoliciesResponse **response);

/* Changes each field of `mask`: sets it if `policy` has it, else lets it inherit again; all of them or none. */
enum lh_exit lh_policy_database_set(const struct lh_cli *cli, const char *ns, const Leasehold__V1__Policy *policy,
                                    const Google__Protobuf__FieldMask *mask, struct lh_arena *arena,
                                    Leasehold__V1__SetPolicyResponse *response);

#endif
