/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections are counted by accounts: one for the whole, one for each uid below it; each connection pays for itself
 * as long as it lasts. A few of the whole are kept for root and the daemon's own uid, so that an administrator gets in.
 * Beyond all that each uid may have a few connections of tools, which say so in their first message: whatever has used up
 * the connections of a uid, folioctl is what that uid finds it with, and ends it. They are paid for by no account, and
 * counted. Who lies about it keeps tools of its own uid out, and nobody else: those of root and the daemon's own uid do not
 * count in how many there are in all.
 *
 * Out of descriptors, a socket that listens stays readable, and a naive loop would spin on it. Here a spare descriptor
 * is given up to accept and close one, and then the listener rests for a moment. An eighth of all descriptors is out
 * of reach for connections of others than root and the daemon's own uid: connections that say nothing cost nobody's
 * memory, and must not keep an administrator out either. And half of that for all but tools.
 */
#include "daemon/server/listener.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <event2/event.h>

#include "base/cleanup.h"
#include "base/list.h"
#include "daemon/server/refusals.h"
#include "daemon/server/socket.h"
#include "daemon/service/log.h"
#include "daemon/store/account.h"
#include "proto/channel.h"

#define ACCEPTS_PER_TURN 64
#define PAUSE_MS_MIN 50
#define PAUSE_MS_MAX 1000
#define ADMIN_CLIENTS 8     /* of the whole, for root and our own uid */
#define TOOLS_PER_UID_MAX 4 /* beyond it */
#define TOOLS_MAX 64        /* of others than root and our own uid */
#define FDS_IN_FLIGHT_MIN 16
#define FDS_IN_FLIGHT_MAX 500
#define GROUPS_MAX 65536    /* NGROUPS_MAX of the kernel */

typedef struct UidAccount {
        List link;
        uid_t uid;
        size_t n_connections;
        size_t n_tools;              /* of those; that are not charged */
        Account account;
} UidAccount;

typedef struct Connection {
        List link;
        Listener *listener;
        Peer *peer;
        UidAccount *uid_account;
        Charge charge;
        bool is_tool;                /* and not charged */
} Connection;

struct Listener {
        ListenerConfig config;
        Socket socket;               /* empty where the service manager made it */
        int fd;                      /* the one that listens; borrowed from @socket, or ours */
        int spare_fd;
        struct event *acceptable;
        struct event *resume;
        unsigned pause_ms;
        LogLimit log_limit;
        unsigned fds_in_flight_max;
        int fds_for_all;             /* descriptors from this number on are for administrators */
        int fds_for_admins;          /* and from this one on for tools */
        int fds_for_tools;           /* behind this one is what those need once they are in */
        List connections;
        size_t n_connections;
        Refusals refusals;
        size_t n_tools;              /* of others than administrators, that are not charged */
        List uid_accounts;
        Account account;
        uint64_t n_accepted;
        uint64_t n_refused;
        bool is_left;                /* its socket stays */
};

static uint64_t now_ns(clockid_t clock)
{
        struct timespec now;

        if (clock_gettime(clock, &now) < 0)
                return 0;
        return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

static void warn(Listener *listener, const char *what, const char *why)
{
        uint64_t n_dropped;

        if (log_limit_pass(&listener->log_limit, 1, now_ns(CLOCK_MONOTONIC), &n_dropped))
                log_warning("%s: %s (%" PRIu64 " lines like this were left out)", what, why, n_dropped);
}

/* --- who it is ---------------------------------------------------------------------------------------------------- */

static int read_groups(int fd, Cred *cred)
{
        socklen_t n_bytes = 64 * sizeof(gid_t);

        /* The kernel says how much it needs where it was too little. */
        for (int i = 0; i < 3; i++) {
                gid_t *groups = realloc(cred->groups, MAX(n_bytes, sizeof(gid_t)));

                if (!groups)
                        return -ENOMEM;
                cred->groups = groups;
                if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, groups, &n_bytes) == 0) {
                        cred->n_groups = n_bytes / sizeof(gid_t);
                        return 0;
                }
                if (errno != ERANGE || n_bytes > GROUPS_MAX * sizeof(gid_t))
                        return -errno;
        }
        return -ERANGE;
}

