/* SPDX-License-Identifier: Apache-2.0 */
/* Clients with a ring, as far as the store knows of one, and what they do with leases. */
#ifndef TESTS_UNIT_LEASE_FIXTURE_H
#define TESTS_UNIT_LEASE_FIXTURE_H

#include "store-fixture.h"

#include "proto/lease.h"
#include "proto/ring.h"

#define N_IDLE_TICKS 6

/* A client with a ring, as far as the store knows of it. */
typedef struct Writer {
        Client c;
        RingHeader *ring;
        bool is_drained;
} Writer;

static inline bool is_drained(void *userdata, uint64_t region_id)
{
        return ((Writer *)userdata)->is_drained;
}

static inline void writer_open(Fixture *f, Writer *w, uid_t uid, const char *name)
{
        client_open(f, &w->c, uid, name);
        w->ring = calloc(1, sizeof(*w->ring));
        assert_non_null(w->ring);
        w->is_drained = true;
        session_set_ring(w->c.session, w->ring, is_drained, w);
}

static inline void writer_close(Writer *w)
{
        client_close(&w->c);
        free(w->ring);
        w->ring = NULL;
}

/* *@op has region, number, epoch and both descriptors. */
static inline Status ask(Client *c, Op *op, uint64_t size_bytes, uint64_t region_bytes)
{
        *op = (Op){ .item = { .size_bytes = size_bytes, .offset_bytes = region_bytes } };
        return op_run(c, op, VERB_LEASE);
}

static inline void lease_clear(Op *op)
{
        op_clear(op);
        if (op->op.book_fd >= 0)
                close(op->op.book_fd);
        op->op.book_fd = -1;
}

static inline Status publish(Client *c, ProtoVerb verb, const char *key, const Op *lease, uint64_t offset,
                             uint64_t n_bytes, uint32_t flags, Op *op)
{
        *op = (Op){ .item = { .key = key_of(key), .size_bytes = n_bytes, .offset_bytes = offset, .flags = flags },
                    .op = { .leased_region_id = lease->op.region_id } };
        return op_run(c, op, verb);
}

static inline Status put(Client *c, const char *key, const Op *lease, uint64_t offset, uint64_t n_bytes)
{
        Op op;
        Status status = publish(c, VERB_PUT, key, lease, offset, n_bytes, 0, &op);

        op_clear(&op);
        return status;
}

static inline void write_at(const Op *lease, uint64_t offset, const char *text)
{
        assert_int_equal(pwrite(lease->op.fd, text, strlen(text), (off_t)offset), strlen(text));
}

static inline const LeaseBook *map_book(const Op *lease)
{
        void *book = mmap(NULL, 16384, PROT_READ, MAP_SHARED, lease->op.book_fd, 0);

        assert_ptr_not_equal(book, MAP_FAILED);
        return book;
}

static inline bool is_taken(const LeaseBook *book, uint64_t unit)
{
        const uint64_t *words = (const uint64_t *)(const void *)((const uint8_t *)book + book->bitmap_offset);

        return words[unit / 64] >> unit % 64 & 1;
}

static inline void ticks(Fixture *f, unsigned n)
{
        for (unsigned i = 0; i < n; i++)
                store_tick(f->store);
        fixture_settle(f);
}

static inline void assert_leases(Fixture *f, uint64_t n_held, uint64_t n_orphans, uint64_t n_bytes)
{
        assert_int_equal(fixture_fact(f, "leases.count"), n_held);
        assert_int_equal(fixture_fact(f, "leases.orphans"), n_orphans);
        assert_int_equal(fixture_fact(f, "leases.bytes"), n_bytes);
}

#endif
