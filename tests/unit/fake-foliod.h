/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A foliod of a few verbs on a real socket, with a real index and real pin tables, that ends and comes back as the test
 * has it: the same session, a new one, or another store. A thread works it. One client, one namespace, "test", whose
 * objects are empty, and are there in every life of the same store, in the same slots.
 */
#ifndef TESTS_UNIT_FAKE_FOLIOD_H
#define TESTS_UNIT_FAKE_FOLIOD_H

#include "tests/unit/client-ring-fixture.h"

#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <sys/un.h>

#include "base/cleanup.h"
#include "daemon/store/index.h"
#include "daemon/store/pins.h"
#include "folio/folio.h"
#include "proto/beacon.h"
#include "proto/channel.h"
#include "proto/codec.h"
#include "proto/staging.h"

enum { FAKE_SLOTS = 4096, FAKE_EVENTS = 64, FAKE_NAMES_MAX = 600, FAKE_STAGING_BYTES = 1 << 20 };

typedef enum FakeEnd {
        FAKE_STAYS,
        FAKE_ENDS_BEFORE,            /* it has read the message, and ends */
        FAKE_ENDS_AFTER,             /* it has done all of it, and ends before it answers */
        FAKE_ENDS_WITHIN,            /* it has done `n_before_end` items */
} FakeEnd;

typedef struct FakeFoliod {
        char directory[32];
        char path[64];
        pthread_mutex_t lock;
        pthread_t thread;
        bool is_stopping;
        unsigned n_lives;
        int wake_fd;
        int listen_fd, socket;       /* -1 */
        /* What outlives it. */
        Backend *backend;
        uint64_t instance, hash_seed;
        uint64_t generation;
        uint64_t token;
        uint32_t session;
        unsigned n_names;
        char names[FAKE_NAMES_MAX][24];
        uint32_t slots[FAKE_NAMES_MAX];
        uint64_t generations[FAKE_NAMES_MAX];
        LayoutEvent events[FAKE_EVENTS * 4];
        uint64_t n_events;
        Pins *pins;
        int staging_fd;
        int event_fd;                /* of its watch; -1 */
        RingFixture *ring;           /* NULL: none was asked for */
        int ring_fd;
        /* What does not. */
        Index *index;
        Beacon *beacon;
        int beacon_fd;
        /* The script. */
        bool has_no_beacon;
        FakeEnd end;
        ProtoVerb end_verb;
        size_t n_before_end;
        bool holds_back;             /* in later lives it does not read yet */
        uint32_t hello_status;       /* not 0: it will not have us */
        unsigned n_hang_ups;         /* on so many hellos it hangs up */
        /* What came. */
        atomic_uint n_hellos;
        atomic_uint n_messages[32];
        uint64_t resume;             /* of the last hello */
} FakeFoliod;

#define FAKE_CHECK(condition)                                                                                          \
        do {                                                                                                           \
                if (!(condition)) {                                                                                    \
                        fprintf(stderr, "fake: %d: %s\n", __LINE__, #condition);                                       \
                        abort();                                                                                       \
                }                                                                                                      \
        } while (0)

static inline int fake_dup(int fd)
{
        int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3);

        FAKE_CHECK(copy >= 0);
        return copy;
}

/* --- the store: with the lock ------------------------------------------------------------------------------------------ */

static inline void fake_event(FakeFoliod *f, uint32_t type, uint32_t slot, uint64_t origin)
{
        LayoutEvent *event = &f->events[f->n_events++];
        LayoutSlot copy;

        FAKE_CHECK(f->n_events < FAKE_EVENTS * 4);
        index_get(f->index, slot, &copy);
        memset(event, 0, sizeof(*event));
        event->type = type;
        event->slot = slot;
        event->generation = copy.generation;
        event->origin = origin;
        event->key_bytes = copy.key_bytes;
        memcpy(event->key, copy.key, copy.key_bytes);
        index_event_begin(f->index, (enum folio_event_type)type, slot, 1, origin);
        index_event_end(f->index);
        (void)index_flush(f->index);
        if (f->event_fd >= 0) {
                const struct itimerspec at_once = { .it_value = { .tv_nsec = 1 } };

                (void)timerfd_settime(f->event_fd, 0, &at_once, NULL);
        }
}