/* For showing only: the process can be gone, and can call itself what it likes. */
static void read_comm(pid_t pid, char *comm, size_t n_comm)
{
        char path[64];
        FILE *file;

        (void)snprintf(comm, n_comm, "?");
        if (pid <= 0)
                return;
        (void)snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
        file = fopen(path, "re");
        if (!file)
                return;
        if (fgets(comm, (int)n_comm, file))
                comm[strcspn(comm, "\n")] = '\0';
        (void)fclose(file); /* read only */
}

static int read_cred(int fd, Cred *cred)
{
        struct ucred ucred;
        socklen_t n_bytes = sizeof(ucred);
        int r;

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &n_bytes) < 0)
                return -errno;
        cred->uid = ucred.uid;
        cred->gid = ucred.gid;
        cred->pid = ucred.pid;
        r = read_groups(fd, cred);
        if (r == -ENOMEM)
                return r;
        if (r < 0)
                cred->n_groups = 0; /* fewer groups are fewer rights: safe, and better than no service */
        return 0;
}

/* --- connections -------------------------------------------------------------------------------------------------- */

static bool is_admin(uid_t uid)
{
        return uid == 0 || uid == geteuid();
}

static void put_uid_account(UidAccount *uid_account)
{
        if (--uid_account->n_connections > 0)
                return;
        list_unlink(&uid_account->link);
        account_deinit(&uid_account->account);
        free(uid_account);
}

static UidAccount *take_uid_account(Listener *listener, uid_t uid)
{
        UidAccount *uid_account;

        LIST_FOREACH(link, &listener->uid_accounts) {
                uid_account = LIST_ENTRY(link, UidAccount, link);
                if (uid_account->uid == uid) {
                        uid_account->n_connections++;
                        return uid_account;
                }
        }
        uid_account = calloc(1, sizeof(*uid_account));
        if (!uid_account)
                return NULL;
        uid_account->uid = uid;
        uid_account->n_connections = 1;
        account_init(&uid_account->account, &listener->account, UINT64_MAX,
                     uid == 0 ? UINT64_MAX : listener->config.clients_per_uid_max);
        list_push_front(&listener->uid_accounts, &uid_account->link);
        return uid_account;
}

static void connection_free(Connection *connection)
{
        list_unlink(&connection->link);
        charge_release(&connection->charge);
        if (connection->is_tool) {
                connection->uid_account->n_tools--;
                connection->listener->n_tools -= !is_admin(connection->uid_account->uid);
        }
        if (connection->uid_account)
                put_uid_account(connection->uid_account);
        free(connection);
}

DEFINE_CLEANUP(Connection *, cleanup_connection, connection_free)

static void on_peer_hangup(Peer *peer, void *userdata)
{
        Connection *connection = userdata;
        Listener *listener = connection->listener;

        listener->n_connections--;
        connection_free(connection);
        peer_unref(peer);
        if (listener->config.on_hangup)
                listener->config.on_hangup(listener->config.hangup_userdata);
}

/* 0, or LISTENER_E_REFUSED with @why, or a negative errno. */
static int charge_connection(Listener *listener, Connection *connection, int fd, uid_t uid, char *why, size_t n_why)
{
        uint64_t n_reserved = MIN(ADMIN_CLIENTS, listener->config.clients_max / 8);
        const Account *culprit;

        if (!is_admin(uid) && listener->account.count_used >= listener->config.clients_max - n_reserved) {
                (void)snprintf(why, n_why, "clients-max: %" PRIu64 " clients are connected",
                               listener->account.count_used);
                return LISTENER_E_REFUSED;
        }
        /* The kernel gives out the lowest number that is free: it tells how many are taken. */
        if (fd >= (is_admin(uid) ? listener->fds_for_admins : listener->fds_for_all)) {
                (void)snprintf(why, n_why, "foliod is short of descriptors; raise LimitNOFILE");
                return LISTENER_E_REFUSED;
        }
        connection->uid_account = take_uid_account(listener, uid);
        if (!connection->uid_account)
                return -ENOMEM;
        if (account_charge(&connection->uid_account->account, 0, 1, &connection->charge, &culprit) == 0)
                return 0;
        (void)snprintf(why, n_why, "%s: %" PRIu64 " clients%s are connected",
                       culprit == &listener->account ? "clients-max" : "clients-per-uid-max", culprit->count_used,
                       culprit == &listener->account ? "" : " of this uid");
        return LISTENER_E_REFUSED;
}

