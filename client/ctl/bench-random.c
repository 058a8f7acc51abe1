/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Many pieces of 4 KiB from all over a large object, one by one and in one batch, against a pread() for each. Every
 * round reads other pieces, both sides and the copy loop the same ones, to the same places one after the other.
 */
#include "client/ctl/bench-read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES BENCH_PAGE_BYTES

/* Good enough for places, and the same in every run. */
static uint64_t next_number(uint64_t *seed)
{
        *seed ^= *seed << 13;
        *seed ^= *seed >> 7;
        *seed ^= *seed << 17;
        return *seed;
}

int bench_random_prepare(BenchRun *run)
{
        BenchRead *state = run->bench->state;

        /* By the round's number: both sides are measured at the same places. */
        state->seed = UINT64_C(0x2545f4914f6cdd1d) * (run->round + 1);
        for (unsigned i = 0; i < BENCH_RANDOM_READS; i++) {
                state->offsets[i] = next_number(&state->seed) % (run->size_bytes / PIECE_BYTES) * PIECE_BYTES;
                state->items[i] = (struct folio_read_item){
                        .object = state->object,
                        .offset_bytes = state->offsets[i],
                        .buffer = state->target.address + i * PIECE_BYTES,
                        .n_bytes = PIECE_BYTES,
                };
        }
        return CTL_OK;
}

int bench_random_teardown(BenchRun *run)
{
        BenchRead *state = run->bench->state;

        bench_area_deinit(&state->target);
        free(state->offsets);
        free(state->items);
        state->offsets = NULL;
        state->items = NULL;
        return CTL_OK;
}

static int check_pieces(BenchRun *run)
{
        BenchRead *state = run->bench->state;

        for (unsigned i = 0; i < BENCH_RANDOM_READS; i++)
                if (memcmp(state->items[i].buffer, state->source.address + state->offsets[i], PIECE_BYTES) != 0)
                        return ctl_complain(run->bench->ctl, "wrong bytes: a piece at 0x%llx is not what was written",
                                            (unsigned long long)state->offsets[i]);
        return CTL_OK;
}

int bench_random_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        BenchRead *state = bench->state;
        int r = bench_read_make(run, BENCH_CONTENT_WRITTEN);

        if (r != CTL_OK)
                return r;
        run->block_bytes = PIECE_BYTES;
        run->n_units = BENCH_RANDOM_READS;
        run->n_copied_bytes = BENCH_RANDOM_READS * PIECE_BYTES;
        snprintf(run->what, sizeof(run->what), "%u preads of a %s", BENCH_RANDOM_READS,
                 bench_plain_label(&bench->plain, run->c->theirs_pages));
        state->offsets = calloc(BENCH_RANDOM_READS, sizeof(*state->offsets));
        state->items = calloc(BENCH_RANDOM_READS, sizeof(*state->items));
        r = state->offsets && state->items ? bench_area_init(&state->target, run->n_copied_bytes) : -ENOMEM;
        if (r < 0)
                r = ctl_complain(bench->ctl, "no memory to read into: %s", strerror(-r));
        if (r == CTL_OK)
                r = bench_random_prepare(run);
        if (r == CTL_OK)
                r = run->c->ours(run);
        if (r == CTL_OK)
                r = check_pieces(run);
        if (r != CTL_OK)
                (void)bench_random_teardown(run);
        return r;
}

int bench_random_single(BenchRun *run)
{
        BenchRead *state = run->bench->state;
        int r = 0;

        for (unsigned i = 0; r == 0 && i < BENCH_RANDOM_READS; i++)
                r = folio_object_read(state->object, state->items[i].offset_bytes, state->items[i].buffer, PIECE_BYTES);
        return bench_check_store(run, r);
}

int bench_random_many(BenchRun *run)
{
        BenchRead *state = run->bench->state;
        int n_failed = folio_read_many(run->bench->ctl->client, state->items, BENCH_RANDOM_READS);

        if (n_failed <= 0)
                return bench_check_store(run, n_failed);
        for (unsigned i = 0; i < BENCH_RANDOM_READS; i++)
                if (state->items[i].error)
                        return bench_check_store(run, state->items[i].error);
        return CTL_OK;
}

int bench_random_theirs(BenchRun *run)
{
        BenchRead *state = run->bench->state;

        for (unsigned i = 0; i < BENCH_RANDOM_READS; i++) {
                ssize_t n = pread(state->fd, state->items[i].buffer, PIECE_BYTES, (off_t)state->offsets[i]);

                run->bench->n_plain_calls++;
                if (n != (ssize_t)PIECE_BYTES)
                        return bench_check_plain(run, n < 0 ? -errno : -EIO);
        }
        return CTL_OK;
}

int bench_random_copy(BenchRun *run, const BenchCopy *copy)
{
        BenchRead *state = run->bench->state;

        for (unsigned i = 0; i < BENCH_RANDOM_READS; i++)
                copy->run(state->items[i].buffer, state->source.address + state->offsets[i], PIECE_BYTES);
        return CTL_OK;
}
