/*
 * The daemon's certificates: read at its start, and again when their files change. They are looked at every 10 s, for
 * cert-manager and certbot replace them without a signal. Files that do not fit together leave the old ones in force.
 */
#ifndef LH_DAEMON_CERTIFICATES_H
#define LH_DAEMON_CERTIFICATES_H

#include "base/status.h"

struct lh_certificates;
struct lh_loop;
struct lh_settings;
struct lh_tls_context;

/* `settings`, which have tls_cert, are borrowed. on_new: other files are in force; later, any number of times. */
struct lh_certificates *lh_certificates_create(struct lh_loop *loop, const struct lh_settings *settings,
                                               void (*on_new)(void *arg), void *arg, struct lh_error *error);
/* Borrowed. The admin port asks no client for a certificate. */
struct lh_tls_context *lh_certificates_for_rpc(const struct lh_certificates *certificates);
struct lh_tls_context *lh_certificates_for_admin(const struct lh_certificates *certificates);
void lh_certificates_reload(struct lh_certificates *certificates); /* read them now */
void lh_certificates_destroy(struct lh_certificates *certificates);

/* Do the files fit? */
enum lh_status lh_certificates_check(const struct lh_settings *settings, struct lh_error *error);

#endif
