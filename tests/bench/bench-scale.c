/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench-scale [OBJECTS]
 *
 * What one call costs among 1,000 objects of 100 bytes, and among OBJECTS of them (1,000,000), in the foliod that
 * $FOLIO_SOCKET names, which should have no others: get with a byte read, exists, stat and read, each alone and in
 * calls of 256, of names in random order; hot: of a thousand names that are spread over all of them, again and again;
 * put alone, and in a batch. Beside them what bounds them: a miss, one load whose address the load before it has
 * brought, in as much memory of huge pages as index and objects take. A name alone waits for several of these one after
 * the other; names of one call wait together.
 *
 * Names are made in lots, outside the measured time, so that they are in the nearest cache for both sizes. Processor
 * time of this thread for what asks nobody, wall time for the puts; minimum and median of the lots. Prints; asserts
 * nothing. The objects are removed again.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include <folio/folio.h>

#define FEW 1000u
#define LOTS 200                     /* of names, each measured for itself */
#define LOT 1024u
#define CALL 256u                    /* items of a batch */
#define ROUNDS 9
#define SINGLE_PUTS 2000u
#define OBJECT_BYTES 100u

typedef char Name[16];

typedef struct Figure {
        double least;
        double median;
} Figure;

static struct folio_client *client;
static const char bytes[OBJECT_BYTES];
static char room[LOT][OBJECT_BYTES];
static struct folio_stat stats[CALL];
static volatile char seen;
static uint32_t random_state = 1;

static void check(int answer, const char *what)
{
        if (answer >= 0)
                return;
        fprintf(stderr, "bench-scale: %s: %s\n", what, folio_strerror_full());
        exit(1);
}

/* Of a batch: how many have failed. */
static void check_many(int answer, const char *what)
{
        check(answer == 0 ? 0 : -1, what);
}

static void *allocate(size_t n, size_t each_bytes)
{
        void *p = calloc(n, each_bytes);

        if (!p)
                exit(1);
        return p;
}