/* As charge_connection(): beyond the limits. */
static int admit_tool(Listener *listener, Connection *connection, uid_t uid, char *why, size_t n_why)
{
        if (!is_admin(uid) && listener->n_tools >= TOOLS_MAX) {
                (void)snprintf(why, n_why, "%zu tools are connected beyond clients-max", listener->n_tools);
                return LISTENER_E_REFUSED;
        }
        connection->uid_account = take_uid_account(listener, uid);
        if (!connection->uid_account)
                return -ENOMEM;
        if (connection->uid_account->n_tools >= TOOLS_PER_UID_MAX) {
                (void)snprintf(why, n_why, "%zu tools of this uid are connected beyond its limits",
                               connection->uid_account->n_tools);
                return LISTENER_E_REFUSED;
        }
        connection->uid_account->n_tools++;
        listener->n_tools += !is_admin(uid);
        connection->is_tool = true;
        return 0;
}

static int add_connection(Listener *listener, int fd, bool is_tool, char *why, size_t n_why)
{
        _cleanup_(cleanup_connection) Connection *connection = calloc(1, sizeof(*connection));
        _cleanup_(cleanup_free) gid_t *groups = NULL;
        char comm[PEER_COMM_BYTES_MAX + 1];
        PeerConfig config = {
                .base = listener->config.base,
                .connected_ns = now_ns(CLOCK_REALTIME),
                .fds_in_flight_max = listener->fds_in_flight_max,
                .on_message = listener->config.on_message,
                .message_userdata = listener->config.message_userdata,
                .on_hangup = on_peer_hangup,
                .hangup_userdata = connection,
        };
        int r;

        if (!connection)
                return -ENOMEM;
        list_init(&connection->link);
        connection->listener = listener;
        r = read_cred(fd, &config.cred);
        groups = config.cred.groups;
        if (r < 0)
                return r;
        r = is_tool ? admit_tool(listener, connection, config.cred.uid, why, n_why) :
                      charge_connection(listener, connection, fd, config.cred.uid, why, n_why);
        if (r != 0)
                return r;
        read_comm(config.cred.pid, comm, sizeof(comm));
        config.comm = comm;
        r = peer_new(&config, fd, &connection->peer);
        if (r < 0)
                return r;
        list_push_back(&listener->connections, &connection->link);
        listener->n_connections++;
        listener->n_accepted++;
        log_debug("client %s, pid %d, uid %u, has connected; %zu are", comm, (int)config.cred.pid,
                  (unsigned)config.cred.uid, listener->n_connections);
        (void)steal_ptr(&connection); /* the list's now */
        return 0;
}

/* --- refusing ----------------------------------------------------------------------------------------------------- */

static bool let_tool_in(int fd, void *userdata)
{
        char why[128] = "";
        int r = add_connection(userdata, fd, true, why, sizeof(why));

        if (r != 0)
                warn(userdata, "a tool is not let in", r < 0 ? strerror(-r) : why);
        return r == 0;
}

static void on_refused(const char *why, void *userdata)
{
        Listener *listener = userdata;

        listener->n_refused++;
        warn(listener, "a connection was refused", why);
}

/* Those of others leave half of what is kept for administrators: many that are refused must not keep those out either. */
static int how_far_to_keep(const Listener *listener, int fd)
{
        struct ucred ucred;
        socklen_t n_bytes = sizeof(ucred);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &ucred, &n_bytes) == 0 && is_admin(ucred.uid))
                return listener->fds_for_tools;
        return listener->fds_for_all + (listener->fds_for_admins - listener->fds_for_all) / 2;
}

static void init_refusals(Listener *listener)
{
        RefusalsConfig config = {
                .base = listener->config.base,
                .is_tool = listener->config.is_tool,
                .tool_userdata = listener->config.tool_userdata,
                .let_in = let_tool_in,
                .on_told = on_refused,
                .userdata = listener,
        };

        refusals_init(&listener->refusals, &config);
}

