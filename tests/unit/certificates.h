/*
 * Certificates for tests, made when they are needed, in a directory of their own:
 *
 *     certificates_setup();
 *     make_certificate(&(struct certificate){.name = "server", .san = "DNS:localhost", .issuer = "ca"});
 *     path_of("server.pem"), path_of("server.key")
 */
#ifndef LH_TEST_CERTIFICATES_H
#define LH_TEST_CERTIFICATES_H

#define DAY_S 86400L

struct certificate {
    const char *name;    /* of its files, and its common name */
    const char *issuer;  /* the name of the authority; NULL: it is one itself */
    const char *san;     /* as openssl.cnf has it, "DNS:localhost,IP:127.0.0.1"; NULL: none */
    long begins_s;       /* from now */
    long ends_s;         /* from now; 0: in a day */
    const char *purpose; /* "clientAuth"; NULL: any */
};

void certificates_setup(void); /* the directory, and the authority "ca" */
void certificates_teardown(void);
void make_certificate(const struct certificate *certificate);
/* Valid until the 64th next call. */
const char *path_of(const char *file);

#endif