static inline void fake_add_locked(FakeFoliod *f, const char *name, uint64_t origin)
{
        LayoutSlot record;
        Key key = { name, strlen(name) };
        unsigned i = f->n_names++;

        FAKE_CHECK(i < FAKE_NAMES_MAX && key.n_bytes < sizeof(f->names[i]));
        memcpy(f->names[i], name, key.n_bytes + 1);
        FAKE_CHECK(index_reserve_slot(f->index, key, (Key){ 0 }, (Key){ 0 }, &f->slots[i], &record) == 0);
        record.state = LAYOUT_SLOT_SEALED;
        record.placement = FOLIO_PLACEMENT_PACKED;
        record.generation = f->generations[i] = ++f->generation;
        index_write(f->index, f->slots[i], &record);
        index_insert(f->index, f->slots[i]);
        fake_event(f, FOLIO_EVENT_SEALED, f->slots[i], origin);
}

static inline void fake_make_index(FakeFoliod *f)
{
        IndexConfig config = {
                .backend = f->backend, .name = "test", .namespace_id = 7, .instance = f->instance, .generation = 1,
                .hash_seed = f->hash_seed, .n_slots_max = FAKE_SLOTS, .n_events = FAKE_EVENTS,
        };

        FAKE_CHECK(index_new(&config, &f->index) == 0);
        index_adopt_begin(f->index, f->n_names);
        for (unsigned i = 0; i < f->n_names; i++) {
                Key key = { f->names[i], strlen(f->names[i]) };
                LayoutSlot record = {
                        .state = LAYOUT_SLOT_SEALED, .key_bytes = (uint8_t)key.n_bytes, .placement = FOLIO_PLACEMENT_PACKED,
                        .generation = f->generations[i], .hash = index_hash(f->index, key),
                };

                memcpy(record.key, key.bytes, key.n_bytes);
                FAKE_CHECK(index_adopt(f->index, f->slots[i], &record, key, (Key){ 0 }, (Key){ 0 }, NULL, true) == 0);
        }
        index_adopt_end(f->index);
        for (uint64_t i = f->n_events > FAKE_EVENTS ? f->n_events - FAKE_EVENTS : 0; i < f->n_events; i++)
                index_adopt_event(f->index, i + 1, &f->events[i]);
        index_adopt_event_sequence(f->index, f->n_events);
}

static inline void fake_make_beacon(FakeFoliod *f)
{
        f->beacon_fd = memfd_create("beacon", MFD_CLOEXEC);
        FAKE_CHECK(f->beacon_fd >= 0 && ftruncate(f->beacon_fd, BEACON_BYTES) == 0);
        f->beacon = mmap(NULL, BEACON_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, f->beacon_fd, 0);
        FAKE_CHECK(f->beacon != MAP_FAILED);
        f->beacon->magic = BEACON_MAGIC;
        f->beacon->version = BEACON_VERSION;
        f->beacon->instance = f->instance;
}

static inline void fake_listen(FakeFoliod *f)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", f->path);
        (void)unlink(f->path);
        f->listen_fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        FAKE_CHECK(f->listen_fd >= 0);
        FAKE_CHECK(bind(f->listen_fd, (struct sockaddr *)&address, sizeof(address)) == 0 && listen(f->listen_fd, 8) == 0);
}

/* A session of its own. */
static inline void fake_make_session(FakeFoliod *f)
{
        if (f->pins)
                pins_free(f->pins);
        FAKE_CHECK(pins_new(f->backend, FAKE_SLOTS, &f->pins) == 0);
        f->staging_fd = close_fd(f->staging_fd);
        f->staging_fd = memfd_create("staging", MFD_CLOEXEC);
        FAKE_CHECK(f->staging_fd >= 0 && ftruncate(f->staging_fd, FAKE_STAGING_BYTES + STAGING_END_BYTES) == 0);
        f->event_fd = close_fd(f->event_fd);
        f->token = f->token * 31 + 7;
        f->session++;
}

