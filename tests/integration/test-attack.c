/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Attacks that once succeeded: each test is named for what an attacker did, and would do it again. The daemon goes on,
 * others are answered, and what was promised about sealed objects holds.
 */
#include "tests/integration/alive.h"
#include "tests/integration/program.h"
#include "tests/integration/raw.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#define MIB (UINT64_C(1) << 20)

enum { NOBODY = 65534 };

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

#ifndef F_SEAL_FUTURE_WRITE
#define F_SEAL_FUTURE_WRITE 0x0010
#endif

static ProtoItem by_slot(const ProtoItemReply *made)
{
        return (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT, .slot = made->slot, .generation = made->generation };
}

static void check_fresh(const Foliod *foliod)
{
        Raw *raw = raw_open(foliod);
        ProtoRequest ping = { .verb = VERB_PING };

        assert_true(raw_call(raw, &ping));
        raw_close(raw);
}

/* Its descriptor, and in @ret_made where it is. */
static int create(Raw *raw, uint32_t namespace_id, const char *key, uint64_t size_bytes, uint32_t flags,
                  ProtoItem *ret_made)
{
        ProtoItem item = { .key = raw_key(key), .size_bytes = size_bytes, .flags = flags };

        assert_int_equal(raw_item(raw, VERB_CREATE, namespace_id, item), STATUS_OK);
        *ret_made = by_slot(&raw->reply.items[0]);
        return raw_take_fd(raw, 0);
}

/* --- descriptors -------------------------------------------------------------------------------------------------- */

/* Items that offer staging and get a region of their own all the same: more of them than a message has room for. */
static void test_more_descriptors_than_a_message_holds(void **state)
{
        static const struct {
                uint32_t flags;
                uint64_t size_bytes;
                bool is_refused;
        } rows[] = {
                { PROTO_ITEM_STAGED | FOLIO_OWN_REGION, 1, true }, { PROTO_ITEM_STAGED | FOLIO_MUTABLE, 1, true },
                { PROTO_ITEM_STAGED | FOLIO_SPARSE, 1, true },     { PROTO_ITEM_STAGED, 64 * MIB, true },
                { 0, 1, true },                                    { PROTO_ITEM_STAGED, 1, false },
                { FOLIO_STREAM | PROTO_ITEM_STAGED, 0, false },
        };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);

        (void)state;
        for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
                Raw *raw = raw_open(foliod);
                ProtoItem items[PROTO_ITEMS_MAX];
                char keys[PROTO_ITEMS_MAX][8];
                ProtoRequest request = { .verb = VERB_CREATE, .namespace_id = raw_namespace(raw, "default"),
                                         .n_items = PROTO_ITEMS_MAX, .items = items };

                for (unsigned j = 0; j < PROTO_ITEMS_MAX; j++) {
                        (void)snprintf(keys[j], sizeof(keys[j]), "%u", j);
                        items[j] = (ProtoItem){ .key = raw_key(keys[j]), .flags = rows[i].flags,
                                                .size_bytes = rows[i].size_bytes };
                }
                assert_true(raw_call(raw, &request));
                assert_int_equal(raw->reply.status, rows[i].is_refused ? STATUS_INVALID : STATUS_OK);
                check_fresh(foliod);
                raw_close(raw);
        }
        alive_check(&before);
        foliod_stop(foliod);
}

