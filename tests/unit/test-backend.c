/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The backends as the kernel here lets them be: what the probe claims is tried again by hand, refusals are made by
 * system call filters in children, and what must hold against another uid is tried as one.
 */
#include "tests/unit/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <linux/magic.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/memory/backend.h"
#include "daemon/memory/pages.h"
#include "tests/unit/child.h"
#include "tests/unit/fail-alloc.h"

#ifndef F_SEAL_EXEC
#define F_SEAL_EXEC 0x0020
#endif

#define MFD_NOEXEC_SEAL_BIT 0x0008u
#define DENY(error) (SECCOMP_RET_ERRNO | (error))

typedef int (*NewBackend)(enum folio_huge huge, Backend **ret, const char **ret_failed_call);

static const NewBackend all_backends[] = { backend_memfd_new, backend_tmpfs_new };

static Backend *new_backend(NewBackend function, enum folio_huge huge)
{
        Backend *backend = NULL;
        const char *call = NULL;

        if (function(huge, &backend, &call) < 0)
                fail_msg("%s refused", call);
        assert_non_null(backend);
        return backend;
}

static int new_file(Backend *backend, uint64_t size_bytes)
{
        int fd = -1;

        assert_int_equal(backend->ops->create_file(backend, "test", size_bytes, &fd), 0);
        assert_true(fd >= 0);
        return fd;
}

static bool is_thp_kernel(void)
{
        return access("/sys/kernel/mm/transparent_hugepage/enabled", R_OK) == 0;
}

static void test_files_are_what_the_interface_says(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_backends); i++) {
                Backend *backend = new_backend(all_backends[i], FOLIO_HUGE_AUTO);
                int fd = new_file(backend, 3 * PAGE_BYTES);
                struct stat st;

                assert_int_equal(fstat(fd, &st), 0);
                assert_int_equal(st.st_mode, S_IFREG | 0600);
                assert_int_equal(st.st_size, 3 * PAGE_BYTES);
                assert_int_equal(st.st_blocks, 0);
                assert_int_equal(st.st_uid, geteuid());
                assert_int_equal(fcntl(fd, F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
                assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDWR);
                close(fd);
                backend_free(backend);
        }
        backend_free(NULL);
}

static void test_sizes(void **state)
{
        static const struct {
                uint64_t size_bytes;
                bool is_possible;
        } rows[] = {
                { PAGE_BYTES, true },
                { UINT64_C(1) << 46, true }, /* sparse: takes nothing */
                { (uint64_t)INT64_MAX + 1, false },
                { UINT64_MAX - PAGE_BYTES + 1, false },
                { UINT64_MAX, false },
        };

        for (size_t i = 0; i < ARRAY_SIZE(all_backends); i++) {
                Backend *backend = new_backend(all_backends[i], FOLIO_HUGE_NEVER);

                for (size_t j = 0; j < ARRAY_SIZE(rows); j++) {
                        int fd = -1, r = backend->ops->create_file(backend, "test", rows[j].size_bytes, &fd);

                        assert_int_equal(r == 0, rows[j].is_possible);
                        assert_int_equal(fd >= 0, rows[j].is_possible);
                        close_fd(fd);
                }
                backend_free(backend);
        }
}

static void test_memfd_capabilities(void **state)
{
        Backend *backend = new_backend(backend_memfd_new, FOLIO_HUGE_ALWAYS);
        uint32_t always = BACKEND_SEALABLE | BACKEND_READONLY_BY_MODE | BACKEND_PUNCHABLE | BACKEND_REWRITABLE;

        assert_int_equal(backend->capabilities & always, always);
        assert_int_equal(backend->ops->backing, FOLIO_BACKING_MEMFD);
        assert_string_equal(backend->ops->name, "memfd");
        assert_int_equal(backend->huge, FOLIO_HUGE_ALWAYS);
        backend_free(backend);
}

