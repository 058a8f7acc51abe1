/* SPDX-License-Identifier: Apache-2.0 */
/* An index made by hand, opened as a client does, and what was found in it last. */
#ifndef TESTS_UNIT_LOOKUP_FIXTURE_H
#define TESTS_UNIT_LOOKUP_FIXTURE_H

#include "client/lib/lookup.h"
#include "tests/unit/index-fake.h"

#define NOW UINT64_C(1000000)

typedef struct Fixture {
        FakeIndex fake;
        Space *space;
        Lookup found;
} Fixture;

static inline void fixture_new(Fixture *f)
{
        fake_index_new(&f->fake, 2048, 256, 512);
        assert_int_equal(fake_index_open(&f->fake, &f->space), 0);
}

static inline void fixture_free(Fixture *f)
{
        space_unref(f->space);
        fake_index_free(&f->fake);
}

static inline LookupOutcome fixture_find(Fixture *f, const char *key)
{
        memset(&f->found, 0x55, sizeof(f->found));
        return lookup_find(f->space, fake_key(key), NOW, &f->found);
}

static inline uint32_t fixture_add(Fixture *f, const char *key)
{
        return fake_index_add(&f->fake, &(FakeObject){ .key = fake_key(key), .state = LAYOUT_SLOT_SEALED });
}

#endif