/* Replies that carry descriptors are asked for and never read: the daemon keeps few of them. */
static void test_descriptors_never_read(void **state)
{
        enum { N_REQUESTS = 40, N_ITEMS = 100, SPARE = 700 };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        Raw *raw = raw_open(foliod), *other = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        struct folio_client *client = foliod_connect(foliod);
        ProtoRequest ping = { .verb = VERB_PING };

        (void)state;
        for (unsigned i = 0; i < N_REQUESTS; i++) {
                ProtoItem items[N_ITEMS];
                char keys[N_ITEMS][16];
                uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
                ProtoRequest request = { .id = i + 1, .verb = VERB_CREATE, .namespace_id = id, .n_items = N_ITEMS,
                                         .items = items };
                size_t n_bytes;

                for (unsigned j = 0; j < N_ITEMS; j++) {
                        (void)snprintf(keys[j], sizeof(keys[j]), "%u.%u", i, j);
                        items[j] = (ProtoItem){ .key = raw_key(keys[j]), .flags = FOLIO_OWN_REGION, .size_bytes = 1 };
                }
                assert_true(proto_encode_request(&request, bytes, &n_bytes));
                if (channel_send(raw->socket, bytes, n_bytes, NULL, 0) != CHANNEL_OK)
                        break; /* it reads no further */
        }
        for (unsigned i = 0; i < 100; i++)
                assert_true(raw_call(other, &ping));
        assert_true(foliod_count_fds(foliod) < foliod_fact(client, "objects.count") + SPARE);
        folio_client_unref(client);
        raw_close(other);
        raw_close(raw);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * What tells of events is the client's too: whatever it does to it, and to its flags, foliod does not sleep in telling. An
 * eventfd whose counter is full, and that may block, was such a thing.
 */
static void test_watch_that_sleeps(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");
        ProtoRequest watch = { .verb = VERB_WATCH, .namespace_id = id };
        struct folio_client *client = foliod_connect_with(foliod, FOLIO_OPEN_VISIBLE);
        uint64_t full = UINT64_MAX - 1;
        int fd;

        (void)state;
        assert_true(raw_call(raw, &watch));
        assert_int_equal(raw->reply.status, STATUS_OK);
        fd = raw_take_fd(raw, 0);
        assert_int_equal(fcntl(fd, F_SETFL, 0), 0);
        (void)!write(fd, &full, sizeof(full));
        for (unsigned i = 0; i < 20; i++) {
                ASSERT_OK(folio_put(client, "told", "x", 1, NULL));
                ASSERT_OK(folio_delete(client, "told", 0));
        }
        check_fresh(foliod);
        close(fd);
        folio_client_unref(client);
        raw_close(raw);
        foliod_stop(foliod);
}

/* One that a stranger has made can take as long to close as he likes: where the kernel can, it does not come at all. */
static void test_descriptors_of_strangers(void **state)
{
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Raw *raw = raw_connect(foliod);
        int no = 0, fd = memfd_create("strange", MFD_CLOEXEC), pair[2];
        bool is_known;

        (void)state;
        assert_true(fd >= 0);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
        is_known = setsockopt(pair[0], SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) == 0;
        close(pair[0]);
        close(pair[1]);
        if (is_known)
                assert_int_equal(channel_send(raw->socket, "x", 1, &fd, 1), -EPERM);
        raw_close(raw);
        check_fresh(foliod);
        close(fd);
        foliod_stop(foliod);
        if (!is_known)
                skip();
}

static void connect_and_say_nothing(Child *child)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        child_become(NOBODY, NOBODY);
        memcpy(address.sun_path, child->foliod->socket_path, strlen(child->foliod->socket_path) + 1);
        for (unsigned i = 0; i < 400; i++) {
                int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

                CHECK(fd >= 0);
                /* As many as it takes; the backlog may be full of them. */
                (void)connect(fd, (struct sockaddr *)&address, sizeof(address));
        }
        child_say(child, 1);
        (void)child_hear(child);
}

/* Connections that say nothing are more than the daemon has descriptors: an administrator gets in. */
static void test_mute_connections_take_every_descriptor(void **state)
{
        Foliod *foliod;
        Child *child;

        (void)state;
        if (geteuid() != 0)
                skip();
        program_set_world("nofile=256");
        foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        child = child_start(foliod, connect_and_say_nothing, NULL);
        (void)child_hear(child);
        for (unsigned i = 0; i < 3; i++)
                check_fresh(foliod);
        child_say(child, 1);
        child_finish(child);
        check_fresh(foliod);
        foliod_stop(foliod);
}

