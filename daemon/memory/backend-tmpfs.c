/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory files on a tmpfs of the daemon's own: mounted nowhere, reachable only through the descriptor kept here, gone
 * with it and with the last file. It has no size limit of its own (size=0 is how tmpfs spells that), so the budget is
 * the only one; huge=within_size gives 2 MiB folios at allocation, and none to files smaller than that.
 *
 * Mounting takes CAP_SYS_ADMIN, which a daemon started by a user does not have. But anybody may have it in a user
 * namespace: a short-lived child makes one, mounts there, and sends the mount's descriptor back; the namespaces live
 * on for as long as that is open. The child maps only the daemon's own ids, each to itself, since a tmpfs refuses
 * files of owners that its namespace does not know.
 *
 * Where neither may be, as behind a filter of system calls, somebody else mounts it beforehand, and we are told where.
 *
 * Refuses to know: seals (tmpfs has none), and what the files are for.
 */
#include "daemon/memory/backend.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <unistd.h>

#include <linux/magic.h>

#include "base/cleanup.h"
#include "base/macro.h"

/*
 * The mount calls by number, and their constants under names of our own: the C library has them from 2.36 on, and
 * its header and the kernel's exclude each other.
 */
#define TMPFS_FSOPEN_CLOEXEC 1u
#define TMPFS_FSCONFIG_SET_STRING 1u
#define TMPFS_FSCONFIG_CMD_CREATE 6u
#define TMPFS_FSMOUNT_CLOEXEC 1u
#define TMPFS_ATTR_NOSUID_NODEV_NOEXEC (2u | 4u | 8u)

typedef struct TmpfsBackend {
        Backend backend;
        int fd_mount;
} TmpfsBackend;

/* What may refuse; a child tells its parent by number. */
typedef enum TmpfsCall {
        TMPFS_CALL_FSOPEN,
        TMPFS_CALL_FSCONFIG,
        TMPFS_CALL_FSMOUNT,
        TMPFS_CALL_UNSHARE,
        TMPFS_CALL_SETGROUPS,
        TMPFS_CALL_UID_MAP,
        TMPFS_CALL_GID_MAP,
        TMPFS_CALL_SENDMSG,
        _TMPFS_CALL_MAX
} TmpfsCall;

static const char *const call_names[] = {
        [TMPFS_CALL_FSOPEN] = "fsopen",
        [TMPFS_CALL_FSCONFIG] = "fsconfig",
        [TMPFS_CALL_FSMOUNT] = "fsmount",
        [TMPFS_CALL_UNSHARE] = "unshare",
        [TMPFS_CALL_SETGROUPS] = "write to /proc/self/setgroups",
        [TMPFS_CALL_UID_MAP] = "write to /proc/self/uid_map",
        [TMPFS_CALL_GID_MAP] = "write to /proc/self/gid_map",
        [TMPFS_CALL_SENDMSG] = "sendmsg",
};

typedef struct ChildReport {
        int error;                   /* 0: the descriptor is in this message; else a negative errno, and: */
        int call;                    /* TmpfsCall */
} ChildReport;

static int set_option(int fd, const char *key, const char *value)
{
        return syscall(SYS_fsconfig, fd, TMPFS_FSCONFIG_SET_STRING, key, value, 0) < 0 ? -errno : 0;
}