static void test_tmpfs_capabilities(void **state)
{
        Backend *backend = new_backend(backend_tmpfs_new, FOLIO_HUGE_ALWAYS);
        uint32_t always = BACKEND_READONLY_BY_MODE | BACKEND_PUNCHABLE | BACKEND_REWRITABLE;
        int fd;

        assert_int_equal(backend->capabilities & (always | BACKEND_SEALABLE), always);
        assert_int_equal(backend->ops->backing, FOLIO_BACKING_TMPFS);
        if (is_thp_kernel() && backend_system_allows_huge())
                assert_true(backend->capabilities & BACKEND_HUGE_AT_ALLOCATION);
        fd = new_file(backend, PAGE_BYTES);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE), -1);
        close(fd);
        backend_free(backend);
}

static void test_huge_never_is_never(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_backends); i++) {
                Backend *backend = new_backend(all_backends[i], FOLIO_HUGE_NEVER);

                assert_false(backend->capabilities & BACKEND_COLLAPSIBLE);
                if (backend->ops->backing == FOLIO_BACKING_TMPFS)
                        assert_false(backend->capabilities & BACKEND_HUGE_AT_ALLOCATION);
                backend_free(backend);
        }
}

/* What HUGE_AT_ALLOCATION and COLLAPSIBLE promise, counted in both ways; and the two ways agree. */
static void test_huge_claims_are_true(void **state)
{
        uint64_t size_bytes = 4 * HUGE_BYTES;

        for (size_t i = 0; i < ARRAY_SIZE(all_backends); i++) {
                Backend *backend = new_backend(all_backends[i], FOLIO_HUGE_ALWAYS);
                uint64_t huge_bytes, scanned, listed, n_huge, n_failed;
                int fd = new_file(backend, size_bytes);
                char *bytes = calloc(1, size_bytes);
                void *address;

                assert_non_null(bytes);
                assert_int_equal(pwrite(fd, bytes, size_bytes, 0), size_bytes);
                free(bytes);
                assert_int_equal(pages_count_huge(fd, size_bytes, &huge_bytes), 0);
                if (backend->capabilities & BACKEND_HUGE_AT_ALLOCATION)
                        assert_int_equal(huge_bytes, size_bytes);
                if (backend->capabilities & BACKEND_COLLAPSIBLE) {
                        assert_int_equal(pages_collapse(fd, 0, size_bytes, false, NULL, &n_huge, &n_failed), 0);
                        assert_int_equal(n_huge, 4);
                        assert_int_equal(n_failed, 0);
                        assert_int_equal(pages_count_huge(fd, size_bytes, &huge_bytes), 0);
                        assert_int_equal(huge_bytes, size_bytes);
                }
                assert_int_equal(pages_map(fd, size_bytes, false, &address), 0);
                for (uint64_t offset = 0; offset < size_bytes; offset += PAGE_BYTES)
                        assert_int_equal(((volatile char *)address)[offset], 0);
                assert_int_equal(pages_read_smaps_huge(address, size_bytes, &listed), 0);
                assert_int_equal(listed, huge_bytes);
                if (pages_scan_huge(address, size_bytes, &scanned) == 0) /* kernels from 6.7 on */
                        assert_int_equal(scanned, huge_bytes);
                assert_int_equal(pages_read_smaps_huge((char *)address + PAGE_BYTES, size_bytes, &listed), -ENODATA);
                munmap(address, size_bytes);
                close(fd);
                backend_free(backend);
        }
}