/* Small objects with a region of their own, until there is no descriptor left for one: others are served all the same. */
static void test_objects_take_every_descriptor(void **state)
{
        ProtoItem item = { .flags = FOLIO_OWN_REGION, .size_bytes = 1 };
        unsigned n_made = 0;
        Foliod *foliod;
        Raw *raw, *other;
        uint32_t id;
        char key[16];

        (void)state;
        program_set_world("nofile=128");
        foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        program_set_world(NULL);
        raw = raw_open(foliod);
        id = raw_namespace(raw, "default");
        for (Status status = STATUS_OK; status == STATUS_OK; n_made++) {
                ProtoItem made;

                (void)snprintf(key, sizeof(key), "%u", n_made);
                item.key = raw_key(key);
                status = raw_item(raw, VERB_CREATE, id, item);
                if (status != STATUS_OK) {
                        assert_int_equal(status, STATUS_LIMIT);
                        break;
                }
                made = by_slot(&raw->reply.items[0]);
                close(raw_take_fd(raw, 0));
                assert_int_equal(raw_item(raw, VERB_SEAL, id, made), STATUS_OK);
                assert_int_equal(raw_item(raw, VERB_REGION, id, made), STATUS_OK);
        }
        assert_true(n_made > 30);
        other = raw_open(foliod);
        assert_int_equal(raw_namespace(other, "default"), id);
        item = (ProtoItem){ .key = raw_key("packed"), .size_bytes = 1 };
        assert_int_equal(raw_item(other, VERB_PUT, id, item), STATUS_OK);
        for (unsigned i = 0; i < n_made; i++) {
                (void)snprintf(key, sizeof(key), "%u", i);
                assert_int_equal(raw_item(other, VERB_DELETE, id, (ProtoItem){ .key = raw_key(key) }), STATUS_OK);
        }
        raw_close(other);
        raw_close(raw);
        foliod_stop(foliod);
}

/* --- the memory of an object being written ------------------------------------------------------------------------ */

static void shrink(int fd)
{
        assert_int_equal(ftruncate(fd, 4096), 0);
}

static void grow(int fd)
{
        assert_int_equal(ftruncate(fd, 16 * (off_t)MIB), 0);
}

static void reserve_behind_the_end(int fd)
{
        assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 8 * (off_t)MIB, 4 * (off_t)MIB), 0);
}

/* A tmpfs file cannot have its size sealed. Nothing is called sealed that ends earlier than it says, or later. */
static void test_tmpfs_file_resized_before_seal(void **state)
{
        static void (*const spoil[])(int fd) = { shrink, grow, reserve_behind_the_end };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);
        ProtoItem made;
        uint32_t id;
        Raw *raw;
        int fd;

        (void)state;
        folio_client_unref(client);
        if (!has_tmpfs) {
                foliod_stop(foliod);
                skip();
        }
        raw = raw_open(foliod);
        id = raw_namespace(raw, "tmpfs");
        for (size_t i = 0; i < sizeof(spoil) / sizeof(spoil[0]); i++) {
                fd = create(raw, id, "spoilt", 4 * MIB, FOLIO_OWN_REGION, &made);
                spoil[i](fd);
                close(fd);
                assert_int_equal(raw_item(raw, VERB_SEAL, id, made), STATUS_STATE);
                assert_int_equal(raw_item(raw, VERB_SEAL, id, made), STATUS_STATE);
                assert_int_equal(raw_item(raw, VERB_REGION, id, made), STATUS_WRITING);
                assert_int_equal(raw_item(raw, VERB_ABORT, id, made), STATUS_OK);
        }
        /* One that is left as it is. */
        fd = create(raw, id, "good", 4 * MIB, FOLIO_OWN_REGION, &made);
        close(fd);
        assert_int_equal(raw_item(raw, VERB_SEAL, id, made), STATUS_OK);
        raw_close(raw);
        foliod_stop(foliod);
}

/* Who may write to a mutable object can neither resize its file nor seal it: others map it and change its size. */
static void test_mutable_file_resized_and_sealed(void **state)
{
        static const int seals[] = { F_SEAL_SEAL, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE };
        static const char *const namespaces[] = { "default", "tmpfs" };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);

        (void)state;
        folio_client_unref(client);
        for (unsigned i = 0; i < (has_tmpfs ? 2u : 1u); i++) {
                Raw *raw = raw_open(foliod);
                uint32_t id = raw_namespace(raw, namespaces[i]);
                ProtoItem made;
                int fd = create(raw, id, "mutable", 4 * MIB, FOLIO_MUTABLE, &made);

                assert_int_equal(ftruncate(fd, 0), -1);
                assert_int_equal(ftruncate(fd, 8 * (off_t)MIB), -1);
                assert_int_equal(fallocate(fd, FALLOC_FL_KEEP_SIZE, 8 * (off_t)MIB, 4096), -1);
                for (size_t j = 0; j < sizeof(seals) / sizeof(seals[0]); j++)
                        assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[j]), -1);
                made.size_bytes = 5000;
                assert_int_equal(raw_item(raw, VERB_TRUNCATE, id, made), STATUS_OK);
                made.size_bytes = 4 * MIB;
                assert_int_equal(raw_item(raw, VERB_TRUNCATE, id, made), STATUS_OK);
                close(fd);
                raw_close(raw);
        }
        foliod_stop(foliod);
}

