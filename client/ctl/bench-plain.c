/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-plain.h. */
#include "client/ctl/bench-plain.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "client/ctl/bench-memory.h"
#include "client/ctl/ctl.h"

/* By number: the C library has these calls from 2.36 on, and its header and the kernel's exclude each other. */
#define PLAIN_FSOPEN_CLOEXEC 1u
#define PLAIN_SET_STRING 1u
#define PLAIN_CREATE 6u
#define PLAIN_FSMOUNT_CLOEXEC 1u
#define PLAIN_NOSUID_NODEV_NOEXEC (2u | 4u | 8u)

#define NAMESPACE_CALL "user namespace"
#define WRITE_BYTES_MAX ((uint64_t)1 << 30)

/* A file that a huge=always tmpfs has just put one byte into. */
#define HUGE_BLOCKS (BENCH_HUGE_BYTES / 512)

typedef struct Mounts {
        int error; /* of the first that failed, and: */
        char failed_call[24];
        bool has[_BENCH_PAGES_MAX];
} Mounts;

static const char *const huge_words[_BENCH_PAGES_MAX] = { [BENCH_PAGES_4K] = "never", [BENCH_PAGES_2M] = "always" };

/* --- mounting ----------------------------------------------------------------------------------------------------- */

static void note_failure(Mounts *mounts, int error, const char *call)
{
        if (mounts->error)
                return;
        mounts->error = error;
        snprintf(mounts->failed_call, sizeof(mounts->failed_call), "%s", call);
}

static int set_option(int fd, const char *key, const char *value)
{
        return (int)syscall(SYS_fsconfig, fd, PLAIN_SET_STRING, key, value, 0);
}

static int mount_one(BenchPages pages, Mounts *mounts)
{
        _ctl_cleanup_(ctl_cleanup_fd) int context_fd = (int)syscall(SYS_fsopen, "tmpfs", PLAIN_FSOPEN_CLOEXEC);
        int fd;

        if (context_fd < 0) {
                note_failure(mounts, -errno, "fsopen");
                return -1;
        }
        /* size=0 is without a limit of its own: that there is room was looked at before. */
        if (set_option(context_fd, "size", "0") < 0 || set_option(context_fd, "nr_inodes", "0") < 0 ||
            set_option(context_fd, "mode", "0700") < 0 || set_option(context_fd, "huge", huge_words[pages]) < 0 ||
            syscall(SYS_fsconfig, context_fd, PLAIN_CREATE, NULL, NULL, 0) < 0) {
                note_failure(mounts, -errno, "fsconfig");
                return -1;
        }
        fd = (int)syscall(SYS_fsmount, context_fd, PLAIN_FSMOUNT_CLOEXEC, PLAIN_NOSUID_NODEV_NOEXEC);
        if (fd < 0)
                note_failure(mounts, -errno, "fsmount");
        mounts->has[pages] = fd >= 0;
        return fd;
}

static bool write_file(const char *path, const char *text)
{
        _ctl_cleanup_(ctl_cleanup_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, text, strlen(text)) >= 0;
}

/* As whom we are already, each id to itself: a tmpfs takes no files of owners that its namespace does not know. */
static bool enter_user_namespace(void)
{
        uid_t uid = geteuid();
        gid_t gid = getegid();
        char uid_map[64], gid_map[64];

        snprintf(uid_map, sizeof(uid_map), "%u %u 1", uid, uid);
        snprintf(gid_map, sizeof(gid_map), "%u %u 1", gid, gid);
        return unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_file("/proc/self/setgroups", "deny") &&
               write_file("/proc/self/uid_map", uid_map) && write_file("/proc/self/gid_map", gid_map);
}

typedef union Control {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(_BENCH_PAGES_MAX * sizeof(int))];
} Control;

/* In the child: never returns. */
static void mount_for_parent(int socket_fd)
{
        Mounts mounts = { 0 };
        Control control = { 0 };
        struct iovec part = { .iov_base = &mounts, .iov_len = sizeof(mounts) };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
        int fds[_BENCH_PAGES_MAX];
        size_t n_fds = 0;

        if (!enter_user_namespace())
                note_failure(&mounts, -errno, NAMESPACE_CALL);
        for (int i = 0; mounts.error == 0 && i < _BENCH_PAGES_MAX; i++) {
                int fd = mount_one((BenchPages)i, &mounts);

                if (fd >= 0)
                        fds[n_fds++] = fd;
        }
        if (n_fds > 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
                control.header = (struct cmsghdr){
                        .cmsg_len = CMSG_LEN(n_fds * sizeof(int)),
                        .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS,
                };
                memcpy(CMSG_DATA(&control.header), fds, n_fds * sizeof(int));
        }
        (void)sendmsg(socket_fd, &message, MSG_NOSIGNAL);
        _exit(0);
}

