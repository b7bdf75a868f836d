/* leaseholdd: settings, then the daemon. */
#include <stdio.h>
#include <stdlib.h>

#include "base/standard.h"
#include "config/settings.h"
#include "daemon/certificates.h"
#include "daemon/daemon.h"
#include "daemon/process.h"

#define EXIT_USAGE 2

static int serve(struct lh_settings *settings, int argc, char **argv)
{
    struct lh_daemon *daemon = lh_daemon_create(settings, argc, argv);
    int status = EXIT_FAILURE;

    if (daemon != NULL)
        status = lh_daemon_run(daemon);
    lh_daemon_destroy(daemon);
    return status;
}

/* The files that it names, too. */
static int check(const struct lh_settings *settings)
{
    struct lh_error error = {0};

    if (settings->tls_cert != NULL && lh_certificates_check(settings, &error) != LH_OK) {
        fprintf(stderr, "%s\n", error.message);
        return EXIT_USAGE;
    }
    lh_settings_print_effective(settings, stdout);
    return EXIT_SUCCESS;
}

static int act(struct lh_settings *settings, int argc, char **argv)
{
    switch (settings->action) {
    case LH_CONFIG_HELP:
        lh_settings_print_help(stdout);
        return EXIT_SUCCESS;
    case LH_CONFIG_VERSION:
        puts("leaseholdd " LH_VERSION);
        return EXIT_SUCCESS;
    case LH_CONFIG_CHECK:
        return check(settings);
    case LH_CONFIG_PRINT:
        lh_settings_print_example(stdout);
        return EXIT_SUCCESS;
    case LH_CONFIG_SERVE:
        break;
    }
    return serve(settings, argc, argv);
}

int main(int argc, char **argv)
{
    struct lh_config_errors errors = {0};
    struct lh_settings settings;
    int status = EXIT_USAGE;

    lh_standard_open();
    char **arguments = lh_arguments_take(argc, argv);

    lh_settings_init(&settings);
    if (lh_arguments_load(&settings, argc, arguments, &errors))
        status = act(&settings, argc, arguments);
    else
        fprintf(stderr, "%s", errors.text);
    lh_config_errors_finish(&errors);
    lh_settings_finish(&settings);
    lh_arguments_finish(arguments);
    return status;
}
