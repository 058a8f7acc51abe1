/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A store is killed, and the next one is made of what it has left: every kind of object comes back with its bytes, its
 * name, its slot and its generation; what is damaged is dropped and counted, and nothing else with it. Over 600 lines:
 * a table of damages, each with the few lines that do it.
 */
#include "restore-fixture.h"

#include "daemon/store/index-checksum.h"

#define LARGE_BYTES (3 * MIB)

/* What the child has found out and the parent wants to know. */
typedef struct Known {
        uint64_t instance;
        uint64_t generation;
        uint32_t slot;
        uint32_t session;
        uint64_t region_id;
} Known;

static Known *known_new(void)
{
        Known *known = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

        assert_ptr_not_equal(known, MAP_FAILED);
        return known;
}

static void known_free(Known *known)
{
        assert_int_equal(munmap(known, 4096), 0);
}

static char *large_new(char fill)
{
        char *bytes = malloc(LARGE_BYTES);

        assert_non_null(bytes);
        memset(bytes, fill, LARGE_BYTES);
        return bytes;
}

static void create_large(Client *c, const char *key, char fill, uint32_t flags)
{
        char *bytes = large_new(fill);
        Op op;

        assert_int_equal(client_create(c, &op, key, LARGE_BYTES, flags), STATUS_OK);
        assert_int_equal(pwrite(op.op.fd, bytes, LARGE_BYTES, 0), LARGE_BYTES);
        close(op.op.fd);
        op.op.fd = -1;
        if (!(flags & FOLIO_MUTABLE))
                assert_int_equal(client_seal(c, &op), STATUS_OK);
        free(bytes);
}

/* --- every kind --------------------------------------------------------------------------------------------------- */

static Status put_texts(Client *c, const char *key, const char *text, const char *content_type, const char *metadata,
                        uint64_t expires_ns)
{
        Op op = { .item = { .key = key_of(key), .size_bytes = strlen(text), .content_type = key_of(content_type),
                            .metadata = key_of(metadata), .expires_ns = expires_ns,
                            .lifetime = expires_ns ? FOLIO_UNTIL_TIME : FOLIO_UNTIL_DELETED } };

        client_stage(c, 0, text, strlen(text));
        return op_run_clear(c, &op, VERB_PUT);
}

#define LONG_KEY "a key that is far too long for what a slot has room for, and goes on in the heap"

static Client last_client;

static void live_with_all_kinds(Fixture *f, void *userdata)
{
        Known *known = userdata;
        Lookup found;
        Client c;

        client_open(f, &c, getuid(), "default");
        assert_int_equal(client_put_text(&c, "small", "a few bytes", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "empty", "", 0), STATUS_OK);
        assert_int_equal(put_texts(&c, LONG_KEY, "with texts", "text/plain", "about it", 0), STATUS_OK);
        assert_int_equal(put_texts(&c, "passes", "soon gone", "", "", 5000), STATUS_OK);
        assert_int_equal(client_put_text(&c, "again", "first", 0), STATUS_OK);
        assert_int_equal(client_put_text(&c, "again", "second", FOLIO_REPLACE), STATUS_OK);
        assert_int_equal(client_put_text(&c, "deleted", "gone", 0), STATUS_OK);
        assert_int_equal(client_delete(&c, "deleted", 0), STATUS_OK);
        create_large(&c, "large", 'L', 0);
        create_large(&c, "mutable", 'M', FOLIO_MUTABLE);
        assert_int_equal(client_truncate(&c, "mutable", MIB), STATUS_OK);
        assert_int_equal(client_look(&c, "large", &found), LOOKUP_FOUND);
        known->instance = store_instance(f->store);
        known->slot = found.slot;
        known->generation = found.copy.generation;
        known->region_id = found.copy.region_id;
        last_client = c;
}