static void receive_mounts(BenchPlain *plain, int socket_fd, Mounts *mounts)
{
        Control control = { 0 };
        struct iovec part = { .iov_base = mounts, .iov_len = sizeof(*mounts) };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        struct cmsghdr *header;
        size_t n_fds = 0, n_taken = 0;
        int fds[_BENCH_PAGES_MAX];

        if (recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_WAITALL) != sizeof(*mounts)) {
                *mounts = (Mounts){ 0 };
                note_failure(mounts, -ECHILD, NAMESPACE_CALL);
                return;
        }
        header = CMSG_FIRSTHDR(&message);
        if (header && header->cmsg_type == SCM_RIGHTS) {
                n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                memcpy(fds, CMSG_DATA(header), n_fds * sizeof(int));
        }
        for (int i = 0; i < _BENCH_PAGES_MAX; i++)
                if (mounts->has[i] && n_taken < n_fds)
                        plain->mount_fds[i] = fds[n_taken++];
}

static void mount_by_child(BenchPlain *plain, Mounts *mounts)
{
        int sockets[2];
        pid_t pid;

        *mounts = (Mounts){ 0 };
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0) {
                note_failure(mounts, -errno, "socketpair");
                return;
        }
        pid = fork();
        if (pid == 0)
                mount_for_parent(sockets[1]);
        if (pid < 0)
                note_failure(mounts, -errno, "fork");
        (void)close(sockets[1]);
        if (pid > 0) {
                receive_mounts(plain, sockets[0], mounts);
                while (waitpid(pid, NULL, 0) < 0 && errno == EINTR)
                        ;
        }
        (void)close(sockets[0]);
}

/* Does the mount do what its option says? One byte takes a page. */
static bool check_mount(const BenchPlain *plain, BenchPages pages)
{
        _ctl_cleanup_(ctl_cleanup_fd) int fd = bench_plain_create(plain, pages);
        struct stat status;

        if (fd < 0 || bench_write(fd, 0, "x", 1, 0) < 0 || fstat(fd, &status) < 0)
                return false;
        return (status.st_blocks >= (blkcnt_t)HUGE_BLOCKS) == (pages == BENCH_PAGES_2M);
}

void bench_plain_init(BenchPlain *plain)
{
        Mounts mounts = { 0 };

        *plain = (BenchPlain){ .mount_fds = { -1, -1 } };
        for (int i = 0; i < _BENCH_PAGES_MAX; i++)
                plain->mount_fds[i] = mount_one((BenchPages)i, &mounts);
        if (mounts.error == -EPERM)
                mount_by_child(plain, &mounts);
        for (int i = 0; i < _BENCH_PAGES_MAX; i++) {
                if (plain->mount_fds[i] < 0 || check_mount(plain, (BenchPages)i))
                        continue;
                (void)close(plain->mount_fds[i]);
                plain->mount_fds[i] = -1;
                if (i == BENCH_PAGES_2M)
                        snprintf(plain->sentence, sizeof(plain->sentence),
                                 "a tmpfs mounted huge=always has no 2 MiB pages on this kernel");
        }
        if (mounts.error && strcmp(mounts.failed_call, NAMESPACE_CALL) == 0)
                snprintf(plain->sentence, sizeof(plain->sentence),
                         "a tmpfs is mounted by root, or in a user namespace, and this user can have none (%s)",
                         strerror(-mounts.error));
        else if (mounts.error)
                snprintf(plain->sentence, sizeof(plain->sentence), "no tmpfs can be mounted: %s: %s",
                         mounts.failed_call, strerror(-mounts.error));
}

void bench_plain_deinit(BenchPlain *plain)
{
        for (int i = 0; i < _BENCH_PAGES_MAX; i++) {
                if (plain->mount_fds[i] >= 0)
                        (void)close(plain->mount_fds[i]);
                plain->mount_fds[i] = -1;
        }
}

/* --- files -------------------------------------------------------------------------------------------------------- */

bool bench_plain_has(const BenchPlain *plain, BenchPages pages)
{
        return pages == BENCH_PAGES_4K || plain->mount_fds[pages] >= 0;
}

const char *bench_plain_label(const BenchPlain *plain, BenchPages pages)
{
        if (pages == BENCH_PAGES_2M)
                return "tmpfs file, 2 MiB pages";
        return plain->mount_fds[pages] >= 0 ? "tmpfs file, 4 KiB pages" : "memfd, 4 KiB pages";
}