/* --- accepting ---------------------------------------------------------------------------------------------------- */

static void open_spare(Listener *listener)
{
        if (listener->spare_fd < 0)
                listener->spare_fd = open("/dev/null", O_RDONLY | O_CLOEXEC); /* none left: tried again later */
}

static void pause_accepting(Listener *listener)
{
        struct timeval timeout;

        listener->pause_ms = CLAMP(listener->pause_ms * 2, PAUSE_MS_MIN, PAUSE_MS_MAX);
        timeout = (struct timeval){ listener->pause_ms / 1000, (suseconds_t)(listener->pause_ms % 1000) * 1000 };
        /* Should the timer fail, a busy listener is better than a deaf one. */
        if (event_add(listener->resume, &timeout) == 0)
                (void)event_del(listener->acceptable);
}

static void on_resume(evutil_socket_t fd, short what, void *userdata)
{
        Listener *listener = userdata;

        open_spare(listener);
        if (event_add(listener->acceptable, NULL) < 0)
                pause_accepting(listener);
}

/* One connection is taken with the spare descriptor, told, and let go. */
static void shed_one(Listener *listener, int error)
{
        int fd;

        listener->spare_fd = close_fd(listener->spare_fd);
        fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
                ProtoReply reply = { .status = STATUS_LIMIT, .detail = { "foliod is out of descriptors", 28 } };
                uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
                size_t n_bytes;

                listener->n_refused++;
                if (proto_encode_reply(&reply, bytes, &n_bytes))
                        (void)channel_send(fd, bytes, n_bytes, NULL, 0); /* best effort */
                (void)close_fd(fd);
        }
        open_spare(listener);
        warn(listener, "connections cannot be accepted", strerror(error));
}

