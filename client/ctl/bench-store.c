/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-store.h. */
#include "client/ctl/bench-store.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/bench-count.h"
#include "client/ctl/bench-memory.h"

#define FACTS_MAX 256
#define OBJECTS_MAX 16384
/* What the daemon does behind our back is waited for so long, and looked for so often. */
#define WAIT_NS_MAX UINT64_C(5000000000)
#define LOOK_NS 1000000l
/* Of a sample object: two huge pages. */
#define SAMPLE_BYTES (2 * BENCH_HUGE_BYTES)

static const struct {
        const char *label;
        uint32_t huge, writers;
} spaces[_BENCH_SPACE_MAX] = {
        [BENCH_SPACE_4K] = { "4k", FOLIO_HUGE_NEVER, FOLIO_WRITERS_UNTRUSTED },
        [BENCH_SPACE_2M] = { "2m", FOLIO_HUGE_ALWAYS, FOLIO_WRITERS_UNTRUSTED },
        [BENCH_SPACE_TRUSTED] = { "trusted", FOLIO_HUGE_ALWAYS, FOLIO_WRITERS_TRUSTED },
};

/* --- facts -------------------------------------------------------------------------------------------------------- */

bool bench_store_fact(const BenchStore *store, const char *name, struct folio_status *ret)
{
        _ctl_cleanup_(ctl_cleanup_free) struct folio_status *facts = calloc(FACTS_MAX, sizeof(*facts));
        int n;

        if (!facts)
                return false;
        facts[0].struct_bytes = sizeof(*facts);
        n = folio_status_get(store->ctl->client, facts, FACTS_MAX);
        for (int i = 0; i < n && i < FACTS_MAX; i++)
                if (strcmp(facts[i].name, name) == 0) {
                        *ret = facts[i];
                        return true;
                }
        return false;
}

uint64_t bench_store_number(const BenchStore *store, const char *name, uint64_t otherwise)
{
        struct folio_status fact;

        return bench_store_fact(store, name, &fact) ? fact.value : otherwise;
}

static void look_again_later(void)
{
        const struct timespec pause = { .tv_nsec = LOOK_NS };

        (void)nanosleep(&pause, NULL);
}

/* No event tells that memory is free; it must be, or giving it back would be measured with what comes next. */
void bench_store_settle(BenchStore *store)
{
        uint64_t begun_ns = bench_now_ns();

        while (bench_store_number(store, "memory.freeing_bytes", 0) > 0 && bench_now_ns() - begun_ns < WAIT_NS_MAX)
                look_again_later();
}

/* --- objects ------------------------------------------------------------------------------------------------------ */

const char *bench_store_name(const BenchStore *store, BenchSpace space, const char *key, char buffer[BENCH_NAME_BYTES])
{
        if (store->is_own)
                snprintf(buffer, BENCH_NAME_BYTES, "%s:%s", store->namespaces[space], key);
        else
                snprintf(buffer, BENCH_NAME_BYTES, "%s:bench-%d-%s", store->namespaces[space], (int)getpid(), key);
        return buffer;
}

struct folio_create_options bench_store_options(uint32_t flags)
{
        return (struct folio_create_options){
                .struct_bytes = sizeof(struct folio_create_options),
                .flags = flags,
                .lifetime = FOLIO_WITH_CREATOR,
        };
}

double bench_store_huge_share(struct folio_object *object)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        if (folio_object_stat(object, &stat) < 0 || stat.allocated_bytes == 0)
                return 0;
        return (double)stat.huge_bytes / (double)stat.allocated_bytes;
}

/* Huge pages may come after the seal; those of a small object, or where there are none, are not waited for. */
static void wait_for_huge(const BenchStore *store, BenchSpace space, struct folio_object *object, uint64_t n_bytes)
{
        uint64_t begun_ns = bench_now_ns();

        if (space == BENCH_SPACE_4K || store->huge_share[space] < 0.5 || n_bytes < BENCH_HUGE_BYTES)
                return;
        while (bench_store_huge_share(object) < 0.99 && bench_now_ns() - begun_ns < WAIT_NS_MAX)
                look_again_later();
}

/* What was never written is found after the seal too, where its pages were made huge before. */
static void wait_for_zeros(struct folio_object *object, uint64_t n_bytes)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };
        uint64_t begun_ns = bench_now_ns();

        while (folio_object_stat(object, &stat) == 0 && stat.zero_bytes < n_bytes &&
               bench_now_ns() - begun_ns < WAIT_NS_MAX)
                look_again_later();
}

int bench_store_make(BenchStore *store, BenchSpace space, const char *key, BenchContent content, const void *data,
                     uint64_t n_bytes, struct folio_object **ret)
{
        struct folio_create_options options =
                bench_store_options(FOLIO_OWN_REGION | (content == BENCH_CONTENT_HOLE ? FOLIO_SPARSE : 0));
        struct folio_object *object;
        char name[BENCH_NAME_BYTES];
        int r;

        r = folio_create(store->ctl->client, bench_store_name(store, space, key, name), n_bytes, &options, &object);
        if (r < 0)
                return ctl_fail(store->ctl, r, "create", name);
        if (content == BENCH_CONTENT_WRITTEN)
                r = folio_object_write(object, 0, data, (size_t)n_bytes);
        if (r == 0)
                r = folio_object_seal(object);
        if (r < 0) {
                r = ctl_fail(store->ctl, r, "fill", name);
                (void)folio_object_release(object);
                return r;
        }
        if (content == BENCH_CONTENT_WRITTEN)
                wait_for_huge(store, space, object, n_bytes);
        else
                wait_for_zeros(object, n_bytes);
        *ret = object;
        return CTL_OK;
}

