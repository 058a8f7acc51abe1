/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The order of taking a path: the directory (opened once, so that nobody can exchange it behind our back; made where it
 * is not there), the lock file (flock, which the kernel drops with its holder, however that ends), then what is at
 * the path: a socket on which nobody listens is what an ended daemon left behind, and is removed; anything else stays.
 *
 * A lock file can be removed by the daemon that is ending while we open it; then we hold a lock on a file without a
 * name, and begin again.
 */
#include "daemon/server/socket.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#define LOCK_TRIES_MAX 100
#define BACKLOG 4096 /* the kernel has its own limit */

static int complain(int result, char **ret_message, const char *format, ...) _printf_(3, 4);

static int complain(int result, char **ret_message, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        if (vasprintf(ret_message, format, arguments) < 0)
                *ret_message = NULL;
        va_end(arguments);
        return result;
}

/* Who may write in a directory decides what is at a path in it: us and root, or those who cannot touch what is ours. */
static int check_directory(const Socket *self, const char *path, char **ret_message)
{
        struct stat st;

        if (fstat(self->directory_fd, &st) < 0)
                return complain(-errno, ret_message, "%s: fstat: %s", path, strerror(errno));
        if (st.st_uid != geteuid() && st.st_uid != 0)
                return complain(SOCKET_E_REFUSED, ret_message, "%s: the directory belongs to uid %u, who could "
                                "exchange the socket; remove it, or give another path with --socket", path,
                                (unsigned)st.st_uid);
        if ((st.st_mode & 022) && !(st.st_mode & S_ISVTX))
                return complain(SOCKET_E_REFUSED, ret_message, "%s: others can write in the directory and could "
                                "exchange the socket; take that away, or give another path with --socket", path);
        return 0;
}

static int open_directory(Socket *self, const char *path, bool is_public, char **ret_message)
{
        /* Made by us it is for us; one for all users must let them in. */
        if (mkdir(path, is_public ? 0755 : 0700) < 0 && errno != EEXIST)
                return complain(-errno, ret_message, "the socket's directory %s cannot be made: %s%s", path, strerror(errno),
                                errno == ENOENT ? "; where it would lie (XDG_RUNTIME_DIR?) is not there" : "");
        self->directory_fd = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (self->directory_fd < 0) {
                if (errno == ELOOP || errno == ENOTDIR)
                        return complain(SOCKET_E_REFUSED, ret_message, "%s: is no directory, or a link", path);
                return complain(-errno, ret_message, "%s: open: %s", path, strerror(errno));
        }
        return check_directory(self, path, ret_message);
}

