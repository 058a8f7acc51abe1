/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places at which a test can end the daemon: FAULT("seal.kernel") is nothing in a daemon as it is installed. Built with
 * FOLIO_FAULTS, the environment's FOLIO_FAULT=name or name:n makes the n-th passage of that place kill the process. So do the
 * words in the file FOLIO_FAULT_FILE names, once: it is removed before, and who is started next lives on.
 */
#ifndef DAEMON_STORE_FAULT_H
#define DAEMON_STORE_FAULT_H

#ifdef FOLIO_FAULTS
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* False: none now. */
static inline bool fault_get_wish(char *wish, size_t n_wish, const char *path)
{
        const char *text = getenv("FOLIO_FAULT");
        ssize_t n;
        int fd;

        if (text) {
                strncpy(wish, text, n_wish - 1);
                wish[n_wish - 1] = '\0';
                return true;
        }
        fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
        if (fd < 0)
                return false;
        n = read(fd, wish, n_wish - 1);
        close(fd);
        wish[n > 0 ? n : 0] = '\0';
        return n > 0;
}

static inline void fault_pass(const char *name)
{
        static atomic_ulong n_passed; /* of this file's copy: a name has one place */
        const char *path = getenv("FOLIO_FAULT_FILE"), *number;
        char wish[64];
        size_t n_name;

        if (!fault_get_wish(wish, sizeof(wish), path))
                return;
        number = strchr(wish, ':');
        n_name = number ? (size_t)(number - wish) : strlen(wish);
        if (strlen(name) != n_name || memcmp(name, wish, n_name) != 0 ||
            atomic_fetch_add(&n_passed, 1) + 1 < (number ? strtoul(number + 1, NULL, 10) : 1))
                return;
        if (path)
                (void)unlink(path);
        (void)raise(SIGKILL);
}

#define FAULT(name) fault_pass(name)
#else
#define FAULT(name) ((void)0)
#endif

#endif