static inline void fake_end_locked(FakeFoliod *f, bool has_listener)
{
        if (!f->index)
                return;
        atomic_fetch_or(&f->beacon->owner, BEACON_OWNER_DIED);
        f->socket = close_fd(f->socket);
        if (!has_listener)
                f->listen_fd = close_fd(f->listen_fd);
        (void)munmap(f->beacon, BEACON_BYTES);
        f->beacon_fd = close_fd(f->beacon_fd);
        index_free(f->index);
        f->index = NULL;
}

/* --- its verbs: with the lock ------------------------------------------------------------------------------------------ */

static inline void fake_reply(FakeFoliod *f, const ProtoReply *reply, const int *fds, size_t n_fds)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        FAKE_CHECK(proto_encode_reply(reply, bytes, &n_bytes));
        (void)channel_send(f->socket, bytes, n_bytes, fds, n_fds);
}

static inline void fake_hello(FakeFoliod *f, const ProtoRequest *request, ProtoReply *reply)
{
        int fds[2];
        size_t n = 0;

        atomic_fetch_add(&f->n_hellos, 1);
        f->resume = request->resume;
        reply->status = f->hello_status;
        reply->has_welcome = true;
        reply->version = PROTO_VERSION;
        reply->instance = f->instance;
        reply->staging_bytes = FAKE_STAGING_BYTES;
        reply->packed_bytes_max = 65536;
        reply->is_resumed = f->hello_status == 0 && request->resume != 0 && request->resume == f->token;
        if (!reply->is_resumed) {
                fake_make_session(f);
                fds[n++] = f->staging_fd;
        }
        reply->session_token = f->token;
        reply->session_number = f->session;
        if (!f->has_no_beacon)
                fds[n++] = f->beacon_fd;
        fake_reply(f, reply, fds, f->hello_status ? 0 : n);
}

static inline void fake_open(FakeFoliod *f, ProtoReply *reply)
{
        ProtoNamespace ns = { .name = "test", .id = 7, .rights = FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE };
        int fds[2] = { index_region(f->index)->fd_read_only, pins_fd(f->pins) };

        reply->n_namespaces = 1;
        reply->namespaces = &ns;
        fake_reply(f, reply, fds, 2);
}

static inline bool fake_find(FakeFoliod *f, Key key, unsigned *ret)
{
        for (*ret = 0; *ret < f->n_names; ++*ret)
                if (strlen(f->names[*ret]) == key.n_bytes && memcmp(f->names[*ret], key.bytes, key.n_bytes) == 0)
                        return true;
        return false;
}

static inline void fake_put(FakeFoliod *f, const ProtoRequest *request, ProtoReply *reply, size_t n_max)
{
        ProtoItemReply items[PROTO_ITEMS_MAX] = { 0 };

        for (size_t i = 0; i < MIN(request->n_items, n_max); i++) {
                char name[24];
                unsigned at;

                if (fake_find(f, request->items[i].key, &at)) {
                        items[i].status = STATUS_EXISTS;
                        continue;
                }
                snprintf(name, sizeof(name), "%.*s", (int)request->items[i].key.n_bytes, request->items[i].key.bytes);
                fake_add_locked(f, name, layout_origin_of_message(f->session, request->id, (uint32_t)i));
                items[i].generation = f->generation;
        }
        reply->n_items = request->n_items;
        reply->items = items;
        if (n_max >= request->n_items && f->end != FAKE_ENDS_AFTER)
                fake_reply(f, reply, NULL, 0);
        reply->items = NULL;
}

static inline void fake_ring(FakeFoliod *f, ProtoReply *reply)
{
        int fds[2];

        if (!f->ring) {
                f->ring = calloc(1, sizeof(*f->ring));
                FAKE_CHECK(f->ring);
                f->ring_fd = fixture_make(f->ring, RING_RECORDS);
        }
        fds[0] = f->ring_fd;
        fds[1] = f->ring->bell_fd;
        fake_reply(f, reply, fds, 2);
}

