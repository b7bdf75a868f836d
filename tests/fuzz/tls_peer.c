#include "tls_peer.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include "certificates.h"
#include "fuzz.h"
#include "sockets.h"
#include "tls/context.h"

struct fuzz_tls_peer {
    SSL *ssl;
    BIO *from_server;
    BIO *to_server;
    struct lh_buffer unsent; /* until the handshake is done */
    struct lh_buffer heard;  /* by the socket */
    int fd;
};

static SSL_CTX *anonymous, *known;

static SSL_CTX *client_context(void)
{
    SSL_CTX *context = SSL_CTX_new(TLS_client_method());

    SSL_CTX_set_alpn_protos(context, (const unsigned char *)"\2h2", 3);
    return context;
}

struct lh_tls_context *fuzz_tls_init(void)
{
    struct lh_tls_server_options options = {.protocol = "h2"};
    struct lh_tls_context *server;
    struct lh_error error;

    certificates_setup();
    make_certificate(&(struct certificate){.name = "server", .issuer = "ca", .san = "DNS:localhost"});
    make_certificate(&(struct certificate){.name = "client", .issuer = "ca", .san = "DNS:client"});
    options.cert_file = path_of("server.pem");
    options.key_file = path_of("server.key");
    options.client_ca_file = path_of("ca.pem");
    server = lh_tls_server_context_create(&options, &error);
    FUZZ_CHECK(server != NULL);
    anonymous = client_context();
    known = client_context();
    FUZZ_CHECK(SSL_CTX_use_certificate_file(known, path_of("client.pem"), SSL_FILETYPE_PEM) == 1);
    FUZZ_CHECK(SSL_CTX_use_PrivateKey_file(known, path_of("client.key"), SSL_FILETYPE_PEM) == 1);
    certificates_teardown();
    return server;
}

struct fuzz_tls_peer *fuzz_tls_connect(int fd, bool shows_certificate)
{
    struct fuzz_tls_peer *peer = lh_alloc_zero(1, sizeof(*peer));

    peer->fd = fd;
    peer->ssl = SSL_new(shows_certificate ? known : anonymous);
    peer->from_server = BIO_new(BIO_s_mem());
    peer->to_server = BIO_new(BIO_s_mem());
    SSL_set_bio(peer->ssl, peer->from_server, peer->to_server);
    SSL_set_connect_state(peer->ssl);
    fuzz_socket_listen(fd, &peer->heard);
    return peer;
}

void fuzz_tls_free(struct fuzz_tls_peer *peer)
{
    if (peer == NULL)
        return;
    fuzz_socket_listen(peer->fd, NULL);
    SSL_free(peer->ssl);
    lh_buffer_finish(&peer->unsent);
    lh_buffer_finish(&peer->heard);
    free(peer);
}

static void pass_on(struct fuzz_tls_peer *peer)
{
    char *bytes;
    long size = BIO_get_mem_data(peer->to_server, &bytes);

    if (size > 0)
        fuzz_socket_put(peer->fd, bytes, (size_t)size);
    (void)BIO_reset(peer->to_server);
}

void fuzz_tls_pump(struct fuzz_tls_peer *peer)
{
    char scrap[16384];

    if (peer->heard.size > 0)
        BIO_write(peer->from_server, peer->heard.data, (int)peer->heard.size);
    peer->heard.size = 0;
    ERR_clear_error();
    while (SSL_read(peer->ssl, scrap, sizeof(scrap)) > 0)
        continue;
    if (SSL_is_init_finished(peer->ssl) && peer->unsent.size > 0) {
        SSL_write(peer->ssl, peer->unsent.data, (int)peer->unsent.size);
        peer->unsent.size = 0;
    }
    pass_on(peer);
}

void fuzz_tls_write(struct fuzz_tls_peer *peer, const void *data, size_t size)
{
    lh_buffer_append(&peer->unsent, data, size);
    fuzz_tls_pump(peer);
}

void fuzz_tls_update_keys(struct fuzz_tls_peer *peer)
{
    if (SSL_is_init_finished(peer->ssl) && SSL_key_update(peer->ssl, SSL_KEY_UPDATE_REQUESTED) == 1)
        SSL_do_handshake(peer->ssl);
    pass_on(peer);
}

void fuzz_tls_end(struct fuzz_tls_peer *peer)
{
    SSL_shutdown(peer->ssl);
    pass_on(peer);
}
