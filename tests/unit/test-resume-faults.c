/* SPDX-License-Identifier: Apache-2.0 */
/*
 * foliod is killed at each step that a record takes, the first time it comes there and later. Whichever it was: every
 * record of the ring is carried out once, its result says so, and the objects are what they should be.
 */
#include "resume-fixture.h"

/* A place, how often it is passed before it ends foliod, and whether the story below comes there at all. */
static const char *const places[] = {
        "ring.done",      "ring.answered",  "ring.counted",   "writing.written", "publish.begun", "publish.written",
        "publish.named",  "publish.counted", "retire.begun",  "retire.retracted", "retire.counted", "forget.given",
        "put.copied",     "keep.before",    "keep.after",     "seal.copied",
};
static const unsigned counts[] = { 1, 2, 3, 5, 8, 13, 21, 34 };

/* What is asked for, in this order; each must succeed, once. */
static const struct {
        RingVerb verb;
        unsigned key;
        uint32_t number;
        uint32_t flags;
        bool has_event;
} story[] = {
        { RING_VERB_PUT, 1, 0, 0, true },
        { RING_VERB_CREATE, 2, 7, 0, false },
        { RING_VERB_PUT, 1, 0, FOLIO_REPLACE, true },
        { RING_VERB_CREATE, 3, 8, 0, false },
        { RING_VERB_SEAL, 2, 7, 0, true },
        { RING_VERB_ABORT, 3, 8, 0, false },
        { RING_VERB_DELETE, 1, 0, 0, true },
        { RING_VERB_PUT, 1, 0, 0, true },
        { RING_VERB_CREATE, 2, 7, FOLIO_REPLACE, false },
        { RING_VERB_PUT, 4, 0, FOLIO_REPLACE, true },
        { RING_VERB_SEAL, 2, 7, 0, true },
        { RING_VERB_CREATE, 3, 8, 0, false },
        { RING_VERB_DELETE, 4, 0, 0, true },
        { RING_VERB_SEAL, 3, 8, 0, true },
        { RING_VERB_DELETE, 3, 0, 0, true },
        { RING_VERB_DELETE, 9, 0, PROTO_ITEM_IF_EXISTS, false },
};

static void publish_story(Client2 *c, bool wants_results)
{
        for (size_t i = 0; i < ARRAY_SIZE(story); i++) {
                RingRecord *record = next_record(c, story[i].verb);
                char bytes[32];

                record->flags = story[i].flags | (wants_results ? RING_FLAG_RESULT : 0);
                if (story[i].verb != RING_VERB_SEAL && story[i].verb != RING_VERB_ABORT)
                        set_key(record, story[i].key);
                record->slot = story[i].number;
                if (story[i].verb == RING_VERB_PUT || story[i].verb == RING_VERB_CREATE)
                        record->size_bytes = 8;
                if (story[i].verb == RING_VERB_PUT || story[i].verb == RING_VERB_SEAL) {
                        record->offset_bytes = i * 64;
                        snprintf(bytes, sizeof(bytes), "by %05zu", i);
                        assert_int_equal(pwrite(c->staging_fd, bytes, 8, (off_t)(i * 64)), 8);
                }
                publish(c);
        }
}

static void assert_there(Server *server, Client2 *c, Wire *wire, unsigned key, size_t by)
{
        char name[16], bytes[32], expected[32];
        Lookup found;
        ProtoReply reply;
        ProtoNamespace ns;
        Space *space;

        snprintf(name, sizeof(name), "key-%06u", key);
        snprintf(expected, sizeof(expected), "by %05zu", by);
        ns = wire_open(wire).namespaces[0];
        assert_int_equal(space_new(&ns, 1, wire->fds[0], wire->fds[1], &space), 0);
        assert_int_equal(lookup_find(space, key_of(name), 0, &found), LOOKUP_FOUND);
        space_unref(space);
        assert_int_equal(found.copy.size_bytes, 8);
        reply = wire_item(wire, c, VERB_REGION, (ProtoItem){ .flags = PROTO_ITEM_BY_SLOT, .slot = found.slot,
                                                            .generation = found.copy.generation });
        assert_int_equal(reply.items[0].status, STATUS_OK);
        assert_int_equal(pread(wire->fds[0], bytes, 8, (off_t)reply.items[0].offset_bytes), 8);
        assert_memory_equal(bytes, expected, 8);
        close(wire->fds[0]);
}

static bool play(const char *place, unsigned n, bool wants_results)
{
        size_t n_events = 0;
        uint64_t n_doubles;
        bool was_killed;
        Keeper *keeper;
        First first;
        Server second;
        Client2 c;
        Wire wire;

        first_start(&first);
        client_begin(&c, &first.wire);
        first_wish(&first, place, n);
        publish_story(&c, wants_results);
        was_killed = first_wait(&first, &c);
        keeper = first_kill(&first);
        server_init(&second, keeper);
        second_connect(&second, &wire, geteuid());
        assert_true(wire_hello(&wire, c.token).is_resumed);
        take_beacon(&c, wire.fds[0]);
        wait_for_head(&second, &c, ARRAY_SIZE(story));
        assert_int_equal(atomic_load(&c.ring->n_failed), 0);
        for (size_t i = 0; i < ARRAY_SIZE(story); i++) {
                n_events += story[i].has_event;
                if (!wants_results)
                        continue;
                assert_int_equal(atomic_load(&((RingResult *)(uintptr_t)c.results)[i].sequence), i + 1);
                assert_int_equal(c.results[i].status, STATUS_OK);
        }
        (void)wire_open(&wire);
        assert_int_equal(count_events(wire.fds[0], c.number, &n_doubles), n_events);
        assert_int_equal(n_doubles, 0);
        close(wire.fds[0]);
        close(wire.fds[1]);
        assert_there(&second, &c, &wire, 1, 7);
        assert_there(&second, &c, &wire, 2, 10);
        assert_int_equal(fixture_fact(&second.f, "objects.count"), 2);
        assert_int_equal(fixture_fact(&second.f, "unsealed.count"), 0);
        wire_deinit(&wire);
        server_deinit(&second);
        fake_keeper_free(keeper);
        client_end(&c);
        return was_killed;
}

static void test_each_place(void **state)
{
        for (size_t i = 0; i < ARRAY_SIZE(places); i++)
                for (size_t n = 0; n < ARRAY_SIZE(counts); n++) {
                        printf("# %s:%u\n", places[i], counts[n]); /* for who reads of a failure behind it */
                        if (!play(places[i], counts[n], n % 2))
                                break; /* it does not come there so often */
                }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_each_place),
        };

        return cmocka_run_group_tests_name("resume-faults", tests, NULL, NULL);
}