static double clock_us(clockid_t clock)
{
        struct timespec now;

        (void)clock_gettime(clock, &now);
        return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int compare(const void *a, const void *b)
{
        double x = *(const double *)a, y = *(const double *)b;

        return (x > y) - (x < y);
}

static Figure figure(double *rounds, size_t n)
{
        qsort(rounds, n, sizeof(rounds[0]), compare);
        return (Figure){ rounds[0], rounds[n / 2] };
}

static void make_name(Name name, unsigned i)
{
        (void)snprintf(name, sizeof(Name), "o%u", i);
}

/* Of all below @n, a different order each time. */
static unsigned pick(unsigned n)
{
        random_state = random_state * 1664525u + 1013904223u;
        return (unsigned)((uint64_t)random_state * n >> 32);
}

/* --- what is measured ------------------------------------------------------------------------------------------- */

/* Each goes through LOT names. */

static void get_each(Name *names)
{
        for (unsigned i = 0; i < LOT; i++) {
                struct folio_object *object;

                check(folio_get(client, names[i], 0, 0, &object), names[i]);
                seen = *(const char *)folio_object_data(object);
                check(folio_object_release(object), names[i]);
        }
}

static void exists_each(Name *names)
{
        for (unsigned i = 0; i < LOT; i++)
                check(folio_exists(client, names[i]) == 1 ? 0 : -1, names[i]);
}

static void stat_each(Name *names)
{
        for (unsigned i = 0; i < LOT; i++) {
                stats[0].struct_bytes = sizeof(stats[0]);
                check(folio_stat(client, names[i], &stats[0]), names[i]);
        }
}

static void read_each(Name *names)
{
        for (unsigned i = 0; i < LOT; i++)
                check(folio_read(client, names[i], 0, room[i], OBJECT_BYTES), names[i]);
}

static void get_many(Name *names)
{
        struct folio_get_item items[CALL];

        for (unsigned at = 0; at < LOT; at += CALL) {
                for (unsigned i = 0; i < CALL; i++)
                        items[i] = (struct folio_get_item){ .name = names[at + i] };
                check_many(folio_get_many(client, items, CALL, 0, 0), "get_many");
                for (unsigned i = 0; i < CALL; i++) {
                        seen = *(const char *)folio_object_data(items[i].object);
                        check(folio_object_release(items[i].object), names[at + i]);
                }
        }
}

static void stat_many(Name *names)
{
        struct folio_stat_item items[CALL];

        for (unsigned at = 0; at < LOT; at += CALL) {
                for (unsigned i = 0; i < CALL; i++) {
                        stats[i].struct_bytes = sizeof(stats[i]);
                        items[i] = (struct folio_stat_item){ .name = names[at + i], .stat = &stats[i] };
                }
                check_many(folio_stat_many(client, items, CALL), "stat_many");
        }
}

static void read_many(Name *names)
{
        struct folio_read_item items[CALL];

        for (unsigned at = 0; at < LOT; at += CALL) {
                for (unsigned i = 0; i < CALL; i++)
                        items[i] = (struct folio_read_item){ .name = names[at + i], .buffer = room[at + i],
                                                             .n_bytes = OBJECT_BYTES };
                check_many(folio_read_many(client, items, CALL), "read_many");
        }
}

static const struct {
        const char *what;
        void (*lot)(Name *names);
        unsigned n_names_max;        /* how many different ones come; 0: all */
} rows[] = {
        { "get", get_each, 0 },
        { "exists", exists_each, 0 },
        { "stat", stat_each, 0 },
        { "read", read_each, 0 },
        { "get hot", get_each, FEW },
        { "exists hot", exists_each, FEW },
        { "stat hot", stat_each, FEW },
        { "read hot", read_each, FEW },
        { "get_many", get_many, 0 },
        { "stat_many", stat_many, 0 },
        { "read_many", read_many, 0 },
};

#define N_ROWS (sizeof(rows) / sizeof(rows[0]))

/* Microseconds a name, of @n_names spread over all @n. */
static Figure look(void (*lot)(Name *names), unsigned n, unsigned n_names)
{
        static Name names[LOT];
        double rounds[LOTS];

        /* What is only paid once: pages of pins, mappings. */
        for (unsigned at = 0; at < n; at += LOT) {
                for (unsigned i = 0; i < LOT; i++)
                        make_name(names[i], (at + i) % n);
                lot(names);
        }
        for (int r = 0; r < LOTS; r++) {
                double begun;

                for (unsigned i = 0; i < LOT; i++)
                        make_name(names[i], pick(n_names) * (n / n_names));
                begun = clock_us(CLOCK_THREAD_CPUTIME_ID);
                lot(names);
                rounds[r] = (clock_us(CLOCK_THREAD_CPUTIME_ID) - begun) / LOT;
        }
        return figure(rounds, LOTS);
}

/* --- what bounds it --------------------------------------------------------------------------------------------- */

/* All cache lines of the memory in one ring, in random order, so that each load waits for the one before. */
static void **make_ring(char *memory, size_t n_lines)
{
        uint32_t *order = allocate(n_lines, sizeof(*order));

        for (size_t i = 0; i < n_lines; i++)
                order[i] = (uint32_t)i;
        for (size_t i = n_lines - 1; i > 0; i--) {
                size_t j = pick((unsigned)i);
                uint32_t other = order[i];

                order[i] = order[j];
                order[j] = other;
        }
        for (size_t i = 0; i < n_lines; i++)
                *(void **)(void *)(memory + order[i] * 64ul) = memory + order[(i + 1) % n_lines] * 64ul;
        free(order);
        return (void **)(void *)memory;
}

static Figure miss(unsigned n)
{
        /* Of each object: its slot, its share of a bucket, its chunk. */
        size_t n_bytes = ((size_t)n * (128 + 16 + 128) | 4095) + 1, n_mapped = n_bytes + (2u << 20);
        char *reserved = mmap(NULL, n_mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        char *memory = (char *)(((uintptr_t)reserved + (2u << 20) - 1) & ~(uintptr_t)((2u << 20) - 1));
        double rounds[LOTS];
        void **at;

        if (reserved == MAP_FAILED)
                exit(1);
        (void)madvise(memory, n_bytes, MADV_HUGEPAGE);
        at = make_ring(memory, n_bytes / 64);
        for (int r = -1; r < LOTS; r++) {
                double begun = clock_us(CLOCK_THREAD_CPUTIME_ID);

                for (unsigned i = 0; i < 4 * LOT; i++)
                        at = *at;
                if (r >= 0)
                        rounds[r] = (clock_us(CLOCK_THREAD_CPUTIME_ID) - begun) / (4 * LOT);
        }
        seen = *(char *)(void *)at;
        (void)munmap(reserved, n_mapped);
        return figure(rounds, LOTS);
}

/* --- putting ---------------------------------------------------------------------------------------------------- */

/* One by one, and removed again in one go, so that the number stays what it is. */
static Figure put_singly(void)
{
        static struct folio_delete_item gone[SINGLE_PUTS];
        static Name extra[SINGLE_PUTS];
        double rounds[ROUNDS];

        for (int r = 0; r < ROUNDS; r++) {
                double begun = clock_us(CLOCK_MONOTONIC);

                for (unsigned i = 0; i < SINGLE_PUTS; i++) {
                        (void)snprintf(extra[i], sizeof(extra[i]), "x%u", i);
                        check(folio_put(client, extra[i], bytes, sizeof(bytes), NULL), extra[i]);
                        gone[i] = (struct folio_delete_item){ .name = extra[i] };
                }
                check(folio_flush(client), "flush");
                rounds[r] = (clock_us(CLOCK_MONOTONIC) - begun) / SINGLE_PUTS;
                check_many(folio_delete_many(client, gone, SINGLE_PUTS), "delete");
        }
        return figure(rounds, ROUNDS);
}

static double put_many(unsigned begin, unsigned end)
{
        struct folio_put_item *items = allocate(end - begin, sizeof(*items));
        Name *names = allocate(end - begin, sizeof(*names));
        double begun;

        for (unsigned i = 0; i < end - begin; i++) {
                make_name(names[i], begin + i);
                items[i] = (struct folio_put_item){ .name = names[i], .data = bytes, .size_bytes = sizeof(bytes) };
        }
        begun = clock_us(CLOCK_MONOTONIC);
        check_many(folio_put_many(client, items, end - begin), "put_many");
        begun = (clock_us(CLOCK_MONOTONIC) - begun) / (end - begin);
        free(names);
        free(items);
        return begun;
}

static void remove_all(unsigned n)
{
        struct folio_delete_item *items = allocate(n, sizeof(*items));
        Name *names = allocate(n, sizeof(*names));

        for (unsigned i = 0; i < n; i++) {
                make_name(names[i], i);
                items[i] = (struct folio_delete_item){ .name = names[i] };
        }
        check(folio_delete_many(client, items, n), "delete_many");
        free(names);
        free(items);
}

static void print_row(const char *what, Figure few, Figure many)
{
        printf("%-10s %8.3f %8.3f   %8.3f %8.3f   %5.2f %5.2f\n", what, few.least, few.median, many.least, many.median,
               many.least / few.least, many.median / few.median);
}

int main(int argc, char **argv)
{
        unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000000u;
        Figure few[N_ROWS + 2], many[N_ROWS + 2];
        double batch[2];

        if (argc > 2 || n <= FEW || n > 100000000u) {
                fprintf(stderr, "usage: bench-scale [OBJECTS], more than %u\n", FEW);
                return 2;
        }
        check(folio_client_open(NULL, &client), "open");
        batch[0] = put_many(0, FEW);
        for (size_t i = 0; i < N_ROWS; i++)
                few[i] = look(rows[i].lot, FEW, FEW);
        few[N_ROWS] = miss(FEW);
        few[N_ROWS + 1] = put_singly();
        batch[1] = put_many(FEW, n);
        for (size_t i = 0; i < N_ROWS; i++)
                many[i] = look(rows[i].lot, n, rows[i].n_names_max ? rows[i].n_names_max : n);
        many[N_ROWS] = miss(n);
        many[N_ROWS + 1] = put_singly();
        printf("microseconds an object, minimum and median of %d lots of %u; *_many: %u in a call\n%-10s %17u   %17u   %11s\n",
               LOTS, LOT, CALL, "", FEW, n, "ratio");
        for (size_t i = 0; i < N_ROWS; i++)
                print_row(rows[i].what, few[i], many[i]);
        print_row("one miss", few[N_ROWS], many[N_ROWS]);
        print_row("put", few[N_ROWS + 1], many[N_ROWS + 1]);
        printf("%-10s %17.3f   %17.3f   %11.2f\n", "put_many", batch[0], batch[1], batch[1] / batch[0]);
        remove_all(n);
        folio_client_unref(client);
        return 0;
}
