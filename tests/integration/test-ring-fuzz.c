/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Records of which nothing is as it should be, or all but a field, in any order, from connections that have leases in
 * two namespaces and take more, while another client works, namespaces go, leases are recalled and connections end in
 * the middle. foliod goes on, others are served, and nothing is left.
 */
#include "tests/integration/raw-ring.h"
#include "tests/integration/spaces.h"

#define MIB (UINT64_C(1) << 20)
#define FUZZ_LEASES 3u

typedef struct Fuzzer {
        Raw *raw;
        RawRing *ring;
        uint32_t ids[3];             /* default, trusted, and one that comes and goes */
        RawLease leases[FUZZ_LEASES];
        unsigned n_leases;
        uint64_t *random;
} Fuzzer;

static uint64_t draw(uint64_t *random, uint64_t n)
{
        *random = *random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        return (*random >> 33) % n;
}

static uint64_t draw_bits(uint64_t *random)
{
        uint64_t high = draw(random, UINT64_C(1) << 31), low = draw(random, UINT64_C(1) << 31);

        return high << 40 ^ low << 13 ^ high;
}

/* Edges are where things break. */
static uint64_t draw_number(uint64_t *random, uint64_t edge)
{
        static const uint64_t numbers[] = { 0, 1, 63, 64, 65, 4096, UINT32_MAX, UINT64_C(1) << 32, UINT64_C(1) << 37,
                                            (UINT64_C(1) << 37) + 1, UINT64_C(1) << 63, UINT64_MAX - 63, UINT64_MAX };
        uint64_t what = draw(random, 8);

        if (what == 0)
                return numbers[draw(random, sizeof(numbers) / sizeof(numbers[0]))];
        if (what == 1)
                return edge - 64 + draw(random, 129);
        if (what == 2)
                return draw_bits(random);
        return draw(random, what == 3 ? 200000 : 2000);
}

static uint64_t draw_expiry(uint64_t *random)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_REALTIME, &now);
        switch (draw(random, 8)) {
        case 0:
                return draw_bits(random);
        case 1:
                return 1;
        case 2:
                return ((uint64_t)now.tv_sec * 1000 + draw(random, 2000)) * 1000000;
        }
        return 0;
}

static RingRecord draw_record(Fuzzer *fuzzer)
{
        uint64_t *random = fuzzer->random;
        const RawLease *lease = fuzzer->n_leases > 0 ? &fuzzer->leases[draw(random, fuzzer->n_leases)] : NULL;
        RingRecord record = { .verb = (uint8_t)(1 + draw(random, _RING_VERB_MAX - 1)) };
        bool has_key = record.verb == RING_VERB_PUT || record.verb == RING_VERB_CREATE ||
                       (record.verb != RING_VERB_SEAL && record.verb != RING_VERB_ABORT && draw(random, 4));
        bool has_place = record.verb <= RING_VERB_SEAL && lease && draw(random, 4);

        record.namespace_id = fuzzer->ids[has_place ? 1 : draw(random, 3)];
        if (has_key) {
                record.key_bytes = (uint8_t)(1 + draw(random, 2));
                record.key[0] = (uint8_t)('a' + draw(random, 8));
                record.key[1] = (uint8_t)('a' + draw(random, 3));
        }
        if (record.verb == RING_VERB_CREATE || record.verb == RING_VERB_SEAL || record.verb == RING_VERB_ABORT)
                record.slot = (uint32_t)draw(random, 6);
        if (!has_key && record.verb >= RING_VERB_DELETE) {
                record.slot = (uint32_t)draw(random, 40);
                record.generation = draw(random, 200);
        }
        if (has_place) {
                record.region_id = lease->region_id;
                record.offset_bytes = draw(random, 3) ? draw(random, 2000) * 64 :
                                                        draw_number(random, lease->region_bytes);
        }
        if (record.verb == RING_VERB_PUT || record.verb == RING_VERB_CREATE || record.verb == RING_VERB_TRUNCATE)
                record.size_bytes = draw_number(random, has_place ? lease->region_bytes : fuzzer->raw->packed_bytes_max);
        if (record.verb == RING_VERB_PUT || record.verb == RING_VERB_CREATE) {
                record.flags = draw(random, 3) ? FOLIO_REPLACE : 0;
                record.lifetime = (uint8_t)draw(random, 3);
                record.expires_ns = draw_expiry(random);
        }
        record.flags |= draw(random, 2) ? RING_FLAG_RESULT : 0;
        return record;
}

/* Mostly only one field is wrong, so that what is behind the first check is reached too. */
static void spoil(RingRecord *record, uint64_t *random)
{
        uint8_t *bytes = (uint8_t *)record;

        switch (draw(random, 40)) {
        case 0: /* a whole one; the verb and what is reserved as they must be, or the connection ends at once */
                for (size_t i = 0; i < sizeof(*record); i++)
                        bytes[i] = (uint8_t)draw(random, 256);
                record->verb = (uint8_t)(1 + draw(random, _RING_VERB_MAX - 1));
                record->reserved = 0;
                record->flags &= FOLIO_REPLACE | RING_FLAG_RESULT;
                break;
        case 1:
                bytes[8 + draw(random, sizeof(*record) - 8)] = (uint8_t)draw(random, 256);
                break;
        case 2:
                record->slot = draw(random, 2) ? UINT32_MAX : RING_MADE_MAX - 1 + (uint32_t)draw(random, 3);
                break;
        case 3:
                record->region_id = draw(random, 2) ? draw(random, 100) : UINT64_MAX;
                break;
        case 4:
                record->namespace_id = (uint32_t)draw(random, 2) - 1;
                break;
        case 5:
                record->key_bytes = (uint8_t)(RING_KEY_BYTES_MAX - 1 + draw(random, 3));
                memset(record->key, 'k', sizeof(record->key));
                break;
        }
}