/* A tmpfs that somebody else has mounted for us; and what is none, or is not there. */
static void test_tmpfs_at_a_directory(void **state)
{
        uint32_t always = BACKEND_READONLY_BY_MODE | BACKEND_PUNCHABLE | BACKEND_REWRITABLE;
        Backend *backend = NULL;
        const char *call = NULL;
        struct statfs st;
        int fd;

        assert_int_equal(backend_tmpfs_open("/proc", FOLIO_HUGE_AUTO, &backend, &call), -ENODEV);
        assert_string_equal(call, "statfs");
        assert_int_equal(backend_tmpfs_open("/proc/no/such", FOLIO_HUGE_AUTO, &backend, &call), -ENOENT);
        assert_string_equal(call, "open");
        assert_int_equal(backend_tmpfs_open("/proc/self/status", FOLIO_HUGE_AUTO, &backend, &call), -ENOTDIR);
        assert_string_equal(call, "open");
        assert_null(backend);
        if (statfs("/dev/shm", &st) < 0 || st.f_type != TMPFS_MAGIC)
                skip();
        assert_int_equal(backend_tmpfs_open("/dev/shm", FOLIO_HUGE_ALWAYS, &backend, &call), 0);
        assert_null(call);
        assert_int_equal(backend->capabilities & (always | BACKEND_SEALABLE), always);
        assert_int_equal(backend->ops->backing, FOLIO_BACKING_TMPFS);
        fd = new_file(backend, PAGE_BYTES);
        assert_int_equal(linkat(fd, "", AT_FDCWD, "/dev/shm/folio-test-backend", AT_EMPTY_PATH), -1);
        close(fd);
        backend_free(backend);
}

/* A mount that nobody else sees, of files that nobody can give a name. */
static void test_tmpfs_is_private(void **state)
{
        int n_before = 0, n_after = 0, fd;
        char line[1024], path[64];
        Backend *backend;
        FILE *mounts;

        for (int *n = &n_before; n; n = n == &n_before ? &n_after : NULL) {
                backend = n == &n_after ? new_backend(backend_tmpfs_new, FOLIO_HUGE_AUTO) : NULL;
                mounts = fopen("/proc/self/mountinfo", "re");
                assert_non_null(mounts);
                while (fgets(line, sizeof(line), mounts))
                        (*n)++;
                fclose(mounts);
                if (!backend)
                        continue;
                assert_int_equal(n_after, n_before);
                fd = new_file(backend, PAGE_BYTES);
                snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
                assert_int_equal(linkat(AT_FDCWD, path, AT_FDCWD, "named", AT_SYMLINK_FOLLOW), -1);
                close(fd);
                backend_free(backend);
        }
}

/* Files outlive the backend, and the mount with them. */
static void test_files_outlive_the_backend(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(all_backends); i++) {
                Backend *backend = new_backend(all_backends[i], FOLIO_HUGE_AUTO);
                int fd = new_file(backend, PAGE_BYTES);
                char byte = 0;

                backend_free(backend);
                assert_int_equal(pwrite(fd, "x", 1, 7), 1);
                assert_int_equal(pread(fd, &byte, 1, 7), 1);
                assert_int_equal(byte, 'x');
                close(fd);
        }
}

static void use_backend(NewBackend function)
{
        const char *call = NULL;
        Backend *backend = NULL;
        void *address;
        char byte = 0;
        int fd = -1, fd_read_only = -1;

        if (function(FOLIO_HUGE_AUTO, &backend, &call) < 0) {
                fprintf(stderr, "# %s refused: %s\n", call, strerror(errno));
                /* Where the administrator forbids user namespaces there is nothing to try. */
                _exit(strcmp(call, "unshare") == 0 ? CHILD_SKIPPED : 1);
        }
        CHECK(backend->ops->create_file(backend, "test", 4 * HUGE_BYTES, &fd) == 0);
        CHECK(fallocate(fd, 0, 0, 4 * HUGE_BYTES) == 0);
        CHECK(pages_map(fd, 4 * HUGE_BYTES, true, &address) == 0);
        memset(address, 'y', 4 * HUGE_BYTES);
        CHECK(pread(fd, &byte, 1, 4 * HUGE_BYTES - 1) == 1 && byte == 'y');
        CHECK(munmap(address, 4 * HUGE_BYTES) == 0);
        CHECK(pages_reopen_read_only(fd, &fd_read_only) == 0);
        CHECK(write(fd_read_only, "x", 1) < 0 && errno == EBADF);
        CHECK(backend->capabilities & BACKEND_PUNCHABLE);
        CHECK(backend->capabilities & BACKEND_READONLY_BY_MODE);
        backend_free(backend);
        CHECK(pread(fd, &byte, 1, 0) == 1 && byte == 'y');
}

