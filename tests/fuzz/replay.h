/* SPDX-License-Identifier: Apache-2.0 */
/*
 * main() for fuzz entries that are built without libFuzzer: runs LLVMFuzzerTestOneInput() once on each file named on
 * the command line, and on each file of each directory named there. TAP, one line for each argument. Defines
 * nothing where FUZZ_WITH_LIBFUZZER is defined, whose library brings a main() of its own.
 */
#ifndef TESTS_FUZZ_REPLAY_H
#define TESTS_FUZZ_REPLAY_H

#include <stddef.h>
#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

#ifndef FUZZ_WITH_LIBFUZZER

#include <dirent.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#define REPLAY_FILE_BYTES_MAX ((size_t)1 << 20)

static bool replay_file(const char *path)
{
        FILE *file = fopen(path, "re");
        uint8_t *room = malloc(REPLAY_FILE_BYTES_MAX), *exact = NULL;
        bool is_done = false;
        size_t n;

        if (file && room) {
                n = fread(room, 1, REPLAY_FILE_BYTES_MAX, file);
                /* As long as the input and no longer, so that a sanitizer sees a step beyond it. */
                exact = n && !ferror(file) ? realloc(room, n) : room;
                if (exact && !ferror(file)) {
                        room = NULL;
                        is_done = LLVMFuzzerTestOneInput(exact, n) == 0;
                }
        }
        if (file)
                fclose(file);
        free(room);
        free(exact);
        return is_done;
}

/* How many inputs were run; -1: one of them could not be. */
static int replay_path(const char *path)
{
        DIR *directory = opendir(path);
        struct dirent *entry;
        char name[PATH_MAX];
        int n = 0;

        if (!directory)
                return replay_file(path) ? 1 : -1;
        while (n >= 0 && (entry = readdir(directory))) {
                if (entry->d_name[0] == '.')
                        continue;
                snprintf(name, sizeof(name), "%s/%s", path, entry->d_name);
                n = replay_file(name) ? n + 1 : -1;
        }
        closedir(directory);
        return n;
}

int main(int argc, char **argv)
{
        int n_bad = 0;

        printf("1..%d\n", argc - 1);
        for (int i = 1; i < argc; i++) {
                int n = replay_path(argv[i]);

                n_bad += n <= 0;
                printf("%s %d - %d inputs\n", n > 0 ? "ok" : "not ok", i, n);
                fflush(stdout);
        }
        return n_bad > 0;
}

#endif
#endif