/* False: not now. */
static bool accept_one(Listener *listener)
{
        int fd = accept4(listener->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        char why[128] = "";
        int r;

        if (fd < 0 && errno == EAGAIN)
                return false;
        if (fd < 0 && (errno == EINTR || errno == ECONNABORTED || errno == EPROTO || errno == EPERM))
                return true;
        if (fd < 0) {
                if (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)
                        shed_one(listener, errno);
                else
                        warn(listener, "accept", strerror(errno));
                pause_accepting(listener);
                return false;
        }
        r = add_connection(listener, fd, false, why, sizeof(why));
        if (r == LISTENER_E_REFUSED) {
                refusals_add(&listener->refusals, fd, how_far_to_keep(listener, fd), why);
        } else if (r < 0) {
                (void)close_fd(fd);
                listener->n_refused++;
                warn(listener, "a connection cannot be kept", strerror(-r));
        } else {
                listener->pause_ms = 0;
        }
        return true;
}

static void on_acceptable(evutil_socket_t fd, short what, void *userdata)
{
        Listener *listener = userdata;

        for (unsigned i = 0; i < ACCEPTS_PER_TURN; i++)
                if (!accept_one(listener))
                        break;
}

/* --- the whole ---------------------------------------------------------------------------------------------------- */

void listener_set_limits(Listener *listener, uint64_t clients_max, uint64_t clients_per_uid_max)
{
        listener->config.clients_max = clients_max;
        listener->config.clients_per_uid_max = clients_per_uid_max;
        listener->account.count_max = clients_max;
        LIST_FOREACH(link, &listener->uid_accounts) {
                UidAccount *uid_account = LIST_ENTRY(link, UidAccount, link);

                uid_account->account.count_max = uid_account->uid == 0 ? UINT64_MAX : clients_per_uid_max;
        }
}

/* Shares of RLIMIT_NOFILE, which is also what the kernel lets one user have in flight. */
static void choose_fd_limits(Listener *listener)
{
        struct rlimit limit;

        listener->fds_in_flight_max = FDS_IN_FLIGHT_MIN;
        listener->fds_for_all = listener->fds_for_admins = listener->fds_for_tools = INT_MAX;
        if (getrlimit(RLIMIT_NOFILE, &limit) < 0)
                return;
        listener->fds_in_flight_max = (unsigned)CLAMP(limit.rlim_cur / 16, FDS_IN_FLIGHT_MIN, FDS_IN_FLIGHT_MAX);
        listener->fds_for_all = (int)MIN(limit.rlim_cur - limit.rlim_cur / 8, INT_MAX);
        listener->fds_for_admins = (int)MIN(limit.rlim_cur - limit.rlim_cur / 16, INT_MAX);
        listener->fds_for_tools = (int)MIN(limit.rlim_cur - limit.rlim_cur / 32, INT_MAX);
}

static int open_socket(Listener *listener, char **ret_message)
{
        int r;

        if (listener->config.activated_fd >= 0) {
                listener->fd = steal_fd(&listener->config.activated_fd);
                return evutil_make_socket_nonblocking(listener->fd) < 0 ? -errno : 0;
        }
        r = socket_open_kept(&listener->socket, listener->config.socket_path, listener->config.socket_mode,
                             listener->config.kept, ret_message);
        listener->fd = listener->socket.fd;
        switch (r) {
        case SOCKET_E_RUNNING:
                return LISTENER_E_RUNNING;
        case SOCKET_E_REFUSED:
                return LISTENER_E_REFUSED;
        }
        return r;
}

int listener_new(const ListenerConfig *config, Listener **ret, char **ret_message)
{
        Listener *listener = calloc(1, sizeof(*listener));
        int r;

        *ret_message = NULL;
        if (!listener)
                return -ENOMEM;
        listener->config = *config;
        listener->socket = (Socket)SOCKET_NULL;
        listener->fd = listener->spare_fd = -1;
        list_init(&listener->connections);
        list_init(&listener->uid_accounts);
        account_init(&listener->account, NULL, UINT64_MAX, config->clients_max);
        choose_fd_limits(listener);
        init_refusals(listener);
        r = open_socket(listener, ret_message);
        if (r != 0) {
                listener_free(listener);
                return r;
        }
        socket_refuse_fds(listener->fd);
        open_spare(listener);
        listener->acceptable = event_new(config->base, listener->fd, EV_READ | EV_PERSIST, on_acceptable, listener);
        listener->resume = event_new(config->base, -1, 0, on_resume, listener);
        if (!listener->acceptable || !listener->resume || event_add(listener->acceptable, NULL) < 0) {
                listener_free(listener);
                return -ENOMEM;
        }
        *ret = listener;
        return 0;
}

bool listener_get_kept(const Listener *listener, SocketKept *ret)
{
        return listener->socket.fd >= 0 && socket_get_kept(&listener->socket, ret) == 0;
}

void listener_leave_socket(Listener *listener)
{
        listener->is_left = true;
}

void listener_leave(Listener *listener)
{
        (void)event_del(listener->acceptable); /* cannot fail for an event of ours */
        (void)event_del(listener->resume);
        for (List *link; (link = list_peek_front(&listener->connections));)
                peer_leave(LIST_ENTRY(link, Connection, link)->peer);
}

void listener_free(Listener *listener)
{
        if (listener->acceptable)
                event_free(listener->acceptable);
        if (listener->resume)
                event_free(listener->resume);
        refusals_deinit(&listener->refusals);
        /* Each unlinks itself as it hangs up. */
        for (List *link; (link = list_peek_front(&listener->connections));)
                peer_close(LIST_ENTRY(link, Connection, link)->peer);
        assert(list_is_empty(&listener->uid_accounts));
        account_deinit(&listener->account);
        if (listener->fd != listener->socket.fd)
                listener->fd = close_fd(listener->fd);
        if (listener->is_left)
                socket_leave(&listener->socket);
        else
                socket_close(&listener->socket);
        listener->spare_fd = close_fd(listener->spare_fd);
        (void)close_fd(listener->config.activated_fd);
        free(listener);
}

size_t listener_n_peers(const Listener *listener)
{
        return listener->n_connections;
}

uint64_t listener_n_accepted(const Listener *listener)
{
        return listener->n_accepted;
}

uint64_t listener_n_refused(const Listener *listener)
{
        return listener->n_refused;
}