static void check_all_kinds(Fixture *f, const Known *known)
{
        char *bytes = large_new('L');
        Lookup found;
        Client c;

        client_open(f, &c, getuid(), "default");
        assert_true(store_instance(f->store) == known->instance);
        assert_text(&c, "small", "a few bytes");
        assert_text(&c, "empty", "");
        assert_text(&c, LONG_KEY, "with texts");
        assert_text(&c, "again", "second");
        assert_content(&c, "large", bytes, LARGE_BYTES);
        assert_int_equal(client_look(&c, LONG_KEY, &found), LOOKUP_FOUND);
        assert_int_equal(found.copy.content_type_bytes, 10);
        assert_int_equal(found.copy.metadata_bytes, 8);
        assert_int_equal(client_reason(&c, "deleted"), FOLIO_EVENT_DELETED);
        assert_int_equal(client_look(&c, "large", &found), LOOKUP_FOUND);
        assert_int_equal(found.slot, known->slot);
        assert_true(found.copy.generation == known->generation);
        assert_true(found.copy.region_id == known->region_id);
        assert_int_equal(client_look(&c, "mutable", &found), LOOKUP_FOUND);
        assert_true(found.copy.size_bytes == MIB);
        memset(bytes, 'M', MIB);
        assert_content(&c, "mutable", bytes, MIB);
        /* It goes on: growing, replacing, deleting what was restored, and storing what is new. */
        assert_int_equal(client_truncate(&c, "mutable", 2 * MIB), STATUS_OK);
        assert_int_equal(client_put_text(&c, "small", "others", FOLIO_REPLACE), STATUS_OK);
        assert_text(&c, "small", "others");
        assert_int_equal(client_look(&c, "small", &found), LOOKUP_FOUND);
        assert_true(found.copy.generation > known->generation + UINT32_MAX);
        assert_int_equal(client_delete(&c, "large", 0), STATUS_OK);
        assert_false(client_has(&c, "large"));
        assert_int_equal(store_next_expiry_ns(f->store), 5000);
        fixture_now = 6000;
        store_expire(f->store);
        assert_int_equal(client_reason(&c, "passes"), FOLIO_EVENT_EXPIRED);
        client_close(&c);
        free(bytes);
        fixture_settle(f); /* what is large goes in a worker */
}

static void test_every_kind_of_object(void **state)
{
        Keeper *keeper = fake_keeper_new();
        Known *known = known_new();
        Next next;

        (void)state;
        restore_outlive(keeper, NULL, live_with_all_kinds, known);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_objects, 7);
        assert_int_equal(next.facts.n_dropped, 0);
        assert_int_equal(next.facts.n_namespaces, 1);
        /* One index, and what objects lie in; no more is kept than before. */
        assert_int_equal(fake_keeper_count(keeper, KEPT_INDEX), 1);
        assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 2);
        check_all_kinds(&next.f, known);
        assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 1);
        next_deinit(&next);
        known_free(known);
}

static void live_no_longer(Fixture *f, void *userdata)
{
        (void)f;
        (void)userdata;
}

static void test_restored_and_killed_again_and_again(void **state)
{
        Keeper *keeper = fake_keeper_new();
        Known *known = known_new();
        Next next;

        (void)state;
        restore_outlive(keeper, NULL, live_with_all_kinds, known);
        for (unsigned i = 0; i < 5; i++)
                restore_outlive(keeper, NULL, live_no_longer, NULL);
        assert_int_equal(fake_keeper_count(keeper, KEPT_INDEX), 1);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_objects, 7);
        check_all_kinds(&next.f, known);
        next_deinit(&next);
        known_free(known);
}

static void test_left_in_order(void **state)
{
        Keeper *keeper = fake_keeper_new();
        Known *known = known_new();
        StoreRestoreFacts facts;
        Fixture f;
        Next next;

        (void)state;
        restore_begin(&f, NULL, keeper, &facts);
        assert_int_equal(facts.n_objects, 0);
        live_with_all_kinds(&f, known);
        /* The client's own side is gone with its connection; the store's is left. */
        session_leave(last_client.session);
        space_unref(last_client.space);
        store_leave(f.store);
        worker_pool_free(f.workers);
        event_base_free(f.base);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_objects, 7);
        check_all_kinds(&next.f, known);
        next_deinit(&next);
        known_free(known);
}

