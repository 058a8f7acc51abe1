/* SPDX-License-Identifier: Apache-2.0 */
/* See fake-keeper.h. Whatever goes wrong ends the test at once. */
#include "tests/unit/fake-keeper.h"

#include <assert.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/list.h"

struct Kept {
        List link;
        uint64_t number;
        KeptRecord record;
        int fd;
};

struct Keeper {
        List kept;
        pthread_mutex_t lock;
        int socket;                  /* of a remote one; -1 */
        uint64_t number;
        size_t n, n_max;
        bool is_gone;
};

typedef struct Message {
        uint64_t number;
        bool is_drop;
        KeptRecord record;
} Message;

Keeper *fake_keeper_new(void)
{
        Keeper *keeper = calloc(1, sizeof(*keeper));

        assert(keeper);
        list_init(&keeper->kept);
        (void)pthread_mutex_init(&keeper->lock, NULL);
        keeper->socket = -1;
        keeper->n_max = SIZE_MAX;
        return keeper;
}

void fake_keeper_set_remote(Keeper *keeper, int consume_socket)
{
        keeper->socket = consume_socket;
}

static void free_kept(Keeper *keeper, Kept *kept)
{
        list_unlink(&kept->link);
        keeper->n--;
        if (kept->fd >= 0)
                close(kept->fd);
        free(kept);
}

void fake_keeper_free(Keeper *keeper)
{
        List *node;

        while ((node = list_peek_front(&keeper->kept)))
                free_kept(keeper, LIST_ENTRY(node, Kept, link));
        if (keeper->socket >= 0)
                close(keeper->socket);
        (void)pthread_mutex_destroy(&keeper->lock);
        free(keeper);
}

static Kept *add(Keeper *keeper, uint64_t number, const KeptRecord *record, int consume_fd)
{
        Kept *kept = calloc(1, sizeof(*kept));

        assert(kept);
        *kept = (Kept){ .number = number, .record = *record, .fd = consume_fd };
        list_init(&kept->link);
        list_push_back(&keeper->kept, &kept->link);
        keeper->n++;
        return kept;
}

static void send_message(Keeper *keeper, const Message *message, int fd)
{
        struct iovec part = { (void *)(uintptr_t)message, sizeof(*message) };
        union {
                struct cmsghdr head;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control = { 0 };
        struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1 };
        ssize_t n;

        if (fd >= 0) {
                m.msg_control = control.bytes;
                m.msg_controllen = sizeof(control.bytes);
                control.head = (struct cmsghdr){ CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS };
                memcpy(CMSG_DATA(&control.head), &fd, sizeof(fd));
        }
        n = sendmsg(keeper->socket, &m, MSG_NOSIGNAL);
        assert(n == sizeof(*message));
}

void fake_keeper_collect(Keeper *keeper, int socket)
{
        Message message;
        union {
                struct cmsghdr head;
                char bytes[CMSG_SPACE(sizeof(int))];
        } control;
        struct iovec part = { &message, sizeof(message) };

        for (;;) {
                struct msghdr m = { .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes,
                                    .msg_controllen = sizeof(control.bytes) };
                ssize_t n = recvmsg(socket, &m, MSG_CMSG_CLOEXEC);
                int fd;

                if (n <= 0)
                        return;
                assert(n == sizeof(message));
                keeper->number = message.number > keeper->number ? message.number : keeper->number;
                if (!message.is_drop) {
                        assert(m.msg_controllen > 0);
                        memcpy(&fd, CMSG_DATA(&control.head), sizeof(fd));
                        (void)add(keeper, message.number, &message.record, fd);
                        continue;
                }
                LIST_FOREACH_SAFE(node, &keeper->kept)
                        if (LIST_ENTRY(node, Kept, link)->number == message.number)
                                free_kept(keeper, LIST_ENTRY(node, Kept, link));
        }
}

void fake_keeper_set_limit(Keeper *keeper, size_t n_max)
{
        keeper->n_max = n_max;
}

