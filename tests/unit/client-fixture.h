/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client without a foliod: everything that `struct folio_client` is, but for indexes, on a socket whose other end a thread
 * works by a script: it answers RING with a ring whose other end is the test's, LEASE with regions that have nothing in them,
 * and writes down what was asked for. One namespace, "ns", is open.
 */
#ifndef TESTS_UNIT_CLIENT_FIXTURE_H
#define TESTS_UNIT_CLIENT_FIXTURE_H

#include "tests/unit/client-ring-fixture.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>

#include "client/leases.h"
#include "client/object.h"
#include "client/pipe.h"
#include "client/resume.h"
#include "proto/channel.h"
#include "proto/lease.h"
#include "proto/staging.h"

#define CLIENT_FIXTURE_SPACE_ID 7u
#define CLIENT_FIXTURE_EPOCH 3u
#define CLIENT_FIXTURE_STAGING_BYTES (256 * KIB)
#define CLIENT_FIXTURE_ASKS_MAX 128

typedef struct ClientFixture {
        Client *client;
        Name name;
        Space space;
        RingFixture *far;            /* the ring's other end: the test carries records out */
        int far_fd;                  /* the ring's memory; -1 where it has been sent */
        int socket;                  /* the far one */
        pthread_t thread;
        /* The script: written before the client asks. */
        uint32_t ring_status;
        uint32_t lease_status;
        uint64_t lease_bytes;        /* how large they are; 0: as is liked */
        uint32_t lease_number;       /* of the next one, and from there on */
        uint64_t epoch;
        uint32_t descriptor;         /* 1, but for a daemon that errs; 0: and none comes */
        size_t n_fds;                /* 2, as above */
        /* What came: read by the test when the client has its answer. */
        atomic_uint n_rings;
        atomic_uint n_leases;
        atomic_uint n_asked[_VERB_MAX]; /* of each verb, words that are not answered too */
        uint64_t wanted_bytes[CLIENT_FIXTURE_ASKS_MAX];
        uint64_t liked_bytes[CLIENT_FIXTURE_ASKS_MAX];
        LeaseBook *book;             /* of the last lease, mapped; NULL: none yet */
        size_t book_bytes;
} ClientFixture;

/* cmocka's asserts are for the test's own thread. */
#define FAR_CHECK(condition)                                                                                           \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "far end: %s\n", #condition);                                                  \
                        abort();                                                                                       \
                }                                                                                                      \
        } while (0)

/* A region of @n_bytes, and a book in which nothing is taken. Not one page of the region is ever touched. */
static inline void far_make_lease(ClientFixture *f, uint64_t n_bytes, int fds[2])
{
        size_t book_bytes = sizeof(LeaseBook) + (size_t)(n_bytes / LEASE_UNIT_BYTES + 63) / 64 * 8;

        fds[0] = memfd_create("region", MFD_CLOEXEC);
        fds[1] = memfd_create("book", MFD_CLOEXEC);
        FAR_CHECK(fds[0] >= 0 && fds[1] >= 0);
        FAR_CHECK(ftruncate(fds[0], (off_t)n_bytes) == 0 && ftruncate(fds[1], (off_t)book_bytes) == 0);
        if (f->book)
                (void)munmap(f->book, f->book_bytes);
        f->book_bytes = book_bytes;
        f->book = mmap(NULL, book_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds[1], 0);
        FAR_CHECK(f->book != MAP_FAILED);
        f->book->magic = LEASE_MAGIC;
        f->book->version = LEASE_VERSION;
        f->book->n_freed_max = LEASE_FREED_MAX;
        f->book->region_id = 100 + atomic_load(&f->n_leases);
        f->book->region_bytes = n_bytes;
        f->book->book_bytes = book_bytes;
        f->book->bitmap_offset = sizeof(LeaseBook);
        atomic_store(&f->book->epoch, (uint32_t)f->epoch);
}

static inline void far_reply(ClientFixture *f, const ProtoReply *reply, const int *fds, size_t n_fds)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        FAR_CHECK(proto_encode_reply(reply, bytes, &n_bytes));
        FAR_CHECK(channel_send(f->socket, bytes, n_bytes, fds, n_fds) == CHANNEL_OK);
}

static inline void far_answer_ring(ClientFixture *f, ProtoReply *reply)
{
        int fds[2] = { f->far_fd, f->far->bell_fd };

        atomic_fetch_add(&f->n_rings, 1);
        reply->status = f->ring_status;
        far_reply(f, reply, fds, f->ring_status == STATUS_OK ? 2 : 0);
}

static inline void far_answer_lease(ClientFixture *f, const ProtoRequest *request, ProtoReply *reply)
{
        unsigned i = atomic_load(&f->n_leases);
        ProtoItemReply item = { .status = f->lease_status };
        uint64_t n_bytes = f->lease_bytes ? f->lease_bytes : request->items[0].offset_bytes;
        int fds[2] = { -1, -1 };

        f->wanted_bytes[i % CLIENT_FIXTURE_ASKS_MAX] = request->items[0].size_bytes;
        f->liked_bytes[i % CLIENT_FIXTURE_ASKS_MAX] = request->items[0].offset_bytes;
        reply->n_items = 1;
        reply->items = &item;
        if (f->lease_status == STATUS_OK) {
                far_make_lease(f, n_bytes, fds);
                item.slot = f->lease_number++;
                item.generation = f->epoch;
                item.region_id = f->book->region_id;
                item.region_bytes = n_bytes;
                item.descriptor = f->descriptor;
        }
        atomic_fetch_add(&f->n_leases, 1);
        far_reply(f, reply, fds, f->lease_status == STATUS_OK ? f->n_fds : 0);
        for (size_t k = 0; k < 2; k++)
                if (fds[k] >= 0)
                        close(fds[k]);
}