/* --- damage ------------------------------------------------------------------------------------------------------- */

enum { N_SMALL = 40 };

static void live_with_small_ones(Fixture *f, void *userdata)
{
        char key[64], text[64];
        Client c;

        (void)userdata;
        client_open(f, &c, getuid(), "default");
        for (unsigned i = 0; i < N_SMALL; i++) {
                snprintf(key, sizeof(key), i % 2 ? "%u" : "%u, and more than fits into its slot", i);
                snprintf(text, sizeof(text), "the bytes of %u", i);
                assert_int_equal(put_texts(&c, key, text, i % 3 ? "" : "text/plain", "", 0), STATUS_OK);
        }
}

static void check_small_ones(Fixture *f, int but)
{
        char key[64], text[64];
        Client c;

        client_open(f, &c, getuid(), "default");
        for (int i = 0; i < N_SMALL; i++) {
                snprintf(key, sizeof(key), i % 2 ? "%u" : "%u, and more than fits into its slot", i);
                snprintf(text, sizeof(text), "the bytes of %u", i);
                if (i == but)
                        assert_false(client_has(&c, key));
                else
                        assert_text(&c, key, text);
        }
        client_close(&c);
}

/*
 * The index of the dead, copied into a file that can be written, in place of the one that is kept. Sealed at the end.
 */