/* Async-signal-safe: also runs in a child of a process with threads. */
static int mount_tmpfs(bool want_huge, int *ret_fd, TmpfsCall *ret_call)
{
        _cleanup_(cleanup_fd) int fd_context = -1;
        int fd, r;

        *ret_call = TMPFS_CALL_FSOPEN;
        fd_context = (int)syscall(SYS_fsopen, "tmpfs", TMPFS_FSOPEN_CLOEXEC);
        if (fd_context < 0)
                return -errno;
        *ret_call = TMPFS_CALL_FSCONFIG;
        if ((r = set_option(fd_context, "size", "0")) < 0 || (r = set_option(fd_context, "nr_inodes", "0")) < 0 ||
            (r = set_option(fd_context, "mode", "0700")) < 0)
                return r;
        /* A kernel without huge pages does not know the option. The probe will see that there are none. */
        if (want_huge)
                (void)set_option(fd_context, "huge", "within_size");
        if (syscall(SYS_fsconfig, fd_context, TMPFS_FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
                return -errno;
        *ret_call = TMPFS_CALL_FSMOUNT;
        fd = (int)syscall(SYS_fsmount, fd_context, TMPFS_FSMOUNT_CLOEXEC, TMPFS_ATTR_NOSUID_NODEV_NOEXEC);
        if (fd < 0)
                return -errno;
        *ret_fd = fd;
        return 0;
}

static int write_file(const char *path, const char *text)
{
        _cleanup_(cleanup_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return -errno;
        return write(fd, text, strlen(text)) < 0 ? -errno : 0;
}

static int enter_user_namespace(TmpfsCall *ret_call)
{
        uid_t uid = geteuid();
        gid_t gid = getegid();
        char map[64];
        int r;

        *ret_call = TMPFS_CALL_UNSHARE;
        if (unshare(CLONE_NEWUSER | CLONE_NEWNS) < 0)
                return -errno;
        /* Without it the kernel lets nobody but root map a group. */
        *ret_call = TMPFS_CALL_SETGROUPS;
        r = write_file("/proc/self/setgroups", "deny");
        if (r < 0)
                return r;
        *ret_call = TMPFS_CALL_UID_MAP;
        snprintf(map, sizeof(map), "%u %u 1", uid, uid);
        r = write_file("/proc/self/uid_map", map);
        if (r < 0)
                return r;
        *ret_call = TMPFS_CALL_GID_MAP;
        snprintf(map, sizeof(map), "%u %u 1", gid, gid);
        return write_file("/proc/self/gid_map", map);
}

static int send_report(int socket_fd, const ChildReport *report, int fd)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        struct iovec part = { .iov_base = (void *)report, .iov_len = sizeof(*report) };
        struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };

        if (fd >= 0) {
                message.msg_control = control.bytes;
                message.msg_controllen = sizeof(control.bytes);
                control.header = (struct cmsghdr){
                        .cmsg_len = CMSG_LEN(sizeof(int)),
                        .cmsg_level = SOL_SOCKET,
                        .cmsg_type = SCM_RIGHTS,
                };
                memcpy(CMSG_DATA(&control.header), &fd, sizeof(fd));
        }
        return sendmsg(socket_fd, &message, MSG_NOSIGNAL) < 0 ? -errno : 0;
}

static void run_child(int socket_fd, bool want_huge)
{
        ChildReport report = { 0 };
        TmpfsCall call;
        int fd = -1, r;

        r = enter_user_namespace(&call);
        if (r == 0)
                r = mount_tmpfs(want_huge, &fd, &call);
        report.error = r;
        report.call = (int)call;
        r = send_report(socket_fd, &report, fd);
        if (r < 0 && fd >= 0) {
                report.error = r;
                report.call = TMPFS_CALL_SENDMSG;
                (void)send_report(socket_fd, &report, -1); /* or the parent sees the end of the socket */
        }
        _exit(0);
}

static int receive_report(int socket_fd, int *ret_fd, const char **ret_failed_call)
{
        union {
                struct cmsghdr header;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        ChildReport report = { 0 };
        struct iovec part = { .iov_base = &report, .iov_len = sizeof(report) };
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        struct cmsghdr *header;
        ssize_t n;

        *ret_failed_call = "recvmsg";
        do {
                n = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC);
        } while (n < 0 && errno == EINTR);
        if (n < 0)
                return -errno;
        if (n != sizeof(report))
                return -ECHILD; /* it was killed, by a system call filter perhaps */
        if (report.error < 0) {
                *ret_failed_call = call_names[report.call];
                return report.error;
        }
        header = CMSG_FIRSTHDR(&message);
        if (!header || header->cmsg_type != SCM_RIGHTS || header->cmsg_len != CMSG_LEN(sizeof(int)))
                return -EMFILE; /* there was no room for it */
        memcpy(ret_fd, CMSG_DATA(header), sizeof(*ret_fd));
        return 0;
}

static int mount_by_child(bool want_huge, int *ret_fd, const char **ret_failed_call)
{
        int sockets[2], status, r;
        sigset_t all, before;
        pid_t pid;

        *ret_failed_call = "socketpair";
        if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) < 0)
                return -errno;
        /* The child has the parent's handlers, and shares what they write to: it gets no signal in its short life. */
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        *ret_failed_call = "fork";
        pid = fork();
        r = pid < 0 ? -errno : 0;
        if (pid == 0)
                run_child(sockets[1], want_huge);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        (void)close(sockets[1]);
        if (r == 0) {
                r = receive_report(sockets[0], ret_fd, ret_failed_call);
                while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
                        ;
        }
        (void)close(sockets[0]);
        return r;
}