/* A client puts seals of its own on memory that it may write to. */
static void test_seals_of_a_client(void **state)
{
        static const int seals[] = { F_SEAL_SEAL, F_SEAL_WRITE, F_SEAL_FUTURE_WRITE, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL,
                                     F_SEAL_WRITE | F_SEAL_SEAL };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        Alive before = alive_begin(foliod);
        Raw *raw = raw_open(foliod);
        uint32_t id = raw_namespace(raw, "default");

        (void)state;
        /* What the daemon has opened before it gave it away: nobody but its owner is hurt. */
        assert_true(raw->n_fds == 2);
        (void)fcntl(raw->fds[1], F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
        (void)fcntl(raw->staging_fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
        for (size_t i = 0; i < sizeof(seals) / sizeof(seals[0]); i++) {
                ProtoItem made;
                int fd = create(raw, id, "own", 4 * MIB, FOLIO_OWN_REGION, &made);
                Status status;

                assert_int_equal(fcntl(fd, F_ADD_SEALS, seals[i]), 0);
                close(fd);
                status = raw_item(raw, VERB_SEAL, id, made);
                /* A refusal is told by its name: it is no failure of the daemon's. */
                assert_true(status == STATUS_OK || status == STATUS_STATE);
                assert_int_equal(raw_item(raw, status == STATUS_OK ? VERB_DELETE : VERB_ABORT, id, made), STATUS_OK);
        }
        raw_close(raw);
        alive_check(&before);
        foliod_stop(foliod);
}

/*
 * Who alone has a file open can take a lease on it; who opens it then waits up to 45 s for the lease to be given back.
 * That must not be the daemon: a reply is awaited for less than that.
 */
static void test_lease_on_the_file_of_an_object(void **state)
{
        static const char *const namespaces[] = { "default", "tmpfs" };
        Foliod *foliod = foliod_start("--budget", "64M", ALIVE_NO_POOL, NULL);
        struct folio_client *client = foliod_connect(foliod);
        bool has_tmpfs = alive_add_tmpfs(client);

        (void)state;
        folio_client_unref(client);
        (void)signal(SIGIO, SIG_IGN);
        for (unsigned i = 0; i < (has_tmpfs ? 2u : 1u); i++) {
                Raw *raw = raw_open(foliod), *other = raw_open(foliod);
                uint32_t id = raw_namespace(raw, namespaces[i]);
                ProtoItem made;
                int fd = create(raw, id, "leased", 8192, FOLIO_MUTABLE, &made);

                (void)fcntl(fd, F_SETLEASE, F_WRLCK);
                assert_int_equal(raw_namespace(other, namespaces[i]), id);
                assert_int_equal(raw_item(other, VERB_REGION, id, made), STATUS_OK);
                made.size_bytes = 100;
                assert_int_equal(raw_item(other, VERB_TRUNCATE, id, made), STATUS_OK);
                check_fresh(foliod);
                close(fd);
                raw_close(other);
                raw_close(raw);
        }
        (void)signal(SIGIO, SIG_DFL);
        foliod_stop(foliod);
}

int main(void)
{
        static const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_more_descriptors_than_a_message_holds),
                INTEGRATION_TEST(test_descriptors_never_read),
                INTEGRATION_TEST(test_watch_that_sleeps),
                INTEGRATION_TEST(test_descriptors_of_strangers),
                INTEGRATION_TEST(test_mute_connections_take_every_descriptor),
                INTEGRATION_TEST(test_objects_take_every_descriptor),
                INTEGRATION_TEST(test_tmpfs_file_resized_before_seal),
                INTEGRATION_TEST(test_mutable_file_resized_and_sealed),
                INTEGRATION_TEST(test_seals_of_a_client),
                INTEGRATION_TEST(test_lease_on_the_file_of_an_object),
        };

        return cmocka_run_group_tests_name("attack", tests, NULL, NULL);
}