static uint8_t *open_copy(Keeper *keeper, int *ret_fd)
{
        KeptRecord *record = fake_keeper_get(keeper, KEPT_INDEX, 0, ret_fd);
        int fd = memfd_create("copy", MFD_ALLOW_SEALING | MFD_CLOEXEC);
        uint8_t *from, *to;
        struct stat st;

        assert_true(fd >= 0);
        assert_int_equal(ftruncate(fd, (off_t)record->size_bytes), 0);
        from = mmap(NULL, record->size_bytes, PROT_READ, MAP_SHARED, *ret_fd, 0);
        to = mmap(NULL, record->size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        assert_ptr_not_equal(from, MAP_FAILED);
        assert_ptr_not_equal(to, MAP_FAILED);
        for (off_t at = 0; (at = lseek(*ret_fd, at, SEEK_DATA)) >= 0;) {
                off_t end = lseek(*ret_fd, at, SEEK_HOLE);

                memcpy(to + at, from + at, (size_t)(end - at));
                at = end;
        }
        assert_int_equal(munmap(from, record->size_bytes), 0);
        assert_int_equal(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
        assert_int_equal(fstat(fd, &st), 0);
        record->inode = st.st_ino;
        assert_true(dup3(fd, *ret_fd, O_CLOEXEC) >= 0);
        close(fd);
        return to;
}

static LayoutSlot *slot_in(uint8_t *base, uint32_t slot)
{
        const LayoutIndexHeader *h = (const LayoutIndexHeader *)(void *)base;

        return (LayoutSlot *)(void *)(base + h->slots_offset) + slot;
}

/* Each byte of a record, one bit of it, in each of a few records. */
static void test_each_field_of_a_damaged_record(void **state)
{
        enum { SLOT = 7 };
        uint64_t n_bytes;
        int fd;

        (void)state;
        for (size_t at = 0; at < sizeof(LayoutSlot); at++) {
                Keeper *keeper = fake_keeper_new();
                uint8_t *base, *byte;
                Next next;

                restore_outlive(keeper, NULL, live_with_small_ones, NULL);
                base = open_copy(keeper, &fd);
                n_bytes = ((const LayoutIndexHeader *)(void *)base)->region_bytes;
                byte = (uint8_t *)slot_in(base, SLOT) + at;
                *byte ^= at < sizeof(uint32_t) ? 2 : 1u << at % 8; /* an odd sequence is no damage */
                assert_int_equal(munmap(base, n_bytes), 0);
                next_init(&next, NULL, keeper);
                /* Of the sequence nothing is left over a restart but whether it is odd. */
                assert_int_equal(next.facts.n_dropped, at < sizeof(uint32_t) ? 0 : 1);
                assert_int_equal(next.facts.n_objects, N_SMALL - next.facts.n_dropped);
                assert_int_equal(next.facts.n_lines, next.facts.n_dropped);
                check_small_ones(&next.f, at < sizeof(uint32_t) ? -1 : SLOT);
                next_deinit(&next);
        }
}

typedef void (*Damage)(Keeper *keeper, uint8_t *base);

static void seal_again(uint8_t *base, uint32_t slot)
{
        LayoutSlot *record = slot_in(base, slot);
        const LayoutIndexHeader *h = (const LayoutIndexHeader *)(void *)base;
        const void *texts = record->heap_block ? base + h->heap_offset + record->heap_block * 64 : NULL;

        record->checksum = index_checksum(slot, record, texts, NULL);
}

static void damage_text(Keeper *keeper, uint8_t *base)
{
        const LayoutIndexHeader *h = (const LayoutIndexHeader *)(void *)base;

        (void)keeper;
        base[h->heap_offset + slot_in(base, 6)->heap_block * 64] ^= 1;
}

static void damage_region(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->region_id += 1000;
        seal_again(base, 6);
}

static void damage_offset(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->offset_units = 1u << 31;
        seal_again(base, 6);
}

static void damage_overlap(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->offset_units = slot_in(base, 5)->offset_units;
        seal_again(base, 6);
}

static void damage_size(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->size_bytes = slot_in(base, 6)->capacity_bytes = UINT64_MAX;
        seal_again(base, 6);
}

static void damage_placement(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->placement = FOLIO_PLACEMENT_OWN;
        seal_again(base, 6);
}

static void damage_hash(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->hash ^= 1;
        seal_again(base, 6);
}

static void damage_heap_block(Keeper *keeper, uint8_t *base)
{
        (void)keeper;
        slot_in(base, 6)->heap_block = UINT32_MAX;
}

/* A name twice: who has come later has it. Slot 6 loses its own name, and its texts with it, to that of slot 5. */
static void damage_duplicate(Keeper *keeper, uint8_t *base)
{
        LayoutSlot *later = slot_in(base, 6);
        const LayoutSlot *earlier = slot_in(base, 5);

        (void)keeper;
        later->hash = earlier->hash;
        later->key_bytes = earlier->key_bytes;
        later->content_type_bytes = 0;
        later->heap_block = 0;
        memcpy(later->key, earlier->key, sizeof(later->key));
        seal_again(base, 6);
}

static void test_other_damage(void **state)
{
        static const Damage rows[] = { damage_text, damage_region, damage_offset, damage_overlap, damage_size,
                                       damage_placement, damage_hash, damage_heap_block };
        int fd;

        (void)state;
        for (size_t i = 0; i < ARRAY_SIZE(rows); i++) {
                Keeper *keeper = fake_keeper_new();
                uint8_t *base;
                Next next;

                restore_outlive(keeper, NULL, live_with_small_ones, NULL);
                base = open_copy(keeper, &fd);
                rows[i](keeper, base);
                assert_int_equal(munmap(base, ((const LayoutIndexHeader *)(void *)base)->region_bytes), 0);
                next_init(&next, NULL, keeper);
                assert_int_equal(next.facts.n_dropped, 1);
                assert_int_equal(next.facts.n_objects, N_SMALL - 1);
                check_small_ones(&next.f, 6);
                next_deinit(&next);
        }
}

static void test_a_name_twice(void **state)
{
        Keeper *keeper = fake_keeper_new();
        uint8_t *base;
        Lookup found;
        Client c;
        Next next;
        int fd;

        (void)state;
        restore_outlive(keeper, NULL, live_with_small_ones, NULL);
        base = open_copy(keeper, &fd);
        damage_duplicate(keeper, base);
        assert_int_equal(munmap(base, ((const LayoutIndexHeader *)(void *)base)->region_bytes), 0);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_dropped, 0);
        client_open(&next.f, &c, getuid(), "default");
        assert_int_equal(client_look(&c, "5", &found), LOOKUP_FOUND);
        assert_int_equal(found.slot, 6);
        assert_text(&c, "5", "the bytes of 6");
        assert_int_equal(fixture_fact(&next.f, "objects.count"), N_SMALL - 1);
        client_close(&c);
        next_deinit(&next);
}

/* The file that is kept is another, or has lost its seals: it is not served. */
static void test_other_files(void **state)
{
        enum { OTHER_INODE, OTHER_SIZE, NO_SEAL, GONE, _N };

        (void)state;
        for (int what = 0; what < _N; what++) {
                Keeper *keeper = fake_keeper_new();
                Known *known = known_new();
                KeptRecord *record;
                Client c;
                Next next;
                int fd, other;

                restore_outlive(keeper, NULL, live_with_all_kinds, known);
                for (size_t n = 0; (record = fake_keeper_get(keeper, KEPT_OWN, n, &fd)) && record->id != known->region_id;)
                        n++;
                assert_non_null(record);
                if (what == OTHER_INODE) {
                        record->inode++;
                } else if (what == OTHER_SIZE) {
                        record->size_bytes += 4096;
                } else if (what == NO_SEAL) {
                        struct stat st;

                        other = memfd_create("other", MFD_ALLOW_SEALING | MFD_CLOEXEC);
                        assert_int_equal(ftruncate(other, (off_t)record->size_bytes), 0);
                        assert_int_equal(fstat(other, &st), 0);
                        record->inode = st.st_ino;
                        assert_true(dup3(other, fd, O_CLOEXEC) >= 0);
                        close(other);
                } else {
                        record->id += 12345;
                }
                next_init(&next, NULL, keeper);
                assert_int_equal(next.facts.n_dropped, 1);
                assert_int_equal(next.facts.n_objects, 6);
                client_open(&next.f, &c, getuid(), "default");
                assert_false(client_has(&c, "large"));
                assert_true(client_has(&c, "mutable"));
                assert_text(&c, "again", "second");
                client_close(&c);
                /* Nothing of it is kept on. */
                assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), 1);
                next_deinit(&next);
                known_free(known);
        }
}