static void take_lease(Fuzzer *fuzzer, uint64_t size_bytes, uint64_t liked_bytes)
{
        RawLease lease;

        if (raw_lease_open(fuzzer->raw, fuzzer->ids[1], size_bytes, liked_bytes, &lease) != STATUS_OK)
                return;
        if (fuzzer->n_leases < FUZZ_LEASES)
                fuzzer->leases[fuzzer->n_leases++] = lease;
        else
                raw_lease_close(&lease);
}

static Fuzzer fuzzer_begin(const Foliod *foliod, uint64_t *random)
{
        Fuzzer fuzzer = { .raw = raw_open(foliod), .random = random };

        fuzzer.ids[0] = raw_namespace(fuzzer.raw, "default");
        fuzzer.ids[1] = raw_namespace(fuzzer.raw, "trusted");
        fuzzer.ids[2] = raw_namespace(fuzzer.raw, "passing");
        fuzzer.ring = raw_ring_open(fuzzer.raw);
        for (unsigned i = 0; i < 2; i++)
                take_lease(&fuzzer, 4096, 2 * MIB);
        return fuzzer;
}

static void fuzzer_end(Fuzzer *fuzzer)
{
        for (unsigned i = 0; i < fuzzer->n_leases; i++)
                raw_lease_close(&fuzzer->leases[i]);
        raw_ring_close(fuzzer->ring);
        raw_close(fuzzer->raw);
}

/* What is said by the socket meanwhile. */
static void interrupt(Fuzzer *fuzzer)
{
        static const uint64_t sizes[] = { 0, 1, 65536, 3 * MIB, 70 * MIB, UINT64_C(1) << 37, UINT64_MAX };
        uint64_t *random = fuzzer->random;

        switch (draw(random, 4)) {
        case 0:
                take_lease(fuzzer, sizes[draw(random, 7)], sizes[draw(random, 7)]);
                break;
        case 1: /* holds on to a lease, or to none, or to one that there is not */
                atomic_store(&fuzzer->ring->header->lease_use[draw(random, RING_LEASES_MAX)],
                             draw(random, 3) ? 0 : UINT32_MAX);
                break;
        case 2:
                atomic_store(&fuzzer->ring->header->failure_sequence, 0);
                break;
        case 3: {
                ProtoItem item = { .key = raw_key("socket"), .size_bytes = 100, .flags = FOLIO_REPLACE };

                (void)raw_item(fuzzer->raw, VERB_PUT, fuzzer->ids[draw(random, 2)], item);
                break;
        }
        }
}

static bool is_there(const Raw *raw)
{
        struct pollfd ready = { .fd = raw->socket, .events = POLLIN };

        return poll(&ready, 1, 0) == 0 || !(ready.revents & (POLLHUP | POLLERR));
}

static void fuzz(Fuzzer *fuzzer, unsigned n_rounds)
{
        uint64_t *random = fuzzer->random;

        for (unsigned i = 0; i < n_rounds && is_there(fuzzer->raw); i++) {
                unsigned n = 1 + (unsigned)draw(random, 200);

                for (unsigned j = 0; j < n; j++) {
                        RingRecord record = draw_record(fuzzer);

                        spoil(&record, random);
                        (void)raw_ring_submit(fuzzer->ring, record);
                }
                if (draw(random, 10) == 0)
                        return; /* with all that under way */
                if (!raw_ring_await(fuzzer->ring, fuzzer->ring->tail))
                        return;
                if (is_there(fuzzer->raw))
                        interrupt(fuzzer);
        }
}

static void test_fuzzed(void **state)
{
        const char *given = getenv("FOLIO_TEST_SEED"), *times = getenv("FOLIO_TEST_ROUNDS");
        uint64_t random = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL) ^ (uint64_t)getpid() << 32;
        unsigned n_rounds = times ? (unsigned)strtoul(times, NULL, 10) : alive_scaled(60);
        Scene scene = scene_begin();

        (void)state;
        print_message("# FOLIO_TEST_SEED=%llu\n", (unsigned long long)random);
        for (unsigned i = 0; i < n_rounds; i++) {
                struct folio_namespace passing = { .struct_bytes = sizeof(passing), .name = "passing", .mode = 0766,
                                                   .fields = FOLIO_NAMESPACE_FIELD_MODE | FOLIO_NAMESPACE_FIELD_WRITERS,
                                                   .writers = FOLIO_WRITERS_TRUSTED };
                Fuzzer one, other;
                struct folio_object *object;

                ASSERT_OK(folio_namespace_add(scene.client, &passing));
                one = fuzzer_begin(scene.foliod, &random);
                other = fuzzer_begin(scene.foliod, &random);
                fuzz(&one, 10);
                fuzz(&other, 5);
                scene_work(&scene);
                /* Memory becomes short: what is empty is recalled. */
                if (i % 4 == 0 && folio_create(scene.client, "default:large", 200 * MIB, NULL, &object) == 0)
                        ASSERT_OK(folio_object_abort(object));
                ASSERT_OK(folio_namespace_remove(scene.client, "passing"));
                if (is_there(one.raw))
                        fuzz(&one, 3);
                fuzzer_end(&one);
                if (is_there(other.raw))
                        fuzz(&other, 3);
                fuzzer_end(&other);
                scene_work(&scene);
        }
        spaces_await_sessions(scene.client, 1);
        scene_end(&scene);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                INTEGRATION_TEST(test_fuzzed),
        };

        return cmocka_run_group_tests_name("ring-fuzz", tests, NULL, NULL);
}
