/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One loop: signals by a descriptor, the child's notifications by a datagram socket, and the moment at which the next
 * child is due. What a child has sent before it ended is read before it is taken note of that it has.
 *
 * Everybody can write to an abstract socket, so only what the kernel says is the child's counts.
 */
#include "daemon/service/keeper-process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <systemd/sd-daemon.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/service/keeper-stored.h"
#include "daemon/service/log.h"

#define EXIT_CANNOT_RUN 1
#define EXIT_NOT_EXECUTED 127
#define FDS_OF_OURS 64               /* descriptors that are not stored */
#define N_SLOTS_MIN 4                /* with fewer a restart has no room */
#define FDS_MAX 16                   /* in a message */
#define MESSAGE_BYTES_MAX 4096
#define STEADY_NS UINT64_C(1000000000)
#define DELAY_MS_MIN 5
#define DELAY_MS_MAX_READY 100       /* of one that served for a moment */
#define DELAY_MS_MAX 4000            /* of one that cannot start any more */

typedef struct KeeperProcess {
        char **argv;
        char *path;
        int ready_fd;
        int signal_fd;
        int socket;
        char address[32];
        char *upper;                 /* NOTIFY_SOCKET of a manager above us; NULL */
        sigset_t signals_before;
        KeeperStored stored;
        pid_t child;                 /* 0: none */
        uint64_t ready_ns;           /* 0: it was not */
        uint64_t start_ns;           /* when the next child is due, where there is none */
        unsigned n_quick;            /* ends in a row that came too soon, */
        unsigned n_unready;          /* and of those that were not ready yet */
        bool was_ready;              /* some child was */
        bool is_restarting;          /* the child was asked to end for another */
        bool is_stopping;
        int status;                  /* with which we end; -1: not yet */
} KeeperProcess;

static uint64_t now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now); /* there is such a clock */
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* --- the child ---------------------------------------------------------------------------------------------------- */

pid_t keeper_process_of_child(void)
{
        const char *text = getenv("FOLIO_KEEPER");
        int keeper, child;

        if (!text || sscanf(text, "process:%d:%d", &keeper, &child) != 2 || child != (int)getpid())
                return 0;
        return keeper;
}

static int set_environment(const KeeperProcess *self, pid_t keeper)
{
        char text[64], slots[24];

        (void)snprintf(text, sizeof(text), "process:%d:%d", (int)keeper, (int)getpid());
        (void)snprintf(slots, sizeof(slots), "%zu", self->stored.n_max);
        if (setenv("FOLIO_KEEPER", text, 1) < 0 || setenv("NOTIFY_SOCKET", self->address, 1) < 0 ||
            setenv("FDSTORE", slots, 1) < 0)
                return -errno;
        /* A watchdog of the manager above is fed by the child, through us. */
        (void)snprintf(text, sizeof(text), "%d", (int)getpid());
        return getenv("WATCHDOG_PID") && setenv("WATCHDOG_PID", text, 1) < 0 ? -errno : 0;
}

/* Never returns. */
static void become_child(const KeeperProcess *self, pid_t keeper)
{
        int r = set_environment(self, keeper);

        if (r == 0)
                r = keeper_stored_hand_over(&self->stored);
        (void)sigprocmask(SIG_SETMASK, &self->signals_before, NULL);
        if (r == 0) {
                (void)execv(self->path, self->argv);
                r = -errno;
        }
        log_error("cannot run %s: %s", self->path, strerror(-r));
        _exit(EXIT_NOT_EXECUTED);
}

static void plan_child(KeeperProcess *self, uint64_t delay_ms)
{
        self->start_ns = now_ns() + delay_ms * 1000000;
}

uint64_t keeper_process_delay_ms(bool was_ready, unsigned n_quick)
{
        uint64_t max_ms = was_ready ? DELAY_MS_MAX_READY : DELAY_MS_MAX;

        return MIN((uint64_t)DELAY_MS_MIN << MIN(n_quick, 16u), max_ms);
}

