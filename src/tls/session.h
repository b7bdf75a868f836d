/*
 * TLS over a connected, non-blocking socket: the handshake, then lh_tls_session_read and _write in place of recv and
 * send.
 *
 *     session = lh_tls_session_create(context, fd, "leasehold.example.org");
 *     switch (lh_tls_session_handshake(session)) {
 *     case LH_TLS_WANTS_READ: ... call it again when the socket is readable
 *     case LH_TLS_DONE: ...
 *     case LH_TLS_FAILED: lh_warn("%s", lh_tls_session_failure(session));
 *     }
 *
 * The session reads ahead: after a read that filled all of its room, lh_tls_session_has_input says whether there is
 * more that the socket does not show.
 */
#ifndef LH_TLS_SESSION_H
#define LH_TLS_SESSION_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct lh_tls_context;
struct lh_tls_session;

enum lh_tls_progress { LH_TLS_DONE, LH_TLS_WANTS_READ, LH_TLS_WANTS_WRITE, LH_TLS_FAILED };

/* The reason that a session failed. */
enum lh_tls_fault {
    LH_TLS_FAULT_NONE,
    LH_TLS_FAULT_NETWORK,     /* the socket failed or was closed */
    LH_TLS_FAULT_PROTOCOL,    /* the two sides do not speak the same: no TLS, no common version */
    LH_TLS_FAULT_CERTIFICATE, /* one side does not accept what the other shows */
};

/*
 * `fd` stays the caller's. `server_name`: for a client, the DNS name or IP address that the server's certificate must
 * be for; for a server NULL.
 */
struct lh_tls_session *lh_tls_session_create(struct lh_tls_context *context, int fd, const char *server_name);
void lh_tls_session_destroy(struct lh_tls_session *session); /* sends nothing */

/* One step, as far as the socket allows. It costs up to some milliseconds of computing. */
enum lh_tls_progress lh_tls_session_handshake(struct lh_tls_session *session);

/* As recv: 0 is the end, -1 with EAGAIN is nothing yet, -1 with anything else is a failure. */
ssize_t lh_tls_session_read(struct lh_tls_session *session, void *to, size_t room);
/* As send. After -1 with EAGAIN, or less than `size`, the next write begins with the same bytes. */
ssize_t lh_tls_session_write(struct lh_tls_session *session, const void *from, size_t size);
/*
 * The most memory that OpenSSL uses for this session now, for an owner that bounds the memory of many sessions. A
 * handshake uses several times as much as an open session; it counts from the peer's first byte to its end.
 */
#define LH_TLS_HANDSHAKE_BYTES ((size_t)160 * 1024)
size_t lh_tls_session_bytes(const struct lh_tls_session *session);
bool lh_tls_session_has_input(const struct lh_tls_session *session);
/* The last read said EAGAIN because the socket takes no bytes: read again when it is writable. */
bool lh_tls_session_reads_when_writable(const struct lh_tls_session *session);
void lh_tls_session_close(struct lh_tls_session *session); /* tells the peer that nothing follows */

enum lh_tls_fault lh_tls_session_fault(const struct lh_tls_session *session);
/* Words for a log or an error message: what is wrong, with which certificate. "" without a failure. */
const char *lh_tls_session_failure(const struct lh_tls_session *session);

/*
 * After the handshake. The principal of the peer's certificate: "spiffe://...", "uri:..." or "dns:NAME"; NULL: it showed
 * none, or one without such a name. The last second of that certificate since 1970; 0: it showed none.
 */
const char *lh_tls_session_principal(const struct lh_tls_session *session);
int64_t lh_tls_session_not_after_s(const struct lh_tls_session *session);

/* A newer context than the session's own, with newer lists, names the peer's certificate or one of its chain. */
bool lh_tls_session_is_revoked(const struct lh_tls_session *session, const struct lh_tls_context *context);

#endif