/* --- namespaces and limits ---------------------------------------------------------------------------------------- */

static void live_with_settings(Fixture *f, void *userdata)
{
        ProtoNamespace settings = {
                .name = "other", .fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_MODE |
                                           FOLIO_NAMESPACE_FIELD_OBJECTS_MAX | FOLIO_NAMESPACE_FIELD_OWNER,
                .quota_bytes = 4096, .mode = 0750, .objects_max = 100, .owner_uid = 1234,
        };
        ProtoNamespace ignored;
        char *detail = NULL;
        Client c, other;

        (void)userdata;
        client_open(f, &c, getuid(), "default");
        assert_int_equal(store_namespace_add(f->store, c.session, &settings, &ignored, &detail), STATUS_OK);
        client_open(f, &other, getuid(), "other");
        assert_int_equal(client_put_text(&other, "of the other", "bytes", 0), STATUS_OK);
        settings.fields = FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS;
        settings.quota_bytes = 128;
        settings.quota_objects = 7;
        assert_int_equal(store_namespace_set(f->store, c.session, &settings, &ignored, &detail), STATUS_OK);
        assert_int_equal(client_put_text(&other, "second", "bytes", 0), STATUS_OK);
        snprintf(settings.name, sizeof(settings.name), "removed");
        settings.fields = 0;
        assert_int_equal(store_namespace_add(f->store, c.session, &settings, &ignored, &detail), STATUS_OK);
        client_open(f, &other, getuid(), "removed");
        assert_int_equal(client_put_text(&other, "key", "bytes", 0), STATUS_OK);
        assert_int_equal(store_namespace_remove(f->store, c.session, "removed", &detail), STATUS_OK);
}

