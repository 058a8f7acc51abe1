/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Any bytes as a file of settings: refused with a sentence that names the file, or taken, and then what is printed of
 * them is taken again and prints the same.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "daemon/service/config.h"
#include "tests/fuzz/replay.h"

static int read_text(Config *config, const void *text, size_t n_bytes)
{
        FILE *stream = fmemopen((void *)(uintptr_t)text, n_bytes, "r");
        char *message = NULL;
        int r;

        if (!stream)
                abort();
        r = config_read_stream(config, "fuzz.conf", stream, &message);
        fclose(stream);
        if (r == CONFIG_E_USAGE)
                assert(message && strncmp(message, "fuzz.conf:", 10) == 0);
        else
                assert(r == 0 && !message);
        free(message);
        return r;
}

static void set_path(Config *config)
{
        if (!config->socket_path)
                config->socket_path = strdup("/s");
        if (!config->socket_path)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n_bytes)
{
        /* In a file every number has been set: what these are does not matter, but that they can be given. */
        static const char everything[] =
                "[daemon]\nclients-max=1\nlog-level=info\nkeeper-slots=64\n"
                "[memory]\nbudget=1G\npacked-max=1M\nstaging=1M\nobjects-max=1\nevents=16\nnamespaces-max=64\n";
        Config first = CONFIG_NULL, second = CONFIG_NULL;
        char *text, *again;

        if (n_bytes == 0)
                return 0;
        assert(read_text(&first, everything, sizeof(everything) - 1) == 0);
        if (read_text(&first, data, n_bytes) == 0) {
                set_path(&first);
                text = config_print(&first);
                assert(text);
                assert(read_text(&second, text, strlen(text)) == 0);
                again = config_print(&second);
                assert(again && strcmp(text, again) == 0);
                free(text);
                free(again);
        }
        config_deinit(&first);
        config_deinit(&second);
        return 0;
}