/* Until the client hangs up. */
static inline void *far_run(void *userdata)
{
        ClientFixture *f = userdata;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        ProtoDecoder *decoder;
        size_t n_bytes;

        FAR_CHECK(proto_decoder_new(&decoder) == 0);
        for (;;) {
                struct pollfd wait = { .fd = f->socket, .events = POLLIN };
                ProtoRequest request;
                ProtoReply reply = { 0 };
                int r;

                FAR_CHECK(poll(&wait, 1, 60000) == 1);
                r = channel_receive(f->socket, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, NULL);
                if (r == CHANNEL_E_AGAIN)
                        continue;
                if (r != CHANNEL_OK)
                        break;
                FAR_CHECK(proto_decode_request(decoder, bytes, n_bytes, &request));
                reply.id = request.id;
                atomic_fetch_add(&f->n_asked[request.verb], 1);
                if (request.verb == VERB_RING)
                        far_answer_ring(f, &reply);
                else if (request.verb == VERB_LEASE)
                        far_answer_lease(f, &request, &reply);
                else if (request.id != 0)
                        far_reply(f, &reply, NULL, 0);
        }
        proto_decoder_free(decoder);
        return NULL;
}

static inline Client *client_fixture_make_client(int socket)
{
        Client *client = calloc(1, sizeof(*client));
        int fd = memfd_create("staging", MFD_CLOEXEC);

        if (!client)
                abort(); /* as an assert, which gcc does not see the end of */
        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, CLIENT_FIXTURE_STAGING_BYTES + STAGING_END_BYTES), 0);
        client->n_references = client->n_users = 1;
        client->timeout_ns = FIXTURE_WAIT_NS;
        client->packed_bytes_max = MIB;
        client->staging_bytes = CLIENT_FIXTURE_STAGING_BYTES;
        list_init(&client->opening_waiters);
        list_init(&client->ready);
        list_init(&client->staging_waiters);
        list_init(&client->gets);
        client->gets_deadline_ns = UINT64_MAX;
        client->epoll_fd = client->timer_fd = -1;
        assert_int_equal(forked_take_mark(&client->fork_mark), 0);
        assert_int_equal(requests_new(socket, client->timeout_ns, &client->requests), 0);
        assert_int_equal(staging_new(fd, CLIENT_FIXTURE_STAGING_BYTES, &client->staging), 0);
        assert_int_equal(maps_new(MIB, 16, &client->maps), 0);
        assert_int_equal(pipe_new(client), 0);
        assert_int_equal(resume_new(client), 0);
        return client;
}

static inline ClientFixture *client_fixture_new(void)
{
        ClientFixture *f = calloc(1, sizeof(*f));
        int sockets[2];

        assert_non_null(f);
        assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, sockets), 0);
        f->socket = sockets[1];
        f->far = calloc(1, sizeof(*f->far));
        assert_non_null(f->far);
        f->far_fd = fixture_make(f->far, RING_RECORDS);
        f->epoch = CLIENT_FIXTURE_EPOCH;
        f->descriptor = 1;
        f->n_fds = 2;
        f->client = client_fixture_make_client(sockets[0]);
        f->space.id = CLIENT_FIXTURE_SPACE_ID;
        snprintf(f->space.name, sizeof(f->space.name), "ns");
        f->name = (Name){ .space = &f->space, .n_bytes = 2, .writers = FOLIO_WRITERS_TRUSTED, .watch_fd = -1 };
        f->client->names = &f->name;
        assert_int_equal(pthread_create(&f->thread, NULL, far_run, f), 0);
        return f;
}

/* The ring, as a client comes by it that has wanted it some times. */
static inline Ring *client_fixture_get_ring(ClientFixture *f)
{
        for (unsigned i = 0; i < 8 && !f->far->ring; i++)
                f->far->ring = pipe_want(f->client);
        assert_non_null(f->far->ring);
        return f->far->ring;
}

static inline void client_fixture_free(ClientFixture *f)
{
        requests_close(f->client->requests, FOLIO_E_CANCELLED);
        assert_int_equal(pthread_join(f->thread, NULL), 0);
        objects_close(f->client);
        leases_free_all(f->client);
        pipe_free(f->client);
        staging_free(f->client->staging);
        maps_free(f->client->maps);
        requests_free(f->client->requests);
        resume_free(f->client);
        free(f->client);
        close(f->socket);
        close(f->far_fd);
        close(f->far->bell_fd);
        (void)munmap(f->far->shared, f->far->n_bytes);
        if (f->book)
                (void)munmap(f->book, f->book_bytes);
        free(f->far);
        free(f);
}

#endif
