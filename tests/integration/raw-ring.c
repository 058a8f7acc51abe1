/* SPDX-License-Identifier: Apache-2.0 */
/* As raw.c: what goes wrong on our own side is a failure of the test. */
#include "tests/integration/raw-ring.h"

enum { LOOKS_MAX = 10000 };

RawRing *raw_ring_open(Raw *raw)
{
        ProtoRequest request = { .verb = VERB_RING };
        RawRing *ring = calloc(1, sizeof(*ring));
        uint8_t *memory;
        int fd;

        CHECK(ring);
        CHECK(raw_call(raw, &request));
        CHECK(raw->reply.status == STATUS_OK && raw->n_fds == 2);
        fd = raw_take_fd(raw, 0);
        memory = mmap(NULL, RING_REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(memory != MAP_FAILED);
        close(fd);
        ring->raw = raw;
        ring->bell_fd = raw_take_fd(raw, 1);
        ring->header = (RingHeader *)(void *)memory;
        CHECK(ring->header->magic == RING_MAGIC && ring->header->version == RING_VERSION);
        CHECK(ring->header->n_records == RING_RECORDS && ring->header->region_bytes == RING_REGION_BYTES);
        ring->records = (RingRecord *)(void *)(memory + ring->header->records_offset);
        ring->results = (RingResult *)(void *)(memory + ring->header->results_offset);
        return ring;
}

void raw_ring_close(RawRing *ring)
{
        if (!ring)
                return;
        (void)munmap(ring->header, RING_REGION_BYTES);
        close(ring->bell_fd);
        free(ring);
}

static void ring_bell(RawRing *ring)
{
        static const uint64_t one = 1;

        CHECK(write(ring->bell_fd, &one, sizeof(one)) == sizeof(one) || errno == EAGAIN);
}

uint64_t raw_ring_submit(RawRing *ring, RingRecord record)
{
        uint64_t number = ring->tail++;

        ring->records[number % RING_RECORDS] = record;
        if (ring_publish_tail(ring->header, ring->tail))
                ring_bell(ring);
        return number;
}

void raw_ring_publish(RawRing *ring, uint64_t tail)
{
        (void)ring_publish_tail(ring->header, tail);
        ring_bell(ring);
}

static bool has_hung_up(const Raw *raw)
{
        struct pollfd ready = { .fd = raw->socket, .events = POLLIN };

        return poll(&ready, 1, 0) > 0 && ready.revents & (POLLHUP | POLLERR);
}

bool raw_ring_await(RawRing *ring, uint64_t tail)
{
        for (unsigned i = 0; i < LOOKS_MAX; i++) {
                if (atomic_load(&ring->header->head) >= tail)
                        return true;
                if (has_hung_up(ring->raw))
                        return atomic_load(&ring->header->head) >= tail;
                /* At first it may come at once. */
                if (i > 100)
                        harness_pause();
        }
        CHECK(!"the daemon neither carries the record out nor hangs up");
        return false;
}

uint32_t raw_ring_call(RawRing *ring, RingRecord record)
{
        const RingResult *result;
        uint64_t number;

        record.flags |= RING_FLAG_RESULT;
        number = raw_ring_submit(ring, record);
        if (!raw_ring_await(ring, number + 1))
                return _STATUS_MAX;
        result = &ring->results[number % RING_RECORDS];
        CHECK(atomic_load(&result->sequence) == (uint32_t)(number + 1));
        return result->status;
}

Status raw_lease_open(Raw *raw, uint32_t namespace_id, uint64_t size_bytes, uint64_t wanted_bytes, RawLease *ret)
{
        ProtoItem item = { .size_bytes = size_bytes, .offset_bytes = wanted_bytes };
        Status status = raw_item(raw, VERB_LEASE, namespace_id, item);
        const ProtoItemReply *reply = raw->reply.items;
        void *data, *book;

        if (status != STATUS_OK)
                return status;
        CHECK(reply->descriptor > 0 && reply->descriptor < raw->n_fds);
        *ret = (RawLease){
                .number = reply->slot,
                .epoch = (uint32_t)reply->generation,
                .region_id = reply->region_id,
                .region_bytes = reply->region_bytes,
                .fd = raw_take_fd(raw, reply->descriptor - 1),
                .book_fd = raw_take_fd(raw, reply->descriptor),
        };
        CHECK(ret->number < RING_LEASES_MAX && ret->region_bytes >= size_bytes);
        data = mmap(NULL, ret->region_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ret->fd, 0);
        CHECK(data != MAP_FAILED);
        book = mmap(NULL, sizeof(LeaseBook), PROT_READ, MAP_SHARED, ret->book_fd, 0);
        CHECK(book != MAP_FAILED);
        ret->data = data;
        ret->book = book;
        CHECK(ret->book->magic == LEASE_MAGIC && ret->book->region_id == ret->region_id);
        return STATUS_OK;
}

void raw_lease_close(RawLease *lease)
{
        (void)munmap(lease->data, lease->region_bytes);
        (void)munmap((void *)(uintptr_t)lease->book, sizeof(LeaseBook));
        close(lease->fd);
        close(lease->book_fd);
}

RingRecord raw_record(RingVerb verb, uint32_t namespace_id, const char *key)
{
        RingRecord record = { .verb = (uint8_t)verb, .namespace_id = namespace_id };

        if (key) {
                CHECK(strlen(key) <= RING_KEY_BYTES_MAX);
                record.key_bytes = (uint8_t)strlen(key);
                memcpy(record.key, key, strlen(key));
        }
        return record;
}

RawHolder raw_holder_open(const Foliod *foliod)
{
        RawHolder holder = { .raw = raw_open(foliod) };

        holder.trusted_id = raw_namespace(holder.raw, "trusted");
        holder.default_id = raw_namespace(holder.raw, "default");
        holder.ring = raw_ring_open(holder.raw);
        CHECK(raw_lease_open(holder.raw, holder.trusted_id, 64 * 1024, 2 << 20, &holder.lease) == STATUS_OK);
        return holder;
}

void raw_holder_close(RawHolder *holder)
{
        raw_lease_close(&holder->lease);
        raw_ring_close(holder->ring);
        raw_close(holder->raw);
}

RingRecord raw_holder_put(const RawHolder *holder, const char *key, uint64_t offset_bytes, uint64_t size_bytes)
{
        RingRecord record = raw_record(RING_VERB_PUT, holder->trusted_id, key);

        record.region_id = holder->lease.region_id;
        record.offset_bytes = offset_bytes;
        record.size_bytes = size_bytes;
        return record;
}
