/* The configuration: a file, and arguments, which begin behind its first NUL and end with one each. */
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "config/config_internal.h"
#include "fuzz.h"

#define ARGUMENTS_MAX 16

static int file = -1;
static char path[32];
static FILE *nowhere;

static void put_file(const char *text, size_t size)
{
    FUZZ_CHECK(ftruncate(file, 0) == 0);
    FUZZ_CHECK(pwrite(file, text, size, 0) == (ssize_t)size);
}

static void nobody(void *arg, const char *sentence)
{
}

/* What is shown of a setting is that setting. */
static void show_and_set(struct lh_settings *settings)
{
    char why[160];

    for (size_t i = 0; i < lh_settings_count; i++) {
        const struct lh_setting *setting = &lh_settings_table[i];
        char *shown = lh_setting_format(settings, setting), *again;
        if (shown == NULL)
            continue;
        FUZZ_CHECK(lh_setting_set(settings, setting, shown, false, why, sizeof(why)));
        again = lh_setting_format(settings, setting);
        FUZZ_CHECK(again != NULL && strcmp(shown, again) == 0);
        free(shown);
        free(again);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    fuzz_quiet();
    file = memfd_create("settings", 0);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
    nowhere = fopen("/dev/null", "w");
    return file < 0 || nowhere == NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *text = fuzz_text(&input);
    size_t of_file = strlen(text);
    char *argv[ARGUMENTS_MAX + 4] = {(char *)(uintptr_t) "leaseholdd", (char *)(uintptr_t) "--config", path};
    int argc = 3;
    struct lh_settings settings, fresh;
    struct lh_config_errors errors = {0};

    put_file(text, of_file);
    for (char *at = text + of_file; at < text + size && argc < ARGUMENTS_MAX + 3; at += strlen(at) + 1)
        if (*at != '\0')
            argv[argc++] = at;
    lh_settings_init(&settings);
    lh_settings_init(&fresh);
    if (lh_settings_load(&settings, argc, argv, &errors)) {
        show_and_set(&settings);
        lh_settings_adopt(&fresh, &settings, nobody, NULL);
        lh_settings_max_block_us(&settings);
        lh_settings_print_effective(&settings, nowhere);
        free(lh_database_redact(settings.database == NULL ? "" : settings.database));
    } else {
        FUZZ_CHECK(errors.size > 0);
    }
    lh_config_errors_finish(&errors);
    lh_settings_finish(&settings);
    lh_settings_finish(&fresh);
    free(text);
    return 0;
}