void bench_store_drop(BenchStore *store, BenchSpace space, const char *key, struct folio_object *object)
{
        char name[BENCH_NAME_BYTES];

        if (object)
                (void)folio_object_release(object);
        /* Where this fails the namespace, or the connection, takes it along. */
        (void)folio_delete(store->ctl->client, bench_store_name(store, space, key, name), FOLIO_IF_EXISTS);
        bench_store_settle(store);
}

/* --- namespaces --------------------------------------------------------------------------------------------------- */

/* What pages a large object gets: made, looked at, removed. */
static int take_sample(BenchStore *store, BenchSpace space)
{
        _ctl_cleanup_(ctl_cleanup_free) void *data = malloc(SAMPLE_BYTES);
        struct folio_object *object;
        int r;

        if (!data)
                return ctl_out_of_memory(store->ctl);
        bench_fill(data, SAMPLE_BYTES, 1);
        /* Until it is known otherwise they are waited for, where they were asked for. */
        store->huge_share[space] = store->is_own && space != BENCH_SPACE_4K ? 1 : 0;
        r = bench_store_make(store, space, "sample", BENCH_CONTENT_WRITTEN, data, SAMPLE_BYTES, &object);
        if (r != CTL_OK)
                return r;
        store->huge_share[space] = bench_store_huge_share(object);
        bench_store_drop(store, space, "sample", object);
        return CTL_OK;
}

/* FOLIO_E_ACCESS is for the caller; every other failure is told. */
static int add_namespace(BenchStore *store, BenchSpace space, uint32_t backing, uint64_t n_objects)
{
        struct folio_namespace settings = {
                .struct_bytes = sizeof(settings),
                .fields =
                        FOLIO_NAMESPACE_FIELD_HUGE | FOLIO_NAMESPACE_FIELD_OBJECTS_MAX | FOLIO_NAMESPACE_FIELD_WRITERS,
                .huge = spaces[space].huge,
                .writers = spaces[space].writers,
                .objects_max = n_objects > OBJECTS_MAX ? n_objects : OBJECTS_MAX,
        };
        int r;

        if (backing) {
                settings.fields |= FOLIO_NAMESPACE_FIELD_BACKING;
                settings.backing = backing;
        }
        snprintf(settings.name, sizeof(settings.name), "bench-%s-%d", spaces[space].label, (int)getpid());
        r = folio_namespace_add(store->ctl->client, &settings);
        if (r == FOLIO_E_ACCESS)
                return r;
        if (r < 0)
                return ctl_fail(store->ctl, r, "add namespace", settings.name);
        memcpy(store->namespaces[space], settings.name, sizeof(store->namespaces[space]));
        return CTL_OK;
}

int bench_store_connect(const BenchStore *store, uint32_t flags, struct folio_client **ret)
{
        const struct folio_open_options options = {
                .struct_bytes = sizeof(options),
                .address = store->ctl->socket_path,
                .flags = flags,
                .timeout_ms = store->ctl->timeout_ms,
        };

        return folio_client_open(&options, ret);
}

int bench_store_init(BenchStore *store, Ctl *ctl, uint32_t backing, uint64_t n_objects)
{
        int r = CTL_OK;

        *store = (BenchStore){ .ctl = ctl, .is_own = true };
        for (int i = 0; r == CTL_OK && i < _BENCH_SPACE_MAX; i++) {
                r = add_namespace(store, (BenchSpace)i, backing, i == BENCH_SPACE_2M ? 0 : n_objects);
                if (r == FOLIO_E_ACCESS)
                        break;
        }
        if (r == FOLIO_E_ACCESS) {
                ctl_note(ctl,
                         "this user may add no namespace: `default` is measured, with the pages it has, and cases with "
                         "trusted writers are left out; a store of your own lets you: `folioctl run --budget 3G -- "
                         "folioctl bench ...`");
                store->is_own = false;
                for (int i = 0; i < _BENCH_PAGES_MAX; i++)
                        strcpy(store->namespaces[i], FOLIO_NAMESPACE_DEFAULT);
                r = CTL_OK;
        }
        for (int i = 0; r == CTL_OK && i < _BENCH_PAGES_MAX; i++)
                r = take_sample(store, (BenchSpace)i);
        if (r != CTL_OK)
                return r;
        r = bench_store_connect(store, 0, &store->pipelined);
        if (r == 0)
                return CTL_OK;
        store->pipelined = NULL;
        return ctl_fail(ctl, r, "connect to foliod", NULL);
}

void bench_store_deinit(BenchStore *store)
{
        if (store->pipelined)
                folio_client_unref(store->pipelined);
        for (int i = 0; store->is_own && i < _BENCH_SPACE_MAX; i++) {
                int r = *store->namespaces[i] ? folio_namespace_remove(store->ctl->client, store->namespaces[i]) : 0;

                if (r < 0 && r != FOLIO_E_DAEMON_GONE)
                        (void)ctl_fail(store->ctl, r, "remove namespace", store->namespaces[i]);
        }
        *store = (BenchStore){ .ctl = store->ctl };
}

bool bench_store_has(const BenchStore *store, BenchSpace space)
{
        if (store->is_own)
                return true;
        return space != BENCH_SPACE_TRUSTED && (store->huge_share[space] >= 0.5) == (space == BENCH_SPACE_2M);
}