static uint64_t next_delay_ms(KeeperProcess *self)
{
        uint64_t delay_ms;
        unsigned *n;

        if (self->ready_ns && now_ns() - self->ready_ns >= STEADY_NS)
                self->n_quick = 0;
        /* Each counts for itself: one that is killed in its start is not one that cannot start. */
        n = self->ready_ns ? &self->n_quick : &self->n_unready;
        if (self->ready_ns)
                self->n_unready = 0;
        delay_ms = keeper_process_delay_ms(self->ready_ns, *n);
        ++*n;
        return delay_ms;
}

static void start_child(KeeperProcess *self)
{
        pid_t keeper = getpid(), pid = fork();

        if (pid == 0)
                become_child(self, keeper);
        self->ready_ns = 0;
        if (pid < 0) {
                log_warning("cannot start another process: %s", strerror(errno));
                if (!self->was_ready)
                        self->status = EXIT_CANNOT_RUN;
                plan_child(self, next_delay_ms(self));
                return;
        }
        self->child = pid;
}

static void describe(int status, char *text, size_t n_text)
{
        if (WIFSIGNALED(status))
                (void)snprintf(text, n_text, "was ended by signal %d (%s)", WTERMSIG(status),
                               strsignal(WTERMSIG(status)));
        else
                (void)snprintf(text, n_text, "ended with status %d", WEXITSTATUS(status));
}

static void on_child_end(KeeperProcess *self, int status)
{
        bool has_code = WIFEXITED(status) && WEXITSTATUS(status) != EXIT_NOT_EXECUTED;
        int code = has_code ? WEXITSTATUS(status) : EXIT_CANNOT_RUN;
        char what[96];

        describe(status, what, sizeof(what));
        self->child = 0;
        if (self->is_restarting && !self->is_stopping) {
                self->is_restarting = false;
                plan_child(self, 0);
                return;
        }
        if (code == 0 || self->is_stopping || !self->was_ready) {
                /* Asked to end before it could listen to that: it has nothing that it would have to put in order. */
                bool is_asked = self->is_stopping && WIFSIGNALED(status) &&
                                (WTERMSIG(status) == SIGTERM || WTERMSIG(status) == SIGINT);

                if (WIFSIGNALED(status) && !is_asked)
                        log_error("foliod %s", what);
                self->status = is_asked ? 0 : code;
                return;
        }
        plan_child(self, next_delay_ms(self));
        log_warning("foliod %s; it is started again with the %zu descriptors that are kept", what, self->stored.n);
}

/* Any child: one that is the first process of a container has others. */
static void reap(KeeperProcess *self)
{
        int status;

        for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;)
                if (pid == self->child)
                        on_child_end(self, status);
}

/* --- notifications ------------------------------------------------------------------------------------------------ */

/* Nobody need listen, and we wait for nobody. */
static void tell_upper(const KeeperProcess *self, const char *text)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        _cleanup_(cleanup_fd) int fd = -1;
        size_t n = self->upper ? strlen(self->upper) : 0;

        if (n < 2 || n >= sizeof(address.sun_path) || !*text)
                return;
        fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        memcpy(address.sun_path, self->upper, n);
        if (address.sun_path[0] == '@')
                address.sun_path[0] = '\0';
        if (fd >= 0)
                (void)sendto(fd, text, strlen(text), MSG_NOSIGNAL, (struct sockaddr *)&address,
                             (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n));
}

static void on_ready(KeeperProcess *self)
{
        self->was_ready = true;
        self->ready_ns = now_ns();
        if (self->ready_fd >= 0) {
                (void)!write(self->ready_fd, "1", 1); /* who has gone need not know */
                self->ready_fd = close_fd(self->ready_fd);
        }
}

