/* OpenSSL's way to the socket: recv and send, for its own BIO would raise SIGPIPE in programs that use the library. */
#include <errno.h>
#include <sys/socket.h>

#include "tls/session_internal.h"

static int finish(BIO *bio, struct lh_tls_session *session, ssize_t done, size_t *moved, int retry)
{
    BIO_clear_retry_flags(bio);
    if (done > 0) {
        *moved = (size_t)done;
        return 1;
    }
    if (done < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(bio, retry | BIO_FLAGS_SHOULD_RETRY);
    else if (done < 0)
        session->socket_error = errno;
    return 0;
}

static int read_socket(BIO *bio, char *to, size_t room, size_t *taken)
{
    struct lh_tls_session *session = BIO_get_data(bio);
    ssize_t done = recv(session->fd, to, room, 0);
    int result = finish(bio, session, done, taken, BIO_FLAGS_READ);

    session->is_drained = BIO_should_retry(bio);
    session->is_at_end |= done == 0;
    if (done > 0 && !session->has_first) {
        session->has_first = true;
        session->first = (unsigned char)to[0];
    }
    return result;
}

static int write_socket(BIO *bio, const char *from, size_t size, size_t *written)
{
    struct lh_tls_session *session = BIO_get_data(bio);
    return finish(bio, session, send(session->fd, from, size, MSG_NOSIGNAL), written, BIO_FLAGS_WRITE);
}

static long control(BIO *bio, int command, long number, void *pointer)
{
    const struct lh_tls_session *session = BIO_get_data(bio);

    if (command == BIO_CTRL_EOF)
        return session->is_at_end;
    return command == BIO_CTRL_FLUSH; /* nothing is kept */
}

BIO_METHOD *lh_tls_socket_create(void)
{
    BIO_METHOD *method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "socket");

    if (method == NULL)
        return NULL;
    BIO_meth_set_read_ex(method, read_socket);
    BIO_meth_set_write_ex(method, write_socket);
    BIO_meth_set_ctrl(method, control);
    return method;
}
