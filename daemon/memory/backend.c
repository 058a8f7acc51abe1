/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every backend shares: the probe, which finds out what files of it can do by making some and doing it, and what
 * the administrator has said about huge pages. A capability that could not be shown is not claimed; only a file that
 * cannot be made, reserved or mapped at all is an error.
 */
#include "daemon/memory/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/pages.h"

#define PROBE_BYTES (2 * HUGE_BYTES)

void backend_free(Backend *backend)
{
        if (backend)
                backend->ops->free(backend);
}

/* Is @choice the one in brackets, as in "always [madvise] never"? A file that is not there has no choice. */
static bool is_chosen(const char *path, const char *choice)
{
        _cleanup_(cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);
        char text[256], bracketed[32];
        ssize_t n;

        if (fd < 0)
                return false;
        n = read(fd, text, sizeof(text) - 1);
        if (n <= 0)
                return false;
        text[n] = '\0';
        snprintf(bracketed, sizeof(bracketed), "[%s]", choice);
        return strstr(text, bracketed) != NULL;
}

bool backend_system_allows_huge(void)
{
        return !is_chosen("/sys/kernel/mm/transparent_hugepage/enabled", "never") &&
               !is_chosen("/sys/kernel/mm/transparent_hugepage/shmem_enabled", "deny");
}

static bool policy_allows_huge(const Backend *backend)
{
        switch (backend->huge) {
        case FOLIO_HUGE_AUTO:
                return backend_system_allows_huge();
        case FOLIO_HUGE_ALWAYS:
                return true;
        case FOLIO_HUGE_NEVER:
                return false;
        }
        return false;
}

static int fail(const char *call, int r, const char **ret_failed_call)
{
        *ret_failed_call = call;
        return r;
}

static int make_file(Backend *backend, int *ret_fd, const char **ret_failed_call)
{
        int r = backend->ops->create_file(backend, "probe", PROBE_BYTES, ret_fd);

        return r < 0 ? fail("create_file", r, ret_failed_call) : 0;
}

static int write_whole(int fd)
{
        _cleanup_(cleanup_free) char *bytes = malloc(HUGE_BYTES);
        uint64_t offset = 0;

        if (!bytes)
                return -ENOMEM;
        memset(bytes, 0x5a, HUGE_BYTES);
        while (offset < PROBE_BYTES) {
                ssize_t n = pwrite(fd, bytes, HUGE_BYTES - offset % HUGE_BYTES, (off_t)offset);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                offset += (uint64_t)n;
        }
        return 0;
}

/* Written through a mapping, read back through the descriptor: a file that only pretends to be there ends here. */
static int try_mapping(int fd, const char **ret_failed_call)
{
        uint8_t byte = 0;
        void *address;
        int r;

        r = pages_map(fd, PROBE_BYTES, true, &address);
        if (r < 0)
                return fail("mmap", r, ret_failed_call);
        ((volatile uint8_t *)address)[PROBE_BYTES - 1] = 0xa5;
        (void)munmap(address, PROBE_BYTES);
        if (pread(fd, &byte, 1, (off_t)(PROBE_BYTES - 1)) != 1 || byte != 0xa5)
                return fail("pread", -EIO, ret_failed_call);
        return 0;
}

static bool is_huge_throughout(int fd)
{
        uint64_t huge_bytes = 0;

        return pages_count_huge(fd, PROBE_BYTES, &huge_bytes) == 0 && huge_bytes == PROBE_BYTES;
}

static bool can_reopen_writable(int fd)
{
        _cleanup_(cleanup_fd) int fd_new = -1;
        char path[32];
        void *address;

        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        fd_new = open(path, O_RDWR | O_CLOEXEC);
        if (fd_new < 0 || pages_map(fd_new, PROBE_BYTES, true, &address) < 0)
                return false;
        (void)munmap(address, PROBE_BYTES);
        return true;
}

static bool is_closed_by_mode(int fd)
{
        _cleanup_(cleanup_fd) int fd_read_only = -1;
        struct stat st;

        if (fstat(fd, &st) < 0 || (st.st_mode & 07777) != 0600 || st.st_uid != geteuid())
                return false;
        return pages_reopen_read_only(fd, &fd_read_only) == 0;
}

static bool can_punch(int fd)
{
        struct stat before, after;

        return fstat(fd, &before) == 0 &&
               pages_fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, HUGE_BYTES, NULL) == 0 &&
               fstat(fd, &after) == 0 && after.st_blocks + (blkcnt_t)(HUGE_BYTES / 512) <= before.st_blocks;
}

/*
 * Both kinds of seal have to work and to be seen working: a kernel without FUTURE_WRITE, or one that takes it and
 * lets a new mapping write all the same, has no seals as far as Folio is concerned.
 */
static bool can_seal(Backend *backend)
{
        _cleanup_(cleanup_fd) int fd_final = -1, fd_future = -1;
        const char *ignored;
        void *address;
        bool can_write;

        if (make_file(backend, &fd_final, &ignored) < 0 || make_file(backend, &fd_future, &ignored) < 0)
                return false;
        if (fcntl(fd_final, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0 ||
            fcntl(fd_future, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
                return false;
        if (pwrite(fd_final, "x", 1, 0) >= 0 || pwrite(fd_future, "x", 1, 0) >= 0 || ftruncate(fd_future, 0) == 0)
                return false;
        can_write = pages_map(fd_future, PROBE_BYTES, true, &address) == 0;
        if (can_write)
                (void)munmap(address, PROBE_BYTES);
        return !can_write;
}

static bool can_collapse(Backend *backend)
{
        _cleanup_(cleanup_fd) int fd = -1;
        uint64_t n_huge = 0, n_failed = 0;
        const char *ignored;

        if (make_file(backend, &fd, &ignored) < 0)
                return false;
        return pages_collapse(fd, 0, PROBE_BYTES, true, NULL, &n_huge, &n_failed) == 0 && n_failed == 0 &&
               is_huge_throughout(fd);
}

int backend_probe(Backend *backend, const char **ret_failed_call)
{
        _cleanup_(cleanup_fd) int fd = -1;
        uint32_t capabilities = 0;
        int r;

        r = make_file(backend, &fd, ret_failed_call);
        if (r < 0)
                return r;
        r = pages_fallocate(fd, 0, 0, PROBE_BYTES, NULL);
        if (r < 0)
                return fail("fallocate", r, ret_failed_call);
        r = write_whole(fd);
        if (r < 0)
                return fail("pwrite", r, ret_failed_call);
        if (is_huge_throughout(fd))
                capabilities |= BACKEND_HUGE_AT_ALLOCATION;
        r = try_mapping(fd, ret_failed_call);
        if (r < 0)
                return r;
        if (can_reopen_writable(fd))
                capabilities |= BACKEND_REWRITABLE;
        if (is_closed_by_mode(fd))
                capabilities |= BACKEND_READONLY_BY_MODE;
        if (can_punch(fd))
                capabilities |= BACKEND_PUNCHABLE;
        if (can_seal(backend))
                capabilities |= BACKEND_SEALABLE;
        if (policy_allows_huge(backend) && can_collapse(backend))
                capabilities |= BACKEND_COLLAPSIBLE;
        backend->capabilities = capabilities;
        return 0;
}
