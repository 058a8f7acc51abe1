/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Messages that make no sense: with descriptors nobody asked for, with fields that do not belong there, for parts that
 * are switched off, or no messages at all. Each costs its sender at most the connection, and nobody else anything.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"
#include "tests/integration/raw.h"

#include <sys/epoll.h>
#include <sys/socket.h>

enum { N_KINDS = 9 };

static int odd_fd(const Foliod *foliod, unsigned kind)
{
        int ends[2], fd;

        switch (kind % N_KINDS) {
        case 0:
                assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
                close(ends[1]);
                return ends[0];
        case 1:
                assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
                close(ends[1]);
                return ends[0];
        case 2:
                return open(foliod->directory, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        case 3:
                return open("/dev/zero", O_RDWR | O_CLOEXEC);
        case 4:
                return open(foliod->socket_path, O_PATH | O_CLOEXEC);
        case 5:
                return epoll_create1(EPOLL_CLOEXEC);
        case 6:
                fd = memfd_create("odd", MFD_CLOEXEC);
                assert_int_equal(ftruncate(fd, 4096), 0);
                return fd;
        case 7:
                fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
                assert_int_equal(listen(fd, 1) == 0 || errno == EINVAL, 1);
                return fd;
        default:
                return open("/dev/null", O_RDONLY | O_CLOEXEC);
        }
}

/*
 * Sends @verb with @n_fds uninvited descriptors, the first one the writing end of a pipe. The daemon has closed it when
 * the reading end says that nobody can write any more.
 */
static void send_uninvited(const Foliod *foliod, ProtoVerb verb, unsigned kind, size_t n_fds)
{
        Raw *raw = verb == VERB_HELLO ? raw_connect(foliod) : raw_open(foliod);
        ProtoItem item = { .key = raw_key("uninvited"), .size_bytes = 1 };
        ProtoRequest request = { .verb = verb,
                                 .n_items = 1,
                                 .items = &item,
                                 .version_min = 1,
                                 .version_max = 1,
                                 .client_name = raw_key("uninvited") };
        struct pollfd closed;
        int fds[PROTO_FDS_MAX], ends[2];
        bool is_sent;

        if (verb != VERB_HELLO)
                request.namespace_id = raw_namespace(raw, "default");
        if (verb == VERB_HELLO || verb == VERB_STATUS || verb == VERB_PING || verb == VERB_WATCH ||
            verb == VERB_NAMESPACE_OPEN || verb >= VERB_NAMESPACE_ADD)
                request.n_items = 0;
        if (verb == VERB_NAMESPACE_OPEN || (verb >= VERB_NAMESPACE_ADD && verb <= VERB_NAMESPACE_REMOVE)) {
                request.has_namespace = true;
                (void)strcpy(request.ns.name, "uninvited");
        }
        assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
        fds[0] = ends[1];
        for (size_t i = 1; i < n_fds; i++)
                fds[i] = odd_fd(foliod, kind);
        /* From Linux 6.16 on it is the kernel that does not let them through. */
        is_sent = raw_send(raw, &request, verb == VERB_RELEASE || verb == VERB_ABORT, fds, n_fds);
        for (size_t i = 0; i < n_fds; i++)
                close(fds[i]);
        if (is_sent)
                raw_await_hangup(raw);
        closed = (struct pollfd){ .fd = ends[0] };
        assert_int_equal(poll(&closed, 1, 20000), 1);
        assert_true(closed.revents & POLLHUP);
        close(ends[0]);
        raw_close(raw);
}

/* C03: a descriptor with any message, of any kind, is a breach: closed, never looked into, and nothing is done. */
static void test_c03_descriptor_with_every_message(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        struct folio_client *client;

        (void)state;
        for (ProtoVerb verb = VERB_HELLO; verb < _VERB_MAX; verb++)
                for (unsigned kind = 0; kind < N_KINDS; kind += verb == VERB_PUT ? 1 : 4)
                        send_uninvited(foliod, verb, kind + (unsigned)verb, 2);
        send_uninvited(foliod, VERB_HELLO, 3, PROTO_FDS_MAX);
        send_uninvited(foliod, VERB_PUT, 3, PROTO_FDS_MAX);
        client = foliod_connect(foliod);
        assert_int_equal(folio_exists(client, "uninvited"), 0);
        assert_int_equal(folio_exists(client, "uninvited:x"), FOLIO_E_NOT_FOUND);
        folio_client_unref(client);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * Every verb with nothing, with a namespace that is not there, with an object that is not there. None is done, none
 * is fatal.
 */
static void send_nonsense(const Foliod *foliod)
{
        for (unsigned verb = VERB_NONE; verb < _VERB_MAX + 2; verb++)
                for (unsigned form = 0; form < 5; form++) {
                        Raw *raw = form == 0 ? raw_connect(foliod) : raw_open(foliod);
                        ProtoItem items[2] = { { .key = raw_key("no such object") },
                                               { .flags = PROTO_ITEM_BY_SLOT | PROTO_ITEM_WRITABLE,
                                                 .slot = UINT32_MAX } };
                        ProtoRequest request = {
                                .verb = (ProtoVerb)verb,
                                .n_items = form >= 2 ? 2 : 0,
                                .items = items,
                                .namespace_id = form == 3 ? UINT32_MAX : form,
                                .has_namespace = form == 4,
                        };

                        if (verb == VERB_STATUS || verb == VERB_PING || (verb == VERB_NAMESPACE_LIST && form > 0)) {
                                raw_close(raw);
                                continue;
                        }
                        items[0].flags = form == 4 ? UINT32_MAX : 0;
                        (void)strcpy(request.ns.name, "none");
                        /*
                         * A verb that is not in the schema cannot be encoded by everybody: then there is nothing to
                         * send.
                         */
                        if (verb != VERB_NONE && verb < _VERB_MAX && raw_send(raw, &request, false, NULL, 0)) {
                                ProtoRequest ping = { .verb = VERB_PING };

                                /* RELEASE is never answered; what comes after it is. */
                                (void)raw_call(raw, &ping);
                        } else {
                                const uint8_t unknown[] = { 0x08, 0x01, 0x10, (uint8_t)verb };

                                (void)raw_send_bytes(raw, unknown, sizeof(unknown), NULL, 0);
                                raw_await_hangup(raw);
                        }
                        raw_close(raw);
                }
}

/* C21: what is not to be had is refused by that name; no message to a part that is not there does harm. */
static void test_c21_feature_switched_off(void **state)
{
        struct folio_namespace settings = { .struct_bytes = sizeof(settings),
                                            .fields = FOLIO_NAMESPACE_FIELD_BACKING,
                                            .backing = FOLIO_BACKING_TMPFS };
        struct folio_client *client;
        Foliod *foliod;
        Alive before;

        (void)state;
        program_set_world("mount=EPERM");
        foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        before = alive_begin(foliod);
        client = foliod_connect(foliod);
        (void)strcpy(settings.name, "tmpfs");
        assert_int_equal(folio_namespace_add(client, &settings), FOLIO_E_UNSUPPORTED);
        assert_true(strlen(folio_strerror_full()) > 0);
        settings.backing = FOLIO_BACKING_HUGETLB;
        assert_int_equal(folio_namespace_add(client, &settings), FOLIO_E_UNSUPPORTED);
        settings.backing = 77;
        assert_int_not_equal(folio_namespace_add(client, &settings), 0);
        assert_int_equal(folio_exists(client, "tmpfs:x"), FOLIO_E_NOT_FOUND);
        folio_client_unref(client);
        send_nonsense(foliod);
        alive_check(&before);
        foliod_stop(foliod);
}

/* Packets that are no messages: each costs its sender the connection and nobody anything else. */
static void test_garbage(void **state)
{
        static uint8_t bytes[65536];
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        uint64_t random = 88172645463325252u;

        (void)state;
        for (unsigned i = 0; i < 300; i++) {
                Raw *raw = i % 2 ? raw_open(foliod) : raw_connect(foliod);
                size_t n = 1 + i * 211 % (i % 16 == 15 ? sizeof(bytes) : PROTO_MESSAGE_BYTES_MAX);

                for (size_t j = 0; j < n; j++) {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        bytes[j] = i % 3 == 0 ? (uint8_t)random : i % 3 == 1 ? 0x0a : (uint8_t)(j % 2 ? 0 : 0xf8);
                }
                (void)raw_send_bytes(raw, bytes, n, NULL, 0);
                /* It may by chance be a message; then the hang-up is ours. */
                if (shutdown(raw->socket, SHUT_WR) == 0)
                        raw_await_hangup(raw);
                raw_close(raw);
        }
        for (unsigned i = 0; i < 2; i++) {
                Raw *raw = i ? raw_open(foliod) : raw_connect(foliod);

                /* An empty packet, which looks like the end of a connection, and one too large by a byte. */
                if (i)
                        assert_true(raw_send_bytes(raw, bytes, PROTO_MESSAGE_BYTES_MAX + 1, NULL, 0));
                else
                        assert_int_equal(send(raw->socket, bytes, 0, MSG_NOSIGNAL), 0);
                raw_await_hangup(raw);
                raw_close(raw);
        }
        alive_check(&before);
        foliod_stop(foliod);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_c03_descriptor_with_every_message),
                INTEGRATION_TEST(test_c21_feature_switched_off),
                INTEGRATION_TEST(test_garbage),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
