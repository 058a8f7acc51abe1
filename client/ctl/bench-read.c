/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite `read`: folio_object_read() of an object that is mapped, from its beginning on, against pread() of a tmpfs
 * file of the same pages, filled in the same way; both into one buffer of the block's size. A round reads the next
 * quarter of the object, the same on both sides: over the rounds all of it comes round again and again, and nothing
 * that is read was read a moment ago.
 */
#include "client/ctl/bench-read.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define KIB ((uint64_t)1 << 10)
#define MIB ((uint64_t)1 << 20)
#define KEY "read"
#define N_WINDOWS 4
#define BUFFER_BYTES BENCH_HUGE_BYTES
#define SEED UINT64_C(0x9e3779b97f4a7c15)

/* --- the object and the file -------------------------------------------------------------------------------------- */

void bench_read_drop(Bench *bench)
{
        BenchRead *state = bench->state;

        if (state->object)
                bench_store_drop(&bench->store, (BenchSpace)state->pages, KEY, state->object);
        if (state->fd >= 0)
                (void)close(state->fd);
        state->object = NULL;
        state->fd = -1;
        state->is_made = false;
}

static int make_both(BenchRun *run, BenchContent content)
{
        Bench *bench = run->bench;
        BenchRead *state = bench->state;
        int r;

        state->pages = run->c->pages;
        state->theirs_pages = run->c->theirs_pages;
        state->content = content;
        r = bench_store_make(&bench->store, (BenchSpace)state->pages, KEY, content, state->source.address,
                             bench->size_bytes, &state->object);
        if (r != CTL_OK)
                return r;
        r = bench_plain_make(&bench->plain, state->theirs_pages, content, state->source.address, bench->size_bytes,
                             &state->fd);
        state->is_made = r == 0;
        return bench_check_plain(run, r);
}

int bench_read_make(BenchRun *run, BenchContent content)
{
        Bench *bench = run->bench;
        BenchRead *state = bench->state;
        int r = CTL_OK;

        if (!bench_can_run(run))
                return BENCH_LEFT_OUT;
        if (!state->is_made || state->pages != run->c->pages || state->theirs_pages != run->c->theirs_pages ||
            state->content != content) {
                bench_read_drop(bench);
                r = make_both(run, content);
        }
        if (r != CTL_OK)
                return r;
        run->size_bytes = bench->size_bytes;
        if (content == BENCH_CONTENT_WRITTEN) {
                run->huge_share = bench_store_huge_share(state->object);
                run->theirs_huge_share = bench_plain_huge_share(state->fd, bench->size_bytes);
        }
        return CTL_OK;
}

/* --- from the beginning to the end -------------------------------------------------------------------------------- */

static uint64_t window_bytes(const BenchRun *run)
{
        return run->bench->size_bytes / N_WINDOWS;
}

static uint64_t window_offset(const BenchRun *run)
{
        return run->round % N_WINDOWS * window_bytes(run);
}

static int read_ours(BenchRun *run)
{
        BenchRead *state = run->bench->state;
        uint64_t offset = window_offset(run), end = offset + window_bytes(run);
        int r = 0;

        for (; r == 0 && offset < end; offset += run->block_bytes)
                r = folio_object_read(state->object, offset, state->buffer.address, (size_t)run->block_bytes);
        return bench_check_store(run, r);
}

static int read_theirs(BenchRun *run)
{
        BenchRead *state = run->bench->state;
        uint64_t offset = window_offset(run), end = offset + window_bytes(run);

        for (; offset < end; offset += run->block_bytes) {
                ssize_t n = pread(state->fd, state->buffer.address, (size_t)run->block_bytes, (off_t)offset);

                run->bench->n_plain_calls++;
                if (n != (ssize_t)run->block_bytes)
                        return bench_check_plain(run, n < 0 ? -errno : -EIO);
        }
        return CTL_OK;
}

static int read_copy(BenchRun *run, const BenchCopy *copy)
{
        BenchRead *state = run->bench->state;
        uint64_t offset = window_offset(run), end = offset + window_bytes(run);

        for (; offset < end; offset += run->block_bytes)
                copy->run(state->buffer.address, state->source.address + offset, (size_t)run->block_bytes);
        return CTL_OK;
}

/* Everything is read once, which also maps and faults in what will be, and is compared with what must be there. */
static int check_ours(BenchRun *run)
{
        BenchRead *state = run->bench->state;

        for (uint64_t offset = 0; offset < run->size_bytes; offset += run->block_bytes) {
                const unsigned char *bytes = state->buffer.address;
                int r = folio_object_read(state->object, offset, state->buffer.address, (size_t)run->block_bytes);
                bool is_right;

                if (r < 0)
                        return bench_check_store(run, r);
                if (state->content == BENCH_CONTENT_WRITTEN)
                        is_right = memcmp(bytes, state->source.address + offset, (size_t)run->block_bytes) == 0;
                else
                        is_right = bytes[0] == 0 && memcmp(bytes, bytes + 1, (size_t)run->block_bytes - 1) == 0;
                if (!is_right)
                        return ctl_complain(
                                run->bench->ctl,
                                "wrong bytes: reading %s of 0x%llx bytes at 0x%llx gave others than were written",
                                run->c->name, (unsigned long long)run->block_bytes, (unsigned long long)offset);
        }
        return CTL_OK;
}