/* Does the lock file's name still lead to what we have locked? */
static bool is_lock_named(const Socket *self)
{
        struct stat ours, named;

        return fstat(self->lock_fd, &ours) == 0 &&
               fstatat(self->directory_fd, self->lock_name, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
               ours.st_dev == named.st_dev && ours.st_ino == named.st_ino;
}

/* What is there is somebody else's, or what it should not be; or nothing is, and we may not put it there. */
static int complain_of_lock(const Socket *self, const char *path, char **ret_message)
{
        struct stat st;

        if (fstatat(self->directory_fd, self->lock_name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                return complain(SOCKET_E_REFUSED, ret_message, "%s.lock: is there and is no file of ours, it belongs to uid %u "
                                "and this is uid %u; it stays; give another path with --socket", path, (unsigned)st.st_uid,
                                (unsigned)geteuid());
        if (fstat(self->directory_fd, &st) == 0)
                return complain(SOCKET_E_REFUSED, ret_message, "%s.lock: the directory belongs to uid %u, and uid %u may make no "
                                "file in it; give another path with --socket", path, (unsigned)st.st_uid, (unsigned)geteuid());
        return complain(-errno, ret_message, "%s.lock: %s", path, strerror(errno));
}

/* One try: 0 with the lock held, SOCKET_E_*, or a negative errno. */
static int try_lock(Socket *self, const char *path, char **ret_message)
{
        _cleanup_(cleanup_fd) int fd = -1;
        struct stat st;

        fd = openat(self->directory_fd, self->lock_name, O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600);
        if (fd < 0 && errno != ELOOP && errno != EISDIR && errno != ENXIO && errno != EACCES)
                return complain(-errno, ret_message, "%s.lock: open: %s", path, strerror(errno));
        if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
                return complain_of_lock(self, path, ret_message);
        if (flock(fd, LOCK_EX | LOCK_NB) < 0)
                return errno == EWOULDBLOCK
                               ? complain(SOCKET_E_RUNNING, ret_message, "another foliod has %s", path)
                               : complain(-errno, ret_message, "%s.lock: flock: %s", path, strerror(errno));
        self->lock_fd = steal_fd(&fd);
        return 0;
}

static int take_lock(Socket *self, const char *path, char **ret_message)
{
        for (unsigned i = 0; i < LOCK_TRIES_MAX; i++) {
                int r = try_lock(self, path, ret_message);

                if (r != 0 || is_lock_named(self))
                        return r;
                self->lock_fd = close_fd(self->lock_fd);
        }
        return complain(SOCKET_E_RUNNING, ret_message, "%s.lock: other daemons come and go too fast", path);
}

static int make_address(const char *path, struct sockaddr_un *ret)
{
        *ret = (struct sockaddr_un){ .sun_family = AF_UNIX };
        if (strlen(path) >= sizeof(ret->sun_path))
                return -ENAMETOOLONG;
        memcpy(ret->sun_path, path, strlen(path));
        return 0;
}

/* With the lock held: whoever still listens there is no foliod of ours, but may well be alive. */
static int remove_stale(Socket *self, const char *path, const struct sockaddr_un *address, char **ret_message)
{
        _cleanup_(cleanup_fd) int fd = -1;
        struct stat st;

        if (fstatat(self->directory_fd, self->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return errno == ENOENT ? 0 : complain(-errno, ret_message, "%s: stat: %s", path, strerror(errno));
        if (!S_ISSOCK(st.st_mode))
                return complain(SOCKET_E_REFUSED, ret_message, "%s: is there and is no socket; it stays", path);
        fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (fd < 0)
                return complain(-errno, ret_message, "socket: %s", strerror(errno));
        if (connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0)
                return complain(SOCKET_E_RUNNING, ret_message, "%s: somebody listens there", path);
        if (errno != ECONNREFUSED)
                return complain(SOCKET_E_REFUSED, ret_message, "%s: whether somebody listens there cannot be told: %s; "
                                "remove it if not", path, strerror(errno));
        if (unlinkat(self->directory_fd, self->name, 0) < 0)
                return complain(-errno, ret_message, "%s: unlink: %s", path, strerror(errno));
        return 0;
}

static int bind_and_listen(Socket *self, const char *path, const struct sockaddr_un *address, uint32_t mode,
                           char **ret_message)
{
        mode_t before;
        int r;

        self->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (self->fd < 0)
                return complain(-errno, ret_message, "socket: %s", strerror(errno));
        /* With its mode from birth: a chmod() afterwards would leave a moment, and follow a link. */
        before = umask(~mode & 0777);
        r = bind(self->fd, (const struct sockaddr *)address, sizeof(*address)) < 0 ? -errno : 0;
        (void)umask(before);
        if (r < 0)
                return complain(r, ret_message, "%s: bind: %s", path, strerror(-r));
        if (listen(self->fd, BACKLOG) < 0) {
                r = -errno;
                return complain(r, ret_message, "%s: listen: %s", path, strerror(-r));
        }
        return 0;
}

/* The directory and the lock. */
static int take_path(Socket *self, const char *path, bool is_public, char **ret_message)
{
        _cleanup_(cleanup_free) char *for_directory = strdup(path), *for_name = strdup(path);
        int r;

        if (!for_directory || !for_name)
                return -ENOMEM;
        self->name = strdup(basename(for_name));
        if (!self->name || asprintf(&self->lock_name, "%s.lock", self->name) < 0) {
                self->lock_name = NULL;
                return -ENOMEM;
        }
        r = open_directory(self, dirname(for_directory), is_public, ret_message);
        return r == 0 ? take_lock(self, path, ret_message) : r;
}

int socket_get_kept(const Socket *self, SocketKept *ret)
{
        struct stat st;

        if (fstatat(self->directory_fd, self->name, &st, AT_SYMLINK_NOFOLLOW) < 0)
                return -errno;
        *ret = (SocketKept){ self->fd, st.st_dev, st.st_ino };
        return 0;
}

/* With the lock held. */
static bool is_at_path(const Socket *self, const SocketKept *kept)
{
        SocketKept found = { .fd = -1 };

        return kept && kept->fd >= 0 && socket_get_kept(self, &found) == 0 && found.device == kept->device &&
               found.inode == kept->inode;
}

int socket_open_kept(Socket *self, const char *path, uint32_t mode, SocketKept *kept, char **ret_message)
{
        struct sockaddr_un address;
        int r;

        *ret_message = NULL;
        r = make_address(path, &address);
        if (r < 0)
                return complain(r, ret_message, "%s: longer than a socket's path can be", path);
        r = take_path(self, path, mode & 077, ret_message);
        if (r == 0 && is_at_path(self, kept)) {
                self->fd = steal_fd(&kept->fd);
                return 0;
        }
        if (r == 0)
                r = remove_stale(self, path, &address, ret_message);
        if (r == 0)
                r = bind_and_listen(self, path, &address, mode, ret_message);
        if (r != 0) {
                /* What is at the path is not ours: only the lock goes. */
                self->fd = close_fd(self->fd);
                socket_close(self);
        }
        return r;
}

int socket_open(Socket *self, const char *path, uint32_t mode, char **ret_message)
{
        return socket_open_kept(self, path, mode, NULL, ret_message);
}

void socket_refuse_fds(int fd)
{
        int no = 0;

        (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no));
}

void socket_leave(Socket *self)
{
        self->fd = close_fd(self->fd);
        self->lock_fd = close_fd(self->lock_fd);
        socket_close(self);
}

void socket_close(Socket *self)
{
        /* What cannot be removed is stale for the next daemon, which removes it. */
        if (self->fd >= 0)
                (void)unlinkat(self->directory_fd, self->name, 0);
        if (self->lock_fd >= 0)
                (void)unlinkat(self->directory_fd, self->lock_name, 0);
        self->fd = close_fd(self->fd);
        self->lock_fd = close_fd(self->lock_fd);
        self->directory_fd = close_fd(self->directory_fd);
        free(self->name);
        free(self->lock_name);
        *self = (Socket)SOCKET_NULL;
}