void fake_keeper_set_gone(Keeper *keeper, bool is_gone)
{
        keeper->is_gone = is_gone;
}

size_t fake_keeper_count(Keeper *keeper, KeptKind kind)
{
        size_t n = 0;

        LIST_FOREACH(node, &keeper->kept)
                n += LIST_ENTRY(node, Kept, link)->record.kind == kind;
        return n;
}

KeptRecord *fake_keeper_get(Keeper *keeper, KeptKind kind, size_t n, int *ret_fd)
{
        LIST_FOREACH(node, &keeper->kept)
        {
                Kept *kept = LIST_ENTRY(node, Kept, link);

                if (kept->record.kind != kind || n-- > 0)
                        continue;
                *ret_fd = kept->fd;
                return &kept->record;
        }
        return NULL;
}

void fake_keeper_forget(Keeper *keeper, KeptKind kind)
{
        LIST_FOREACH_SAFE(node, &keeper->kept)
                if (LIST_ENTRY(node, Kept, link)->record.kind == kind)
                        free_kept(keeper, LIST_ENTRY(node, Kept, link));
}

void fake_keeper_add(Keeper *keeper, const KeptRecord *record, int fd)
{
        int mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        assert(mine >= 0);
        (void)add(keeper, UINT64_MAX, record, mine);
}

/* --- what the daemon calls ---------------------------------------------------------------------------------------- */

int keeper_keep(Keeper *keeper, KeptRecord *record, int fd, bool is_direct, Kept **ret)
{
        struct stat st;
        int mine = -1;

        (void)is_direct;
        if (keeper->is_gone)
                return KEEPER_E_GONE;
        assert(fstat(fd, &st) == 0);
        record->version = KEEPER_RECORD_VERSION;
        record->inode = st.st_ino;
        record->size_bytes = (uint64_t)st.st_size;
        (void)pthread_mutex_lock(&keeper->lock);
        if (keeper->n >= keeper->n_max) {
                (void)pthread_mutex_unlock(&keeper->lock);
                return KEEPER_E_FULL;
        }
        if (keeper->socket < 0) {
                mine = fcntl(fd, F_DUPFD_CLOEXEC, 3);
                assert(mine >= 0);
        }
        *ret = add(keeper, ++keeper->number, record, mine);
        if (keeper->socket >= 0)
                send_message(keeper, &(Message){ keeper->number, false, *record }, fd);
        (void)pthread_mutex_unlock(&keeper->lock);
        return 0;
}

void keeper_drop(Keeper *keeper, Kept *consume_kept)
{
        if (!consume_kept)
                return;
        (void)pthread_mutex_lock(&keeper->lock);
        if (keeper->socket >= 0)
                send_message(keeper, &(Message){ .number = consume_kept->number, .is_drop = true }, -1);
        free_kept(keeper, consume_kept);
        (void)pthread_mutex_unlock(&keeper->lock);
}

int keeper_take_all(Keeper *keeper, void (*each)(void *userdata, const KeptRecord *record, int consume_fd, Kept *kept),
                    void *userdata, uint64_t *ret_n_bad)
{
        *ret_n_bad = 0;
        LIST_FOREACH_SAFE(node, &keeper->kept)
        {
                Kept *kept = LIST_ENTRY(node, Kept, link);
                int fd = fcntl(kept->fd, F_DUPFD_CLOEXEC, 3);

                assert(fd >= 0);
                each(userdata, &kept->record, fd, kept);
        }
        return 0;
}

const char *keeper_explain(const Keeper *keeper, int outcome)
{
        (void)keeper;
        return outcome == KEEPER_E_FULL ? "the keeper has as many descriptors as it may" : "nobody keeps anything";
}

void keeper_settle(Keeper *keeper)
{
        (void)keeper;
}

void keeper_get_facts(Keeper *keeper, KeeperFacts *ret)
{
        *ret = (KeeperFacts){ .n_parked = keeper->n };
}