static inline void fake_answer(FakeFoliod *f, const ProtoRequest *request)
{
        ProtoReply reply = { .id = request->id };
        bool ends = f->end != FAKE_STAYS && f->end_verb == request->verb;

        atomic_fetch_add(&f->n_messages[request->verb], 1);
        if (request->verb == VERB_HELLO && f->n_hang_ups > 0) {
                f->n_hang_ups--;
                f->socket = close_fd(f->socket);
                return;
        }
        if (ends && f->end == FAKE_ENDS_BEFORE) {
                f->end = FAKE_STAYS;
                fake_end_locked(f, false);
                return;
        }
        if (request->verb == VERB_HELLO) {
                fake_hello(f, request, &reply);
        } else if (request->verb == VERB_NAMESPACE_OPEN) {
                fake_open(f, &reply);
        } else if (request->verb == VERB_PUT) {
                fake_put(f, request, &reply, ends && f->end == FAKE_ENDS_WITHIN ? f->n_before_end : SIZE_MAX);
        } else if (request->verb == VERB_RING) {
                fake_ring(f, &reply);
        } else if (request->verb == VERB_WATCH) {
                if (f->event_fd < 0)
                        f->event_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
                fake_reply(f, &reply, &f->event_fd, 1);
        } else if (request->id != 0 && !(ends && f->end == FAKE_ENDS_AFTER)) {
                fake_reply(f, &reply, NULL, 0);
        }
        if (ends) {
                f->end = FAKE_STAYS;
                fake_end_locked(f, false);
        }
}

/* --- the thread -------------------------------------------------------------------------------------------------------- */

static inline void fake_read(FakeFoliod *f, ProtoDecoder *decoder)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        ProtoRequest request;
        size_t n_bytes;
        int r = channel_receive(f->socket, bytes, sizeof(bytes), &n_bytes, NULL, 0, NULL, NULL);

        if (r == CHANNEL_E_AGAIN)
                return;
        if (r != CHANNEL_OK) {
                f->socket = close_fd(f->socket);
                return;
        }
        FAKE_CHECK(proto_decode_request(decoder, bytes, n_bytes, &request));
        fake_answer(f, &request);
}