static void as_nobody(void *userdata)
{
        int n_fds = harness_count_fds();

        if (geteuid() != 0)
                _exit(CHILD_SKIPPED);
        CHECK(child_become_nobody());
        use_backend(*(NewBackend *)userdata);
        /* The three descriptors that use_backend() leaves, and no process that nobody has waited for. */
        CHECK(harness_count_fds() == n_fds + 2);
        CHECK(waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD);
}

static void test_memfd_as_an_ordinary_user(void **state)
{
        child_run(as_nobody, &(NewBackend){ backend_memfd_new });
}

static void test_tmpfs_as_an_ordinary_user(void **state)
{
        child_run(as_nobody, &(NewBackend){ backend_tmpfs_new });
}

static void huge_as_nobody(void *userdata)
{
        const char *call = NULL;
        Backend *backend = NULL;

        if (geteuid() != 0 || !is_thp_kernel() || !backend_system_allows_huge())
                _exit(CHILD_SKIPPED);
        CHECK(child_become_nobody());
        if (backend_tmpfs_new(FOLIO_HUGE_AUTO, &backend, &call) < 0)
                _exit(strcmp(call, "unshare") == 0 ? CHILD_SKIPPED : 1);
        CHECK(backend->capabilities & BACKEND_HUGE_AT_ALLOCATION);
}

static void test_tmpfs_is_huge_for_an_ordinary_user_too(void **state)
{
        child_run(huge_as_nobody, NULL);
}

/* Another uid holds a read-only descriptor: it can read, and do nothing else. */
static void attack_read_only(void *userdata)
{
        int fd = *(int *)userdata;
        char path[64], byte;

        CHECK(child_become_nobody());
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        CHECK(pread(fd, &byte, 1, 0) == 1);
        CHECK(open(path, O_RDWR | O_CLOEXEC) < 0 && errno == EACCES);
        CHECK(open(path, O_WRONLY | O_CLOEXEC) < 0 && errno == EACCES);
        CHECK(mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED && errno == EACCES);
        CHECK(ftruncate(fd, 0) < 0);
        CHECK(truncate(path, 0) < 0);
        CHECK(fchmod(fd, 0666) < 0 && errno == EPERM);
        CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, PAGE_BYTES) < 0 && errno == EBADF);
}

static void test_another_uid_cannot_write(void **state)
{
        if (geteuid() != 0)
                skip(); /* before there is anything to free */
        for (size_t i = 0; i < ARRAY_SIZE(all_backends); i++) {
                Backend *backend = new_backend(all_backends[i], FOLIO_HUGE_NEVER);
                int fd = new_file(backend, PAGE_BYTES), fd_read_only = -1;

                assert_int_equal(pages_reopen_read_only(fd, &fd_read_only), 0);
                child_run(attack_read_only, &fd_read_only);
                close(fd_read_only);
                close(fd);
                backend_free(backend);
        }
}

/* --- refusals ----------------------------------------------------------------------------------------------------- */

typedef struct Refusal {
        NewBackend function;
        long number;                 /* of the system call */
        unsigned argument;
        uint32_t bits;
        uint32_t action;
        int result;
        const char *call;
} Refusal;