static int make_file(TmpfsBackend *tmpfs, uint64_t size_bytes, int *ret_fd, const char **ret_failed_call)
{
        _cleanup_(cleanup_fd) int fd = -1;

        *ret_failed_call = "openat";
        /* O_EXCL: nobody can ever give it a name. */
        do {
                fd = openat(tmpfs->fd_mount, ".", O_TMPFILE | O_EXCL | O_RDWR | O_CLOEXEC, 0600);
        } while (fd < 0 && errno == EINTR);
        if (fd < 0)
                return -errno;
        *ret_failed_call = "fchmod";
        if (fchmod(fd, 0600) < 0) /* whatever the umask */
                return -errno;
        *ret_failed_call = "ftruncate";
        if (size_bytes > INT64_MAX)
                return -EFBIG;
        if (ftruncate(fd, (off_t)size_bytes) < 0)
                return -errno;
        *ret_fd = steal_fd(&fd);
        return 0;
}

static int tmpfs_create_file(Backend *backend, const char *label, uint64_t size_bytes, int *ret_fd)
{
        const char *ignored;

        return make_file(CONTAINER_OF(backend, TmpfsBackend, backend), size_bytes, ret_fd, &ignored);
}

static void tmpfs_free(Backend *backend)
{
        TmpfsBackend *tmpfs = CONTAINER_OF(backend, TmpfsBackend, backend);

        (void)close_fd(tmpfs->fd_mount);
        free(tmpfs);
}

static const BackendOps tmpfs_ops = {
        .name = "tmpfs",
        .backing = FOLIO_BACKING_TMPFS,
        .create_file = tmpfs_create_file,
        .free = tmpfs_free,
};

DEFINE_CLEANUP(Backend *, cleanup_backend, backend_free)

/* Over the mount at @consume_fd: 0, or a negative errno with the call that refused. */
static int open_backend(int consume_fd, enum folio_huge huge, Backend **ret, const char **ret_failed_call)
{
        _cleanup_(cleanup_backend) Backend *backend = NULL;
        _cleanup_(cleanup_fd) int fd_mount = consume_fd, fd = -1;
        TmpfsBackend *tmpfs;
        int r;

        *ret_failed_call = "calloc";
        tmpfs = calloc(1, sizeof(*tmpfs));
        if (!tmpfs)
                return -ENOMEM;
        backend = &tmpfs->backend;
        backend->ops = &tmpfs_ops;
        backend->huge = huge;
        tmpfs->fd_mount = steal_fd(&fd_mount);

        r = make_file(tmpfs, PAGE_BYTES, &fd, ret_failed_call);
        if (r < 0)
                return r;
        r = backend_probe(backend, ret_failed_call);
        if (r < 0)
                return r;
        *ret_failed_call = NULL;
        *ret = steal_ptr(&backend);
        return 0;
}

int backend_tmpfs_new(enum folio_huge huge, Backend **ret, const char **ret_failed_call)
{
        bool want_huge = huge == FOLIO_HUGE_ALWAYS || (huge == FOLIO_HUGE_AUTO && backend_system_allows_huge());
        int fd_mount = -1, r;
        TmpfsCall call;

        r = mount_tmpfs(want_huge, &fd_mount, &call);
        if (r < 0)
                *ret_failed_call = call_names[call];
        if (r == -EPERM)
                r = mount_by_child(want_huge, &fd_mount, ret_failed_call);
        return r < 0 ? r : open_backend(fd_mount, huge, ret, ret_failed_call);
}

int backend_tmpfs_open(const char *directory, enum folio_huge huge, Backend **ret, const char **ret_failed_call)
{
        _cleanup_(cleanup_fd) int fd = open(directory, O_PATH | O_DIRECTORY | O_CLOEXEC);
        struct statfs st;

        *ret_failed_call = "open";
        if (fd < 0)
                return -errno;
        *ret_failed_call = "statfs";
        if (fstatfs(fd, &st) < 0)
                return -errno;
        if (st.f_type != TMPFS_MAGIC)
                return -ENODEV; /* memory is what was asked for */
        return open_backend(steal_fd(&fd), huge, ret, ret_failed_call);
}