static inline void *fake_run(void *userdata)
{
        FakeFoliod *f = userdata;
        ProtoDecoder *decoder;
        bool is_over = false;

        FAKE_CHECK(proto_decoder_new(&decoder) == 0);
        while (!is_over) {
                struct pollfd fds[3] = { { .fd = f->wake_fd, .events = POLLIN }, { .events = POLLIN }, { .events = POLLIN } };
                uint64_t count;

                (void)pthread_mutex_lock(&f->lock);
                fds[1].fd = f->index && f->socket < 0 ? f->listen_fd : -1;
                fds[2].fd = f->holds_back && f->index && f->n_lives > 1 ? -1 : f->socket;
                (void)pthread_mutex_unlock(&f->lock);
                FAKE_CHECK(poll(fds, 3, 60000) > 0);
                (void)pthread_mutex_lock(&f->lock);
                (void)!read(f->wake_fd, &count, sizeof(count));
                is_over = f->is_stopping;
                if (fds[2].revents && f->socket == fds[2].fd && f->index)
                        fake_read(f, decoder);
                else if (fds[1].revents && f->index && f->socket < 0)
                        f->socket = accept4(f->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
                (void)pthread_mutex_unlock(&f->lock);
        }
        proto_decoder_free(decoder);
        return NULL;
}

static inline void fake_wake(FakeFoliod *f)
{
        uint64_t one = 1;

        FAKE_CHECK(write(f->wake_fd, &one, sizeof(one)) == sizeof(one));
}

/* --- what a test calls -------------------------------------------------------------------------------------------------- */

/* With @has_listener the socket goes on listening, as one does that somebody keeps. */
static inline void fake_end(FakeFoliod *f, bool has_listener)
{
        (void)pthread_mutex_lock(&f->lock);
        fake_end_locked(f, has_listener);
        (void)pthread_mutex_unlock(&f->lock);
        fake_wake(f);
}

enum { FAKE_RESUMES, FAKE_NEW_SESSION, FAKE_OTHER_STORE };

/* The next one, which may have some objects more. */
static inline void fake_come_back(FakeFoliod *f, int how, const char *more)
{
        (void)pthread_mutex_lock(&f->lock);
        FAKE_CHECK(!f->index);
        if (how != FAKE_RESUMES)
                f->token++;
        if (how == FAKE_OTHER_STORE) {
                f->n_names = 0;
                f->n_events = 0;
                f->instance++;
                f->hash_seed++;
        }
        f->n_lives++;
        fake_make_index(f);
        fake_make_beacon(f);
        if (more)
                fake_add_locked(f, more, 0);
        if (f->listen_fd < 0)
                fake_listen(f);
        (void)pthread_mutex_unlock(&f->lock);
        fake_wake(f);
}

/* There is a next one, which does not listen yet, and has all that it kept for the client. */
static inline void fake_take_over(FakeFoliod *f)
{
        uint64_t taken_by = 4711;
        off_t offset = FAKE_STAGING_BYTES + (off_t)offsetof(StagingEnd, taken_by);

        FAKE_CHECK(pwrite(f->staging_fd, &taken_by, sizeof(taken_by), offset) == sizeof(taken_by));
}

static inline void fake_add(FakeFoliod *f, const char *name)
{
        (void)pthread_mutex_lock(&f->lock);
        fake_add_locked(f, name, 0);
        (void)pthread_mutex_unlock(&f->lock);
}

static inline FakeFoliod *fake_new(void)
{
        FakeFoliod *f = calloc(1, sizeof(*f));
        const char *failed;

        assert_non_null(f);
        snprintf(f->directory, sizeof(f->directory), "/tmp/fake-foliod-XXXXXX");
        assert_non_null(mkdtemp(f->directory));
        snprintf(f->path, sizeof(f->path), "%s/socket", f->directory);
        (void)pthread_mutex_init(&f->lock, NULL);
        f->listen_fd = f->socket = f->staging_fd = f->event_fd = f->beacon_fd = -1;
        f->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        assert_int_equal(backend_memfd_new(FOLIO_HUGE_NEVER, &f->backend, &failed), 0);
        f->instance = 99;
        f->hash_seed = 12345;
        f->token = 1234567;
        f->session = 3;
        fake_come_back(f, FAKE_RESUMES, "first");
        assert_int_equal(pthread_create(&f->thread, NULL, fake_run, f), 0);
        return f;
}

static inline void fake_free(FakeFoliod *f)
{
        fake_end(f, false);
        (void)pthread_mutex_lock(&f->lock);
        f->is_stopping = true;
        (void)pthread_mutex_unlock(&f->lock);
        fake_wake(f);
        assert_int_equal(pthread_join(f->thread, NULL), 0);
        (void)close_fd(f->wake_fd);
        (void)close_fd(f->staging_fd);
        (void)close_fd(f->event_fd);
        (void)close_fd(f->listen_fd);
        if (f->pins)
                pins_free(f->pins);
        backend_free(f->backend);
        if (f->ring) {
                (void)munmap(f->ring->shared, f->ring->n_bytes);
                (void)close_fd(f->ring->bell_fd);
                (void)close_fd(f->ring_fd);
                free(f->ring);
        }
        (void)unlink(f->path);
        (void)rmdir(f->directory);
        (void)pthread_mutex_destroy(&f->lock);
        free(f);
}

static inline struct folio_client *fake_connect(const FakeFoliod *f)
{
        struct folio_open_options options = { .struct_bytes = sizeof(options), .address = f->path, .timeout_ms = 20000 };
        struct folio_client *client;

        assert_int_equal(folio_client_open(&options, &client), 0);
        return client;
}

static inline unsigned fake_count_pins(FakeFoliod *f, const char *name)
{
        unsigned i, n;

        (void)pthread_mutex_lock(&f->lock);
        FAKE_CHECK(fake_find(f, (Key){ name, strlen(name) }, &i));
        n = pins_count(f->pins, f->slots[i]);
        (void)pthread_mutex_unlock(&f->lock);
        return n;
}

#endif