static void test_settings_and_quotas(void **state)
{
        Keeper *keeper = fake_keeper_new();
        StoreConfig config = fixture_config();
        ProtoNamespace list[8];
        Client c;
        Next next;

        (void)state;
        restore_outlive(keeper, NULL, live_with_settings, NULL);
        restore_outlive(keeper, NULL, live_no_longer, NULL);
        /* Less than is there: nothing of it is refused, and nothing more fits. */
        config.budget_bytes = 4096;
        next_init(&next, &config, keeper);
        client_open(&next.f, &c, getuid(), "other");
        assert_int_equal(store_namespace_list(next.f.store, c.session, (Key){ 0 }, list, 8), 2);
        assert_string_equal(list[1].name, "other");
        assert_int_equal(list[1].quota_bytes, 128);
        assert_int_equal(list[1].quota_objects, 7);
        assert_int_equal(list[1].objects_max, 100);
        assert_int_equal(list[1].mode, 0750);
        assert_int_equal(list[1].owner_uid, 1234);
        assert_int_equal(list[1].used_bytes, 128);
        assert_text(&c, "of the other", "bytes");
        assert_text(&c, "second", "bytes");
        assert_int_equal(client_put_text(&c, "third", "bytes", 0), STATUS_LIMIT);
        assert_int_equal(client_delete(&c, "second", 0), STATUS_OK);
        assert_int_equal(client_delete(&c, "of the other", 0), STATUS_OK);
        fixture_settle(&next.f);
        assert_int_equal(fixture_fact(&next.f, "memory.used_bytes"), 0);
        client_close(&c);
        next_deinit(&next);
}

static void live_on_tmpfs(Fixture *f, void *userdata)
{
        ProtoNamespace settings = { .name = "tmpfs", .fields = FOLIO_NAMESPACE_FIELD_BACKING,
                                    .backing = FOLIO_BACKING_TMPFS }, ignored;
        char *detail = NULL;
        Client c, other;
        Op op;

        (void)userdata;
        client_open(f, &c, getuid(), "default");
        assert_int_equal(store_namespace_add(f->store, c.session, &settings, &ignored, &detail), STATUS_OK);
        client_open(f, &other, getuid(), "tmpfs");
        create_large(&other, "sealed", 'S', 0);
        assert_int_equal(client_create(&other, &op, "begun", LARGE_BYTES, 0), STATUS_OK);
}

/* Files that cannot be sealed: that nobody has them open for writing is what closes them. */
static void test_tmpfs(void **state)
{
        Keeper *keeper = fake_keeper_new();
        char *bytes = large_new('S');
        Client c;
        Next next;
        int fd;

        (void)state;
        restore_outlive(keeper, NULL, live_on_tmpfs, NULL);
        restore_outlive(keeper, NULL, live_no_longer, NULL);
        for (size_t n = 0; fake_keeper_get(keeper, KEPT_OWN, n, &fd); n++)
                assert_int_equal(fcntl(fd, F_GETFL) & O_ACCMODE, O_RDONLY);
        next_init(&next, NULL, keeper);
        assert_int_equal(next.facts.n_dropped, 0);
        assert_int_equal(next.facts.n_objects, 2);
        assert_int_equal(next.facts.n_writing, 1);
        client_open(&next.f, &c, getuid(), "tmpfs");
        assert_content(&c, "sealed", bytes, LARGE_BYTES);
        client_close(&c);
        next_deinit(&next);
        free(bytes);
}

/* --- what is refused ---------------------------------------------------------------------------------------------- */

