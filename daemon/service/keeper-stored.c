/* SPDX-License-Identifier: Apache-2.0 */
/* What is stored is kept at numbers beyond those where it is handed over, so that none is in another's place there. */
#include "daemon/service/keeper-stored.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/cleanup.h"

int keeper_stored_init(KeeperStored *stored, size_t n_max)
{
        *stored = (KeeperStored){ .n_max = n_max };
        stored->names = calloc(n_max + 1, sizeof(*stored->names));
        stored->fds = calloc(n_max + 1, sizeof(*stored->fds));
        if (!stored->names || !stored->fds) {
                keeper_stored_deinit(stored);
                return -ENOMEM;
        }
        return 0;
}

static void remove_at(KeeperStored *stored, size_t i)
{
        (void)close_fd(stored->fds[i]);
        free(stored->names[i]);
        stored->n--;
        stored->fds[i] = stored->fds[stored->n];
        stored->names[i] = stored->names[stored->n];
}

void keeper_stored_deinit(KeeperStored *stored)
{
        while (stored->n > 0)
                remove_at(stored, stored->n - 1);
        free(stored->names);
        free(stored->fds);
        *stored = (KeeperStored)KEEPER_STORED_NULL;
}

int keeper_stored_add(KeeperStored *stored, const char *name, int consume_fd)
{
        _cleanup_(cleanup_fd) int fd = consume_fd;
        _cleanup_(cleanup_free) char *copy = NULL;
        int moved;

        if (stored->n == stored->n_max)
                return KEEPER_STORED_E_FULL;
        copy = strdup(name);
        if (!copy)
                return -ENOMEM;
        moved = fcntl(fd, F_DUPFD_CLOEXEC, SD_LISTEN_FDS_START + (int)stored->n_max);
        if (moved < 0)
                return -errno;
        stored->names[stored->n] = steal_ptr(&copy);
        stored->fds[stored->n++] = moved;
        return 0;
}

void keeper_stored_remove(KeeperStored *stored, const char *name)
{
        for (size_t i = stored->n; i-- > 0;)
                if (strcmp(stored->names[i], name) == 0)
                        remove_at(stored, i);
}

static int set_names(const KeeperStored *stored)
{
        _cleanup_(cleanup_free) char *text = NULL;
        size_t n_text;
        FILE *stream = open_memstream(&text, &n_text);

        if (!stream)
                return -ENOMEM;
        for (size_t i = 0; i < stored->n; i++)
                (void)fprintf(stream, "%s%s", i > 0 ? ":" : "", stored->names[i]);
        /* In memory it fails for want of memory only, and says so at its end. */
        if (fclose(stream) != 0 || setenv("LISTEN_FDNAMES", text, 1) < 0)
                return -ENOMEM;
        return 0;
}

int keeper_stored_hand_over(const KeeperStored *stored)
{
        char count[24], pid[24];

        for (size_t i = 0; i < stored->n; i++)
                if (dup2(stored->fds[i], SD_LISTEN_FDS_START + (int)i) < 0)
                        return -errno;
        (void)snprintf(count, sizeof(count), "%zu", stored->n);
        (void)snprintf(pid, sizeof(pid), "%d", (int)getpid());
        if (stored->n == 0) {
                (void)unsetenv("LISTEN_FDS"); /* cannot fail for names like these */
                (void)unsetenv("LISTEN_FDNAMES");
                (void)unsetenv("LISTEN_PID");
                return 0;
        }
        if (setenv("LISTEN_FDS", count, 1) < 0 || setenv("LISTEN_PID", pid, 1) < 0)
                return -ENOMEM;
        return set_names(stored);
}