typedef struct Notice {
        const char *name;            /* FDNAME */
        bool is_store;
        bool is_removal;
        bool is_ready;
        char upper[MESSAGE_BYTES_MAX]; /* lines that are for others */
        size_t n_upper;
} Notice;

static void take_line(Notice *notice, const char *line)
{
        size_t n = strlen(line);

        if (strncmp(line, "FDNAME=", 7) == 0) {
                notice->name = line + 7;
        } else if (strcmp(line, "FDSTORE=1") == 0) {
                notice->is_store = true;
        } else if (strcmp(line, "FDSTOREREMOVE=1") == 0) {
                notice->is_removal = true;
        } else if (strncmp(line, "FDPOLL=", 7) != 0 && strncmp(line, "BARRIER=", 8) != 0 &&
                   strncmp(line, "MAINPID=", 8) != 0 && strncmp(line, "STOPPING=", 9) != 0 && n > 0) {
                notice->is_ready |= strcmp(line, "READY=1") == 0;
                memcpy(notice->upper + notice->n_upper, line, n);
                notice->n_upper += n;
                notice->upper[notice->n_upper++] = '\n';
        }
}

/* What is not stored is closed: also the end of a pipe by which the child sees that we have come so far. */
static void on_notice(KeeperProcess *self, char *text, const int *fds, size_t n_fds)
{
        Notice notice = { .name = "stored" };
        int r = 0;

        for (char *rest = text, *line; (line = strsep(&rest, "\n"));)
                take_line(&notice, line);
        notice.upper[notice.n_upper] = '\0';
        for (size_t i = 0; i < n_fds; i++) {
                if (notice.is_store && r == 0)
                        r = keeper_stored_add(&self->stored, notice.name, fds[i]);
                else
                        (void)close_fd(fds[i]);
        }
        if (r != 0)
                log_warning("a descriptor of foliod could not be kept: %s",
                            r < 0 ? strerror(-r) : "there are as many as may be (keeper-slots)");
        if (notice.is_removal)
                keeper_stored_remove(&self->stored, notice.name);
        if (notice.is_ready)
                on_ready(self);
        tell_upper(self, notice.upper);
}

static pid_t take_control(struct msghdr *message, int *fds, size_t *ret_n_fds)
{
        struct ucred sender = { .pid = 0 };

        *ret_n_fds = 0;
        for (struct cmsghdr *header = CMSG_FIRSTHDR(message); header; header = CMSG_NXTHDR(message, header)) {
                if (header->cmsg_level != SOL_SOCKET)
                        continue;
                if (header->cmsg_type == SCM_CREDENTIALS) {
                        memcpy(&sender, CMSG_DATA(header), sizeof(sender));
                } else if (header->cmsg_type == SCM_RIGHTS) {
                        *ret_n_fds = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
                        memcpy(fds, CMSG_DATA(header), *ret_n_fds * sizeof(int));
                }
        }
        return sender.pid;
}

static void *close_all(void *userdata)
{
        int *fds = userdata;

        for (int i = 1; i <= fds[0]; i++)
                (void)close_fd(fds[i]);
        free(fds);
        return NULL;
}

/* What strangers send can take long to close (SO_LINGER): a thread waits for that. */
static void dispose(const int *fds, size_t n_fds)
{
        int *copy = calloc(n_fds + 1, sizeof(int));
        pthread_t thread;

        /* Then they stay open: better than to be at a stranger's mercy. */
        if (!copy)
                return;
        copy[0] = (int)n_fds;
        memcpy(copy + 1, fds, n_fds * sizeof(int));
        if (n_fds > 0 && pthread_create(&thread, NULL, close_all, copy) == 0)
                (void)pthread_detach(thread);
        else
                (void)close_all(copy);
}

