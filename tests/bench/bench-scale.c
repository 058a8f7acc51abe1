/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: bench-scale [OBJECTS]
 *
 * What one call costs among 1,000 objects of 100 bytes, and among OBJECTS of them (1,000,000), in the foliod that
 * $FOLIO_SOCKET names, which should have no others: put alone, put in a batch, exists, and get with a byte read, of
 * names in random order. Processor time of this thread for the two that ask nobody, wall time for the puts; minimum and
 * median of 9 rounds. Prints; asserts nothing. The objects are removed again.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <folio/folio.h>

#define FEW 1000u
#define ROUNDS 9
#define LOOKS 100000u
#define SINGLE_PUTS 2000u

typedef char Name[16];

static struct folio_client *client;
static Name *names;
static const char bytes[100];
static volatile char seen;

static void check(int answer, const char *what)
{
        if (answer >= 0)
                return;
        fprintf(stderr, "bench-scale: %s: %s\n", what, folio_strerror_full());
        exit(1);
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

/* Of all names below @n, a different order each round. */
static const char *pick(uint32_t *state, unsigned n)
{
        *state = *state * 1664525u + 1013904223u;
        return names[(*state >> 4) % n];
}

static void get_one(const char *name)
{
        struct folio_object *object;

        check(folio_get(client, name, 0, 0, &object), name);
        seen = *(const char *)folio_object_data(object);
        check(folio_object_release(object), name);
}

static void exists_one(const char *name)
{
        check(folio_exists(client, name) == 1 ? 0 : -1, name);
}

/* Minimum and median of the rounds, in microseconds a call. */
static void look(void (*one)(const char *name), unsigned n, double ret[2])
{
        double rounds[ROUNDS];
        uint32_t state = 1;

        for (unsigned i = 0; i < n; i++) /* what is only paid once: pages, mappings */
                one(names[i]);
        for (int r = 0; r < ROUNDS; r++) {
                double begun = clock_us(CLOCK_THREAD_CPUTIME_ID);

                for (unsigned i = 0; i < LOOKS; i++)
                        one(pick(&state, n));
                rounds[r] = (clock_us(CLOCK_THREAD_CPUTIME_ID) - begun) / LOOKS;
        }
        qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
        ret[0] = rounds[0];
        ret[1] = rounds[ROUNDS / 2];
}

/* One by one, and removed again in one go, so that the number stays what it is. */
static void put_singly(double ret[2])
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
                rounds[r] = (clock_us(CLOCK_MONOTONIC) - begun) / SINGLE_PUTS;
                check(folio_delete_many(client, gone, SINGLE_PUTS), "delete");
        }
        qsort(rounds, ROUNDS, sizeof(rounds[0]), compare);
        ret[0] = rounds[0];
        ret[1] = rounds[ROUNDS / 2];
}

static double put_many(unsigned begin, unsigned end)
{
        struct folio_put_item *items = calloc(end - begin, sizeof(*items));
        double begun;
        int n_failed;

        if (!items)
                exit(1);
        for (unsigned i = begin; i < end; i++)
                items[i - begin] = (struct folio_put_item){ .name = names[i], .data = bytes, .size_bytes = sizeof(bytes) };
        begun = clock_us(CLOCK_MONOTONIC);
        n_failed = folio_put_many(client, items, end - begin);
        begun = (clock_us(CLOCK_MONOTONIC) - begun) / (end - begin);
        check(n_failed == 0 ? 0 : -1, "put_many");
        free(items);
        return begun;
}

static void remove_all(unsigned n)
{
        struct folio_delete_item *items = calloc(n, sizeof(*items));

        if (!items)
                exit(1);
        for (unsigned i = 0; i < n; i++)
                items[i] = (struct folio_delete_item){ .name = names[i] };
        check(folio_delete_many(client, items, n), "delete_many");
        free(items);
}

static void print_row(const char *what, const double few[2], const double many[2])
{
        printf("%-10s %8.3f %8.3f   %8.3f %8.3f   %5.2f %5.2f\n", what, few[0], few[1], many[0], many[1],
               many[0] / few[0], many[1] / few[1]);
}

int main(int argc, char **argv)
{
        unsigned n = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : 1000000u;
        double few[3][2], many[3][2], batch[2];

        if (argc > 2 || n <= FEW || n > 100000000u) {
                fprintf(stderr, "usage: bench-scale [OBJECTS], more than %u\n", FEW);
                return 2;
        }
        names = calloc(n, sizeof(*names));
        if (!names)
                return 1;
        for (unsigned i = 0; i < n; i++)
                (void)snprintf(names[i], sizeof(names[i]), "o%u", i);
        check(folio_client_open(NULL, &client), "open");
        batch[0] = put_many(0, FEW);
        look(get_one, FEW, few[0]);
        look(exists_one, FEW, few[1]);
        put_singly(few[2]);
        batch[1] = put_many(FEW, n);
        look(get_one, n, many[0]);
        look(exists_one, n, many[1]);
        put_singly(many[2]);
        printf("microseconds a call, minimum and median of %d rounds\n%-10s %17u   %17u   %11s\n", ROUNDS, "", FEW, n,
               "ratio");
        print_row("get", few[0], many[0]);
        print_row("exists", few[1], many[1]);
        print_row("put", few[2], many[2]);
        printf("%-10s %17.3f   %17.3f   %11.2f\n", "put_many", batch[0], batch[1], batch[1] / batch[0]);
        remove_all(n);
        folio_client_unref(client);
        free(names);
        return 0;
}
