/* The commands of administrators: the settings of a policy, and schedules, have files of their own. */
#ifndef LH_CLI_ADMIN_INTERNAL_H
#define LH_CLI_ADMIN_INTERNAL_H

#include "base/memory.h"
#include "cli/cli.h"
#include "client/reply.h"
#include "leasehold/v1/schedule.pb-c.h"
#include "json/policy_setting.h"

/* --- the settings of a policy in words: json/policy_setting.h has their names and values --- */

/* Returns the field; NULL: there is none, and `error` names the nearest. */
const ProtobufCFieldDescriptor *lh_policy_field(const char *name, struct lh_error *error);

/* Sets the field from words. LH_INVALID_ARGUMENT: `error` lists the values of the setting. */
enum lh_status lh_policy_parse(struct lh_arena *arena, Leasehold__V1__Policy *policy,
                               const ProtobufCFieldDescriptor *field, const char *text, struct lh_error *error);

/* Returns "1.5 s", "takeover", "true", "1000"; NULL if the field is not set. A new string. */
char *lh_policy_text(const Leasehold__V1__Policy *policy, const ProtobufCFieldDescriptor *field);

/* --- schedule_set --- */

/* Schedules without a daemon, for rows of leasehold.schedule called s. */
#define LH_SCHEDULES_SQL                                                                                               \
    "select s.name as namespace, s.expression, s.time_zone, s.catch_up, s.catch_up_max,"                               \
    " s.overlap, s.attempts, s.paused, u.running, u.dead, s.error as trouble,"                                         \
    " (extract(epoch from s.starts_at) * 1000000)::bigint as starts_at,"                                               \
    " (extract(epoch from s.ends_at) * 1000000)::bigint as ends_at,"                                                   \
    " (extract(epoch from s.tick_deadline) * 1000000)::bigint as tick_deadline,"                                       \
    " (extract(epoch from s.jitter) * 1000000)::bigint as jitter,"                                                     \
    " (extract(epoch from s.backoff) * 1000000)::bigint as backoff,"                                                   \
    " (extract(epoch from s.created_at) * 1000000)::bigint as created_at,"                                             \
    " (extract(epoch from s.updated_at) * 1000000)::bigint as updated_at,"                                             \
    " (extract(epoch from u.last_done) * 1000000)::bigint as last_done_at,"                                            \
    " case when not s.paused then (extract(epoch from s.next_at) * 1000000)::bigint end as next_at,"                   \
    " (select coalesce(sum(t.instants), 0)::bigint from leasehold.tick t"                                              \
    "   where t.schedule = s.name and t.state = 'missed') as missed"                                                   \
    "  from leasehold.schedule s join leasehold.schedule_status u on u.name = s.name"

/* Sets a schedule with the options of the command line, and prints it. `time_zone` NULL: that of the options. Not DONE: an
   error was printed. */
enum lh_exit lh_schedule_set(struct lh_cli *cli, const char *name, const char *expression, const char *time_zone);

/* --- crontab --- */

/* schedule import. */
enum lh_exit lh_schedule_import(struct lh_cli *cli);

#endif