int bench_plain_create(const BenchPlain *plain, BenchPages pages)
{
        int fd;

        if (plain->mount_fds[pages] >= 0)
                fd = openat(plain->mount_fds[pages], ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        else
                fd = memfd_create("folioctl-bench", MFD_CLOEXEC);
        return fd < 0 ? -errno : fd;
}

int bench_write(int fd, uint64_t offset_bytes, const void *data, uint64_t n_bytes, uint64_t block_bytes)
{
        const unsigned char *bytes = data;

        if (block_bytes == 0 || block_bytes > WRITE_BYTES_MAX)
                block_bytes = WRITE_BYTES_MAX;
        while (n_bytes > 0) {
                ssize_t n =
                        pwrite(fd, bytes, (size_t)(n_bytes < block_bytes ? n_bytes : block_bytes), (off_t)offset_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return n < 0 ? -errno : -EIO;
                bytes += n;
                offset_bytes += (uint64_t)n;
                n_bytes -= (uint64_t)n;
        }
        return 0;
}

static int fill_file(int fd, BenchContent content, const void *data, uint64_t n_bytes)
{
        int r;

        if (content == BENCH_CONTENT_WRITTEN)
                return bench_write(fd, 0, data, n_bytes, 0);
        if (content == BENCH_CONTENT_HOLE)
                return ftruncate(fd, (off_t)n_bytes) < 0 ? -errno : 0;
        do {
                r = fallocate(fd, 0, 0, (off_t)n_bytes);
        } while (r < 0 && errno == EINTR);
        return r < 0 ? -errno : 0;
}

int bench_plain_make(const BenchPlain *plain, BenchPages pages, BenchContent content, const void *data,
                     uint64_t n_bytes, int *ret_fd)
{
        int fd = bench_plain_create(plain, pages), r;

        if (fd < 0)
                return fd;
        r = fill_file(fd, content, data, n_bytes);
        if (r < 0) {
                (void)close(fd);
                return r;
        }
        *ret_fd = fd;
        return 0;
}

int bench_file_init(BenchFile *file, BenchPlain *plain, BenchPages pages, const void *data, uint64_t n_bytes)
{
        int fd, r;

        *file = (BenchFile){ .fd = -1, .directory_fd = plain->mount_fds[pages] };
        if (file->directory_fd >= 0) {
                snprintf(file->path, sizeof(file->path), "file-%u", plain->n_files++);
                fd = openat(file->directory_fd, file->path, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
                fd = fd < 0 ? -errno : fd;
                file->is_named = fd >= 0;
        } else {
                fd = bench_plain_create(plain, pages);
                snprintf(file->path, sizeof(file->path), "/proc/self/fd/%d", fd);
        }
        if (fd < 0)
                return fd;
        file->fd = fd;
        r = bench_write(file->fd, 0, data, n_bytes, 0);
        if (file->is_named) {
                /* Thousands of them: descriptors would run out. */
                (void)close(file->fd);
                file->fd = -1;
        }
        if (r < 0)
                bench_file_deinit(file);
        return r;
}

void bench_file_deinit(BenchFile *file)
{
        if (file->is_named)
                (void)unlinkat(file->directory_fd, file->path, 0);
        if (file->fd >= 0)
                (void)close(file->fd);
        *file = (BenchFile){ .fd = -1, .directory_fd = -1 };
}

double bench_plain_huge_share(int fd, uint64_t n_bytes)
{
        /* 2 MiB aligned, or the kernel maps no huge entry: room for that, then the file in its place. */
        size_t n_mapping = (size_t)((n_bytes + BENCH_HUGE_BYTES - 1) & ~((uint64_t)BENCH_HUGE_BYTES - 1));
        size_t n_room = n_mapping + BENCH_HUGE_BYTES;
        unsigned char *room = mmap(NULL, n_room, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0),
                      *address;
        uint64_t huge_bytes = 0;

        if (room == MAP_FAILED)
                return 0;
        address = (unsigned char *)(((uintptr_t)room + BENCH_HUGE_BYTES - 1) & ~((uintptr_t)BENCH_HUGE_BYTES - 1));
        if (mmap(address, (size_t)n_bytes, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED) {
                volatile unsigned char sink;

                for (uint64_t offset = 0; offset < n_bytes; offset += BENCH_HUGE_BYTES)
                        sink = address[offset];
                (void)sink;
                huge_bytes = bench_smaps_bytes(address, (size_t)n_bytes, "ShmemPmdMapped:");
        }
        (void)munmap(room, n_room);
        return n_bytes ? (double)huge_bytes / (double)n_bytes : 0;
}
