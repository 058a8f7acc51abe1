/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-many.h. */
#include "client/ctl/bench-many.h"

#include <errno.h>
#include <stdio.h>

#include "client/ctl/bench-stop.h"

/* As many in one call; a signal is looked for between two. */
#define SLICE 256u

int bench_many_init(BenchMany *many, const BenchStore *store, BenchSpace space, const char *word, size_t n)
{
        *many = (BenchMany){
                .n = n,
                .names = calloc(n, sizeof(*many->names)),
                .files = calloc(n, sizeof(*many->files)),
        };
        if (!many->names || !many->files) {
                bench_many_deinit(many);
                return -ENOMEM;
        }
        for (size_t i = 0; i < n; i++)
                snprintf(many->files[i], sizeof(many->files[i]), "%s-%zu", word, i);
        bench_many_name(many, store, space);
        return 0;
}

void bench_many_name(BenchMany *many, const BenchStore *store, BenchSpace space)
{
        char name[BENCH_NAME_BYTES];

        for (size_t i = 0; i < many->n; i++)
                snprintf(many->names[i], sizeof(many->names[i]), "%s",
                         bench_store_name(store, space, many->files[i], name));
}

void bench_many_deinit(BenchMany *many)
{
        free(many->names);
        free(many->files);
        *many = (BenchMany){ 0 };
}

/* --- what is measured --------------------------------------------------------------------------------------------- */

static int do_each(BenchRun *run, size_t n, BenchOne *one)
{
        int r = 0;

        for (size_t i = 0; r == 0 && i < n; i++) {
                bench_laps_begin(run->laps);
                r = one(run, i);
                bench_laps_end(run->laps);
        }
        return r;
}

int bench_many_ours(BenchRun *run, size_t n, BenchOne *one)
{
        return bench_check_store(run, bench_flush(run, do_each(run, n, one)));
}

int bench_many_theirs(BenchRun *run, size_t n, BenchOne *one, unsigned n_calls)
{
        run->bench->n_plain_calls += n * n_calls;
        return bench_check_plain(run, do_each(run, n, one));
}

/* --- what is not -------------------------------------------------------------------------------------------------- */

static int put_slice(BenchRun *run, const BenchMany *many, size_t first, size_t n, const void *data, uint64_t n_bytes)
{
        struct folio_create_options options = bench_store_options(0);
        struct folio_put_item items[SLICE];
        int r;

        for (size_t i = 0; i < n; i++)
                items[i] = (struct folio_put_item){
                        .name = many->names[first + i],
                        .data = data,
                        .size_bytes = n_bytes,
                        .options = &options,
                };
        r = folio_put_many(run->bench->ctl->client, items, n);
        for (size_t i = 0; r > 0 && i < n; i++)
                if (items[i].error < 0)
                        r = items[i].error;
        return bench_check_store(run, r);
}

/* One by one: many in one call are placed by the daemon. */
static int put_placed(BenchRun *run, const BenchMany *many, size_t first, size_t n, const void *data, uint64_t n_bytes)
{
        struct folio_create_options options = bench_store_options(0);
        struct folio_client *client = run->bench->store.pipelined;
        int r = 0, r_flush;

        for (size_t i = 0; r == 0 && i < n; i++)
                r = folio_put(client, many->names[first + i], data, n_bytes, &options);
        r_flush = folio_flush(client);
        return bench_check_store(run, r < 0 ? r : r_flush);
}

static size_t slice_of(const BenchMany *many, size_t first)
{
        return many->n - first < SLICE ? many->n - first : SLICE;
}

int bench_many_put(BenchRun *run, const BenchMany *many, const void *data, uint64_t n_bytes)
{
        int (*put)(BenchRun *, const BenchMany *, size_t, size_t, const void *, uint64_t) =
                run->c->is_trusted ? put_placed : put_slice;
        int r = CTL_OK;

        for (size_t i = 0; r == CTL_OK && i < many->n; i += SLICE)
                r = bench_stop_is_wanted() ? CTL_REFUSED : put(run, many, i, slice_of(many, i), data, n_bytes);
        return r;
}

int bench_many_write(BenchRun *run, const BenchMany *many, const BenchFolder *folder, const void *data,
                     uint64_t n_bytes)
{
        for (size_t i = 0; i < many->n; i++) {
                int r = bench_folder_put(folder, many->files[i], data, n_bytes);

                if (r < 0)
                        return bench_check_plain(run, r);
                if (i % SLICE == 0 && bench_stop_is_wanted())
                        return CTL_REFUSED;
        }
        return CTL_OK;
}

void bench_many_delete(Bench *bench, const BenchMany *many)
{
        struct folio_delete_item items[SLICE];

        for (size_t i = 0; i < many->n; i += SLICE) {
                for (size_t k = 0; k < slice_of(many, i); k++)
                        items[k] = (struct folio_delete_item){ .name = many->names[i + k], .flags = FOLIO_IF_EXISTS };
                /* What is left after a failure the namespace, or the connection, takes along. */
                (void)folio_delete_many(bench->ctl->client, items, slice_of(many, i));
        }
        bench_store_settle(&bench->store);
}

void bench_many_unlink(const BenchMany *many, const BenchFolder *folder)
{
        for (size_t i = 0; folder->fd >= 0 && i < many->n; i++)
                (void)bench_folder_remove(folder, many->files[i]);
}