/* False: there is no more. */
static bool receive(KeeperProcess *self)
{
        union {
                char bytes[CMSG_SPACE(FDS_MAX * sizeof(int)) + CMSG_SPACE(sizeof(struct ucred))];
                struct cmsghdr align;
        } control;
        char text[MESSAGE_BYTES_MAX];
        struct iovec part = { text, sizeof(text) - 2 }; /* room for what ends it, and the last line */
        struct msghdr message = {
                .msg_iov = &part,
                .msg_iovlen = 1,
                .msg_control = control.bytes,
                .msg_controllen = sizeof(control.bytes),
        };
        int fds[FDS_MAX + sizeof(struct ucred) / sizeof(int) + 1];
        size_t n_fds;
        ssize_t n = recvmsg(self->socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
        pid_t sender;

        if (n < 0)
                return errno == EINTR;
        text[n] = '\0';
        sender = take_control(&message, fds, &n_fds);
        if (self->child > 0 && sender == self->child && !(message.msg_flags & (MSG_CTRUNC | MSG_TRUNC))) {
                on_notice(self, text, fds, n_fds);
                return true;
        }
        if (self->child > 0 && sender == self->child)
                log_warning("a message of foliod could not be read whole: descriptors of it are not kept");
        dispose(fds, n_fds);
        return true;
}

static void receive_all(KeeperProcess *self)
{
        while (receive(self))
                ;
}

/* --- signals ------------------------------------------------------------------------------------------------------ */

static void pass_on(const KeeperProcess *self, int number)
{
        if (self->child > 0)
                (void)kill(self->child, number); /* not waited for yet, so it is there, or its pid is still its own */
}

static void on_signal(KeeperProcess *self, int number)
{
        if (number == SIGCHLD) {
                receive_all(self);
                reap(self);
                return;
        }
        if (number == SIGUSR1) {
                log_notice("foliod is started again: signal %d", number);
                self->is_restarting = self->child > 0;
                self->n_quick = 0;
                plan_child(self, 0);
        } else if (number == SIGTERM || number == SIGINT) {
                self->is_stopping = true;
                tell_upper(self, "STOPPING=1");
                if (self->child == 0)
                        self->status = 0;
        }
        pass_on(self, number);
}

static void read_signals(KeeperProcess *self)
{
        struct signalfd_siginfo info;

        while (read(self->signal_fd, &info, sizeof(info)) == sizeof(info))
                on_signal(self, (int)info.ssi_signo);
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

static int open_signals(KeeperProcess *self)
{
        static const int numbers[] = { SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGCHLD };
        sigset_t set;

        (void)sigemptyset(&set);
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                (void)sigaddset(&set, numbers[i]);
        if (sigprocmask(SIG_BLOCK, &set, &self->signals_before) < 0)
                return -errno;
        /* The child has not inherited a block that somebody else has put on these. */
        for (size_t i = 0; i < ARRAY_SIZE(numbers); i++)
                (void)sigdelset(&self->signals_before, numbers[i]);
        self->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
        return self->signal_fd < 0 ? -errno : 0;
}

/* The kernel chooses a name: '\0' and five digits. */
static int open_socket(KeeperProcess *self)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        socklen_t n = sizeof(address);
        int on = 1;

        self->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
        if (self->socket < 0 || setsockopt(self->socket, SOL_SOCKET, SO_PASSCRED, &on, sizeof(on)) < 0 ||
            bind(self->socket, (struct sockaddr *)&address, sizeof(sa_family_t)) < 0 ||
            getsockname(self->socket, (struct sockaddr *)&address, &n) < 0)
                return -errno;
        n -= (socklen_t)offsetof(struct sockaddr_un, sun_path);
        if (n < 2 || n >= sizeof(self->address))
                return -EADDRNOTAVAIL;
        memcpy(self->address, address.sun_path, n);
        self->address[0] = '@';
        self->address[n] = '\0';
        return 0;
}

/* Sockets that a manager above has made for us are the child's, each time. */
static int take_sockets(KeeperProcess *self)
{
        char **names = NULL;
        int n = sd_listen_fds_with_names(1, &names), r = 0;

        for (int i = 0; i < n; i++) {
                if (r == 0)
                        r = keeper_stored_add(&self->stored, names[i], SD_LISTEN_FDS_START + i);
                free(names[i]);
        }
        free(names);
        return n < 0 ? n : r > 0 ? -EMFILE : r;
}

/* As it was called, so that another version in its place is what is started the next time. */
static int find_path(KeeperProcess *self)
{
        char path[PATH_MAX];
        ssize_t n = readlink("/proc/self/exe", path, sizeof(path) - 1);

        path[MAX(n, 0)] = '\0';
        self->path = strdup(n > 0 && access(path, X_OK) == 0 ? path : "/proc/self/exe");
        return self->path ? 0 : -ENOMEM;
}

static size_t choose_n_slots(size_t n_slots)
{
        struct rlimit limit;

        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return n_slots;
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit); /* then it stays */
        (void)getrlimit(RLIMIT_NOFILE, &limit); /* as above */
        if (limit.rlim_cur < FDS_OF_OURS + 2 * N_SLOTS_MIN) {
                log_warning("nothing can be kept for a restart: this process may have %" PRIu64 " descriptors (RLIMIT_NOFILE), and "
                            "that takes %d", (uint64_t)limit.rlim_cur, FDS_OF_OURS + 2 * N_SLOTS_MIN);
                return 0;
        }
        return MIN(n_slots, (limit.rlim_cur - FDS_OF_OURS) / 2);
}