static void test_left_by_a_newer_one(void **state)
{
        (void)state;
        for (int what = 0; what < 3; what++) {
                Keeper *keeper = fake_keeper_new();
                Known *known = known_new();
                StoreConfig config = fixture_config();
                const char *failed_call = NULL;
                StoreRestoreFacts facts;
                char *message = NULL;
                KeptRecord *record;
                size_t n_before;
                Fixture f;
                Next next;
                int fd;

                restore_outlive(keeper, NULL, live_with_all_kinds, known);
                record = fake_keeper_get(keeper, KEPT_INDEX, 0, &fd);
                if (what == 0) {
                        record->version++;
                } else if (what == 1) {
                        fake_keeper_add(keeper, &(KeptRecord){ .version = 1, .kind = 1000 }, fd);
                } else {
                        uint8_t *base = open_copy(keeper, &fd);

                        ((LayoutIndexHeader *)(void *)base)->layout_version++;
                        assert_int_equal(munmap(base, record->size_bytes), 0);
                }
                n_before = fake_keeper_count(keeper, KEPT_OWN);
                config.keeper = keeper;
                f.base = event_base_new();
                assert_int_equal(worker_pool_new(f.base, 2, &f.workers), 0);
                config.workers = f.workers;
                assert_int_equal(store_new(&config, &f.store, &failed_call), 0);
                assert_int_equal(store_restore(f.store, &facts, &message), STORE_RESTORE_E_VERSION);
                assert_non_null(strstr(message, "newer foliod"));
                free(message);
                store_leave(f.store);
                worker_pool_free(f.workers);
                event_base_free(f.base);
                /* All of it is there for the one that can read it. */
                assert_int_equal(fake_keeper_count(keeper, KEPT_OWN), n_before);
                if (what == 0) {
                        record->version--;
                        next_init(&next, NULL, keeper);
                        assert_int_equal(next.facts.n_objects, 7);
                        next_deinit(&next);
                } else {
                        fake_keeper_free(keeper);
                }
                known_free(known);
        }
}

static void test_a_keeper_that_is_full_or_gone(void **state)
{
        Keeper *keeper = fake_keeper_new();
        StoreRestoreFacts facts;
        Fixture f;
        Client c;
        Op op;

        (void)state;
        restore_begin(&f, NULL, keeper, &facts);
        client_open(&f, &c, getuid(), "default");
        assert_int_equal(client_put_text(&c, "before", "bytes", 0), STATUS_OK);
        fake_keeper_set_limit(keeper, 0);
        assert_int_equal(client_create(&c, &op, "full", LARGE_BYTES, 0), STATUS_LIMIT);
        assert_non_null(strstr(op.op.detail, "as many descriptors as it may"));
        op_clear(&op);
        assert_false(client_has(&c, "full"));
        /* What is safe already takes more. */
        assert_int_equal(client_put_text(&c, "small", "bytes", 0), STATUS_OK);
        fake_keeper_set_gone(keeper, true);
        assert_int_equal(client_create(&c, &op, "volatile", LARGE_BYTES, 0), STATUS_OK);
        op_clear(&op);
        assert_int_equal(fixture_fact(&f, "keeper.volatile"), 1);
        client_close(&c);
        fixture_deinit(&f);
        fake_keeper_free(keeper);
}

/* Clients have the index mapped as it is, and watch by its numbers: other settings are for other namespaces. */
static void test_layout_stays(void **state)
{
        StoreConfig first = fixture_config(), second = first;
        Keeper *keeper = fake_keeper_new();
        Client c;
        Next next;

        (void)state;
        first.n_events = 64;
        first.index_objects_max = 2048;
        second.n_events = 256;
        second.index_objects_max = 512;
        restore_outlive(keeper, &first, live_with_small_ones, NULL);
        next_init(&next, &second, keeper);
        client_open(&next.f, &c, getuid(), "default");
        assert_int_equal(c.space->header.n_events, 64);
        assert_int_equal(c.space->header.n_slots_max, 2048);
        assert_int_equal(client_put_text(&c, "another", "x", 0), STATUS_OK);
        client_close(&c);
        next_deinit(&next);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                UNIT_TEST(test_every_kind_of_object),
                UNIT_TEST(test_restored_and_killed_again_and_again),
                UNIT_TEST(test_left_in_order),
                UNIT_TEST(test_each_field_of_a_damaged_record),
                UNIT_TEST(test_other_damage),
                UNIT_TEST(test_a_name_twice),
                UNIT_TEST(test_other_files),
                UNIT_TEST(test_settings_and_quotas),
                UNIT_TEST(test_tmpfs),
                UNIT_TEST(test_layout_stays),
                UNIT_TEST(test_left_by_a_newer_one),
                UNIT_TEST(test_a_keeper_that_is_full_or_gone),
        };

        return cmocka_run_group_tests_name("restore", tests, NULL, NULL);
}
