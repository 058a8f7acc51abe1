/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A service that does nothing but keep descriptors: what that costs it, and the service manager. With none kept yet it
 * makes N sealed memory files of a page and has them kept; started again it takes them back and looks at each.
 *
 *   storer parked N FILE    as foliod does: by hundreds in segments (keeper.h)
 *   storer single N FILE    each stored by itself, with a name of its own
 *
 * Writes "stored N in MICROSECONDS" or "restored ..." to FILE, says that it is ready, and stays.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "daemon/service/keeper.h"

#define FILE_BYTES 4096

static uint64_t now_us(void)
{
        struct timespec now;

        clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

static void die(const char *what, int error)
{
        fprintf(stderr, "storer: %s: %s\n", what, strerror(error < 0 ? -error : error));
        exit(1);
}

static int make_file(unsigned i)
{
        int fd = memfd_create("storer", MFD_CLOEXEC | MFD_ALLOW_SEALING);

        if (fd < 0 || ftruncate(fd, FILE_BYTES) < 0 || pwrite(fd, &i, sizeof(i), 0) != sizeof(i) ||
            fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                die("memfd", errno);
        return fd;
}

static void look_at(int fd)
{
        struct stat st;

        if (fstat(fd, &st) < 0 || st.st_size != FILE_BYTES)
                die("a descriptor that came back", errno);
}

/* --- parked ---------------------------------------------------------------------------------------------------- */

static void take_one(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept)
{
        (void)record;
        (void)kept; /* stays kept */
        look_at(consume_fd);
        close(consume_fd);
        ++*(unsigned *)userdata;
}

static unsigned take_parked(Keeper *keeper)
{
        uint64_t n_bad = 0;
        unsigned n = 0;
        int r = keeper_take_all(keeper, take_one, &n, &n_bad);

        if (r != 0 || n_bad > 0)
                die("taking back", r);
        return n;
}

static void store_parked(Keeper *keeper, unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                KeptRecord record = { .kind = KEPT_OWN, .owner = 1, .id = i };
                int fd = make_file(i), r;
                Kept *kept;

                r = keeper_keep(keeper, &record, fd, false, &kept);
                if (r != 0)
                        die(r > 0 ? keeper_explain(keeper, r) : "keeping", r < 0 ? r : EIO);
                close(fd);
        }
}

/* --- single ---------------------------------------------------------------------------------------------------- */

static unsigned take_single(void)
{
        int n = sd_listen_fds(0);

        for (int i = 0; i < n; i++)
                look_at(SD_LISTEN_FDS_START + i);
        return n > 0 ? (unsigned)n : 0;
}

static void store_single(unsigned n)
{
        for (unsigned i = 0; i < n; i++) {
                int fd = make_file(i), r;
                char state[64];

                snprintf(state, sizeof(state), "FDSTORE=1\nFDNAME=object-%u\nFDPOLL=0", i);
                r = sd_pid_notify_with_fds(0, 0, state, &fd, 1);
                if (r <= 0)
                        die("FDSTORE", r);
                close(fd);
        }
        if (sd_notify_barrier(0, UINT64_C(600) * 1000000) < 0)
                die("barrier", ETIMEDOUT);
}

int main(int argc, char **argv)
{
        struct rlimit limit;
        KeeperConfig config = { .n_stored_max = 512 };
        Keeper *keeper = NULL;
        unsigned n, n_back;
        uint64_t begun;
        bool is_parked;
        FILE *file;
        int r;

        if (argc != 4)
                return 2;
        is_parked = strcmp(argv[1], "parked") == 0;
        n = (unsigned)strtoul(argv[2], NULL, 10);
        if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
                limit.rlim_cur = limit.rlim_max;
                (void)setrlimit(RLIMIT_NOFILE, &limit); /* what does not fit is told */
        }
        begun = now_us();
        if (is_parked && (r = keeper_new(&config, &keeper)) != 0)
                die("the keeper", r);
        n_back = is_parked ? take_parked(keeper) : take_single();
        if (n_back == 0 && is_parked)
                store_parked(keeper, n);
        else if (n_back == 0)
                store_single(n);
        file = fopen(argv[3], "we");
        if (!file || fprintf(file, "%s %u in %" PRIu64 "\n", n_back > 0 ? "restored" : "stored", n_back > 0 ? n_back : n,
                             now_us() - begun) < 0 || fclose(file) != 0)
                die(argv[3], errno);
        (void)sd_notify(0, "READY=1");
        for (;;)
                pause();
}