static int init(KeeperProcess *self, const KeeperProcessConfig *config)
{
        const char *upper = getenv("NOTIFY_SOCKET");
        int r = keeper_stored_init(&self->stored, choose_n_slots(config->n_slots));

        if (self->ready_fd >= 0 && fcntl(self->ready_fd, F_SETFD, FD_CLOEXEC) < 0) {
                self->ready_fd = -1;
                r = -EBADF;
        }
        if (r == 0)
                r = take_sockets(self);
        if (r == 0 && upper && !(self->upper = strdup(upper)))
                r = -ENOMEM;
        if (r == 0)
                r = find_path(self);
        if (r == 0)
                r = open_signals(self);
        if (r == 0)
                r = open_socket(self);
        if (r == 0)
                (void)prctl(PR_SET_NAME, "foliod-keeper"); /* for who looks at processes */
        return r;
}

static void deinit(KeeperProcess *self)
{
        self->ready_fd = close_fd(self->ready_fd);
        self->signal_fd = close_fd(self->signal_fd);
        self->socket = close_fd(self->socket);
        keeper_stored_deinit(&self->stored);
        free(self->upper);
        free(self->path);
}

static int until_start_ms(const KeeperProcess *self)
{
        uint64_t now = now_ns();

        if (self->child > 0)
                return -1;
        return self->start_ns > now ? (int)((self->start_ns - now) / 1000000) + 1 : 0;
}

int keeper_process_run(const KeeperProcessConfig *config)
{
        KeeperProcess self = {
                .argv = config->argv,
                .ready_fd = config->consume_ready_fd,
                .signal_fd = -1,
                .socket = -1,
                .status = -1,
        };
        int r = init(&self, config);

        if (r < 0) {
                log_error("cannot start: the keeper of descriptors: %s", strerror(-r));
                self.status = EXIT_CANNOT_RUN;
        }
        while (self.status < 0) {
                struct pollfd wait[] = { { .fd = self.signal_fd, .events = POLLIN },
                                         { .fd = self.socket, .events = POLLIN } };

                if (self.child == 0 && now_ns() >= self.start_ns)
                        start_child(&self);
                if (self.status < 0 && poll(wait, ARRAY_SIZE(wait), until_start_ms(&self)) > 0) {
                        receive_all(&self);
                        read_signals(&self);
                }
        }
        deinit(&self);
        return self.status;
}
