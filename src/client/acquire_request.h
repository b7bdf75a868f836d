/* The request of an acquire: its options are checked, kept while it lasts, and packed into messages. A new field of the
   options is named in acquire_request.c alone. */
#ifndef LH_CLIENT_ACQUIRE_REQUEST_H
#define LH_CLIENT_ACQUIRE_REQUEST_H

#include "client/acquire_op.h"

/* Check what the caller passes. LH_INVALID_ARGUMENT: `error` names the field. `lease_key` is set if options has one. */
enum lh_status lh_acquire_check_options(const struct lh_acquire_options *options, struct lh_uuid *lease_key,
                                        struct lh_error *error);
enum lh_status lh_acquire_check_scope(const struct lh_acquire_scope *scope, struct lh_error *error);

/* Keeps a copy of all that was checked. `lease_key` counts if options has one. */
struct acquire_op *lh_acquire_create(const struct lh_acquire_scope *scopes, size_t count,
                                     const struct lh_acquire_options *options, const struct lh_uuid *lease_key);

/* Makes the message of an acquire of one scope; `left_us` is what is left of the wait. It borrows its arguments. */
Leasehold__V1__AcquireRequest *lh_acquire_message(Leasehold__V1__Scope *scope, char *lease_key, int64_t duration_us,
                                                  const struct lh_acquire_options *options, int64_t left_us,
                                                  struct lh_arena *arena);

/* The `pack` of the verbs. */
void lh_acquire_pack(struct lh_request *request, struct lh_buffer *buffer);
void lh_acquire_all_pack(struct lh_request *request, struct lh_buffer *buffer);

#endif