static void be_refused(void *userdata)
{
        const Refusal *refusal = userdata;
        const char *call = "nothing";
        Backend *backend = NULL;
        int n_fds, r;

        if (refusal->function == backend_tmpfs_new && refusal->number != SYS_fsopen && geteuid() == 0)
                CHECK(child_become_nobody());
        n_fds = harness_count_fds();
        child_filter(refusal->number, refusal->argument, refusal->bits, refusal->action);
        r = refusal->function(FOLIO_HUGE_AUTO, &backend, &call);
        if (r != refusal->result || (r < 0 && strcmp(call, refusal->call) != 0))
                fprintf(stderr, "# %d from %s, not %d from %s\n", r, call ? call : "-", refusal->result, refusal->call);
        CHECK(r == refusal->result);
        CHECK(r == 0 || strcmp(call, refusal->call) == 0);
        backend_free(backend);
        CHECK(harness_count_fds() == n_fds);
}

/* C12: memfd_create is not there, or forbidden, and the operator is told which call it was. */
static void test_c12_the_refusing_call_is_named(void **state)
{
        static Refusal refusals[] = {
                { backend_memfd_new, SYS_memfd_create, 0, 0, DENY(ENOSYS), -ENOSYS, "memfd_create" },
                { backend_memfd_new, SYS_memfd_create, 0, 0, DENY(EPERM), -EPERM, "memfd_create" },
                { backend_memfd_new, SYS_memfd_create, 0, 0, DENY(EINVAL), -EINVAL, "memfd_create" },
                { backend_memfd_new, SYS_fchmod, 0, 0, DENY(EPERM), -EPERM, "fchmod" },
                { backend_memfd_new, SYS_fallocate, 0, 0, DENY(EOPNOTSUPP), -EOPNOTSUPP, "fallocate" },
                { backend_tmpfs_new, SYS_fsopen, 0, 0, DENY(ENOSYS), -ENOSYS, "fsopen" },
                { backend_tmpfs_new, SYS_unshare, 0, 0, DENY(EPERM), -EPERM, "unshare" },
                { backend_tmpfs_new, SYS_unshare, 0, 0, DENY(ENOSPC), -ENOSPC, "unshare" },
                { backend_tmpfs_new, SYS_fsmount, 0, 0, DENY(EPERM), -EPERM, "fsmount" },
                { backend_tmpfs_new, SYS_fsconfig, 0, 0, DENY(EPERM), -EPERM, "fsconfig" },
                { backend_tmpfs_new, SYS_unshare, 0, 0, SECCOMP_RET_KILL_PROCESS, -ECHILD, "recvmsg" },
        };

        for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
                child_run(be_refused, &refusals[i]);
}

/* C11: an old kernel says EINVAL to the flag; nothing but that makes Folio do without it. */
static void test_c11_no_flag_for_old_kernels(void **state)
{
        static Refusal refusals[] = {
                { backend_memfd_new, SYS_memfd_create, 1, MFD_NOEXEC_SEAL_BIT, DENY(EINVAL), 0, "" },
                { backend_memfd_new, SYS_memfd_create, 1, MFD_NOEXEC_SEAL_BIT, DENY(EACCES), -EACCES, "memfd_create" },
        };

        for (size_t i = 0; i < ARRAY_SIZE(refusals); i++)
                child_run(be_refused, &refusals[i]);
}

static void test_c11_emfile_does_not_disable_the_flag(void **state)
{
        Backend *backend = new_backend(backend_memfd_new, FOLIO_HUGE_NEVER);
        int fd = new_file(backend, PAGE_BYTES), seals = fcntl(fd, F_GET_SEALS), r;
        struct rlimit before, low;

        close(fd);
        assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
        low = before;
        low.rlim_cur = 0;
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        r = backend->ops->create_file(backend, "test", PAGE_BYTES, &fd);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
        assert_int_equal(r, -EMFILE);

        fd = new_file(backend, PAGE_BYTES);
        assert_int_equal(fcntl(fd, F_GET_SEALS), seals);
        close(fd);
        backend_free(backend);
}