static int read_setup(BenchRun *run)
{
        Bench *bench = run->bench;
        int r = bench_read_make(run, (BenchContent)run->c->kind);

        if (r != CTL_OK)
                return r;
        run->block_bytes = run->c->block_bytes;
        run->n_units = window_bytes(run);
        run->n_copied_bytes = run->n_units;
        snprintf(run->what, sizeof(run->what), "pread of a %s%s",
                 bench_plain_label(&bench->plain, run->c->theirs_pages),
                 run->c->kind == BENCH_CONTENT_WRITTEN    ? ""
                 : run->c->kind == BENCH_CONTENT_RESERVED ? ", fallocated"
                                                          : ", all hole");
        return check_ours(run);
}

/* --- the suite ---------------------------------------------------------------------------------------------------- */

static int suite_open(Bench *bench)
{
        BenchRead *state = calloc(1, sizeof(*state));
        int r;

        if (!state)
                return ctl_out_of_memory(bench->ctl);
        state->fd = -1;
        bench->state = state;
        r = bench_area_init(&state->source, (size_t)bench->size_bytes);
        if (r == 0)
                r = bench_area_init(&state->buffer, BUFFER_BYTES);
        if (r < 0)
                return ctl_complain(bench->ctl, "no memory to read into: %s", strerror(-r));
        bench_fill(state->source.address, (size_t)bench->size_bytes, SEED);
        return CTL_OK;
}

static void suite_close(Bench *bench)
{
        BenchRead *state = bench->state;

        if (!state)
                return;
        bench_read_drop(bench);
        bench_area_deinit(&state->source);
        bench_area_deinit(&state->buffer);
        free(state);
        bench->state = NULL;
}

static uint64_t suite_store_bytes(const Bench *bench)
{
        return bench->size_bytes;
}

/* The plain file; what both hold, in ordinary memory; and what a new process reads into. */
static uint64_t suite_other_bytes(const Bench *bench)
{
        return 3 * bench->size_bytes + BENCH_RANDOM_READS * BENCH_PAGE_BYTES;
}

#define SEQUENTIAL(content_name, content, page_kind, block)                                                            \
        {                                                                                                              \
                .name = content_name, .kind = content, .pages = page_kind, .theirs_pages = page_kind,                  \
                .block_bytes = block, .unit = BENCH_UNIT_GIB_S, .setup = read_setup, .ours = read_ours,                \
                .theirs = read_theirs, .reference = read_copy                                                          \
        }
#define SEQUENTIAL_BLOCKS(content_name, content, page_kind)                                                            \
        SEQUENTIAL(content_name, content, page_kind, 1 * MIB), SEQUENTIAL(content_name, content, page_kind, 64 * KIB), \
                SEQUENTIAL(content_name, content, page_kind, 4 * KIB)
#define FIRST(page_kind)                                                                                               \
        {                                                                                                              \
                .name = "first", .pages = page_kind, .theirs_pages = page_kind, .unit = BENCH_UNIT_GIB_S,              \
                .is_self_measured = true, .setup = bench_first_setup, .ours = bench_first_ours,                        \
                .theirs = bench_first_theirs, .reference = bench_first_copy                                            \
        }
#define RANDOM(case_name, step, page_kind)                                                                             \
        {                                                                                                              \
                .name = case_name, .pages = page_kind, .theirs_pages = page_kind, .unit = BENCH_UNIT_US,               \
                .setup = bench_random_setup, .prepare = bench_random_prepare, .ours = step,                            \
                .prepare_theirs = bench_random_prepare, .theirs = bench_random_theirs, .reference = bench_random_copy, \
                .teardown = bench_random_teardown                                                                      \
        }
/* Cases that share an object stand together: it is made once. */
#define ALL(page_kind)                                                                                                 \
        SEQUENTIAL_BLOCKS("normal", BENCH_CONTENT_WRITTEN, page_kind), FIRST(page_kind),                               \
                RANDOM("random", bench_random_single, page_kind), RANDOM("random-many", bench_random_many, page_kind), \
                SEQUENTIAL_BLOCKS("fallocated", BENCH_CONTENT_RESERVED, page_kind),                                    \
                SEQUENTIAL_BLOCKS("hole", BENCH_CONTENT_HOLE, page_kind)

static const BenchCase cases[] = { ALL(BENCH_PAGES_4K), ALL(BENCH_PAGES_2M) };

const BenchSuite bench_suite_read = {
        .name = "read",
        .summary = "from beginning to end, the whole once by a new process (first), and 10,000 pieces from all over "
                   "(random)",
        .cases = cases,
        .n_cases = sizeof(cases) / sizeof(cases[0]),
        .store_bytes = suite_store_bytes,
        .other_bytes = suite_other_bytes,
        .open = suite_open,
        .close = suite_close,
};