static void live_with_noexec_level(void *userdata)
{
        const char *level = *(const char **)userdata, *call = NULL;
        Backend *backend = NULL;
        int fd, file, status;
        pid_t pid;

        if (unshare(CLONE_NEWPID) < 0)
                _exit(CHILD_SKIPPED);
        pid = fork();
        CHECK(pid >= 0);
        if (pid > 0) {
                CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
                _exit(WEXITSTATUS(status));
        }
        file = open("/proc/sys/vm/memfd_noexec", O_WRONLY | O_CLOEXEC);
        if (file < 0 || write(file, level, 1) != 1)
                _exit(CHILD_SKIPPED);
        CHECK(backend_memfd_new(FOLIO_HUGE_NEVER, &backend, &call) == 0);
        CHECK(backend->capabilities & BACKEND_SEALABLE);
        CHECK(backend->ops->create_file(backend, "test", PAGE_BYTES, &fd) == 0);
        CHECK(fcntl(fd, F_GET_SEALS) == F_SEAL_EXEC);
        backend_free(backend);
}

static void test_c11_every_level_of_memfd_noexec(void **state)
{
        const char *levels[] = { "0", "1", "2" };

        for (size_t i = 0; i < ARRAY_SIZE(levels); i++)
                child_run(live_with_noexec_level, &levels[i]);
}

static void live_without_future_write(void *userdata)
{
        const char *call = NULL;
        Backend *backend = NULL;

        child_filter(SYS_fcntl, 2, F_SEAL_FUTURE_WRITE, DENY(EINVAL));
        CHECK(backend_memfd_new(FOLIO_HUGE_AUTO, &backend, &call) == 0);
        CHECK(!(backend->capabilities & BACKEND_SEALABLE));
        CHECK(backend->capabilities & BACKEND_READONLY_BY_MODE);
        backend_free(backend);
}

/* C07: without FUTURE_WRITE no seal is claimed; what is left is the mode, and says so. */
static void test_c07_no_future_write(void **state)
{
        child_run(live_without_future_write, NULL);
}

static int attempt_memfd(void)
{
        const char *call = NULL;
        Backend *backend = NULL;
        int r = backend_memfd_new(FOLIO_HUGE_AUTO, &backend, &call);

        assert_int_equal(r == 0, backend != NULL);
        assert_int_equal(r == 0, call == NULL);
        backend_free(backend);
        return r;
}

static int attempt_tmpfs(void)
{
        const char *call = NULL;
        Backend *backend = NULL;
        int r = backend_tmpfs_new(FOLIO_HUGE_AUTO, &backend, &call);

        assert_int_equal(r == 0, backend != NULL);
        assert_int_equal(r == 0, call == NULL);
        backend_free(backend);
        return r;
}

static void test_allocation_failures(void **state)
{
        fail_alloc_sweep(attempt_memfd);
        fail_alloc_sweep(attempt_tmpfs);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_files_are_what_the_interface_says),
                UNIT_TEST(test_sizes),
                UNIT_TEST(test_memfd_capabilities),
                UNIT_TEST(test_tmpfs_capabilities),
                UNIT_TEST(test_huge_never_is_never),
                UNIT_TEST(test_huge_claims_are_true),
                UNIT_TEST(test_tmpfs_at_a_directory),
                UNIT_TEST(test_tmpfs_is_private),
                UNIT_TEST(test_files_outlive_the_backend),
                UNIT_TEST(test_memfd_as_an_ordinary_user),
                UNIT_TEST(test_tmpfs_as_an_ordinary_user),
                UNIT_TEST(test_tmpfs_is_huge_for_an_ordinary_user_too),
                UNIT_TEST(test_another_uid_cannot_write),
                UNIT_TEST(test_c12_the_refusing_call_is_named),
                UNIT_TEST(test_c11_no_flag_for_old_kernels),
                UNIT_TEST(test_c11_emfile_does_not_disable_the_flag),
                UNIT_TEST(test_c11_every_level_of_memfd_noexec),
                UNIT_TEST(test_c07_no_future_write),
                UNIT_TEST(test_allocation_failures),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
