/* SPDX-License-Identifier: Apache-2.0 */
/* See bench-report.h. */
#include "client/ctl/bench-report.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/utsname.h>

#include "client/ctl/output.h"
#include "client/ctl/text.h"

#define GIB ((double)((uint64_t)1 << 30))
#define CELL_BYTES 48
#define LINE_BYTES 256

static const char *const pages_words[_BENCH_PAGES_MAX] = { [BENCH_PAGES_4K] = "4K", [BENCH_PAGES_2M] = "2M" };
static const char *const unit_words[] = {
        [BENCH_UNIT_GIB_S] = "GiB/s",
        [BENCH_UNIT_MS] = "ms",
        [BENCH_UNIT_US] = "us",
};

/* A time in the unit of its case. */
static double in_unit(const BenchRun *run, double time_ns)
{
        double n_units = (double)(run->n_units ? run->n_units : 1);

        switch (run->c->unit) {
        case BENCH_UNIT_GIB_S:
                return n_units / GIB / (time_ns / 1e9);
        case BENCH_UNIT_MS:
                return time_ns / 1e6;
        case BENCH_UNIT_US:
                return time_ns / 1e3 / n_units;
        }
        return 0;
}

/* --- heading ------------------------------------------------------------------------------------------------------ */

/* The word in brackets of a file of settings of the kernel; "?" where there is none. */
static const char *read_choice(const char *path, char buffer[CELL_BYTES])
{
        FILE *file = fopen(path, "re");
        char line[128] = "", *begin, *end;

        strcpy(buffer, "?");
        if (!file)
                return buffer;
        begin = fgets(line, sizeof(line), file) ? strchr(line, '[') : NULL;
        end = begin ? strchr(begin, ']') : NULL;
        if (end)
                snprintf(buffer, CELL_BYTES, "%.*s", (int)(end - begin - 1), begin + 1);
        (void)fclose(file);
        return buffer;
}

static const char *read_processor(char buffer[LINE_BYTES])
{
        FILE *file = fopen("/proc/cpuinfo", "re");
        char line[LINE_BYTES];

        strcpy(buffer, "processor not named");
        while (file && fgets(line, sizeof(line), file)) {
                const char *colon = strncmp(line, "model name", 10) == 0 ? strchr(line, ':') : NULL;

                if (colon) {
                        snprintf(buffer, LINE_BYTES, "%s", colon + 1 + strspn(colon + 1, " "));
                        buffer[strcspn(buffer, "\n")] = '\0';
                        break;
                }
        }
        if (file)
                (void)fclose(file);
        return buffer;
}

static const char *fact_text(const Bench *bench, const char *name, char buffer[LINE_BYTES])
{
        struct folio_status fact;

        if (!bench_store_fact(&bench->store, name, &fact))
                strcpy(buffer, "?");
        else if (*fact.text)
                snprintf(buffer, LINE_BYTES, "%s", fact.text);
        else
                snprintf(buffer, LINE_BYTES, "%llu", (unsigned long long)fact.value);
        return buffer;
}

void bench_report_heading(const Bench *bench)
{
        char processor[LINE_BYTES], thp[CELL_BYTES], shmem[CELL_BYTES], size[TEXT_SIZE_BYTES];
        char version[LINE_BYTES], pid[LINE_BYTES], socket[LINE_BYTES];
        struct utsname system = { 0 };

        (void)uname(&system);
        printf("machine  %ld CPUs, %s, Linux %s, huge pages %s, of shared memory %s\n", sysconf(_SC_NPROCESSORS_ONLN),
               read_processor(processor), system.release,
               read_choice("/sys/kernel/mm/transparent_hugepage/enabled", thp),
               read_choice("/sys/kernel/mm/transparent_hugepage/shmem_enabled", shmem));
        printf("store    foliod %s, pid %s, %s; ", fact_text(bench, "daemon.version", version),
               fact_text(bench, "daemon.pid", pid), fact_text(bench, "daemon.socket", socket));
        for (int i = 0; i < (bench->store.is_own ? _BENCH_PAGES_MAX : 1); i++)
                printf("%s%s (%.0f%% huge)", i ? " and " : "namespace ", bench->store.namespaces[i],
                       100 * bench->store.huge_share[i]);
        if (bench->store.is_own)
                printf(", %s", bench->store.namespaces[BENCH_SPACE_TRUSTED]);
        printf("\nrounds   %u of each, in alternation, at --size %s: ratios are what counts (above 1: Folio is "
               "faster), "
               "other figures are of this machine and hour\n",
               bench->n_rounds, text_format_size(bench->size_bytes, size));
}

/* --- progress ----------------------------------------------------------------------------------------------------- */

static void wipe(BenchReport *report)
{
        if (report->is_drawn) {
                fputs("\r\033[K", stderr);
                fflush(stderr);
        }
        report->is_drawn = false;
}

void bench_report_progress(void *userdata, unsigned n_rounds_done)
{
        BenchReport *report = userdata;
        struct winsize size = { 0 };
        char line[LINE_BYTES];

        if (!isatty(STDERR_FILENO))
                return;
        if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
                size.ws_col = 80;
        snprintf(line, sizeof(line), "bench %s  case %zu of %zu, round %u of %u  %s", report->suite->name,
                 report->n_cases_done + 1, report->suite->n_cases, n_rounds_done + 1, report->bench->n_rounds,
                 report->label ? report->label : "");
        fprintf(stderr, "\r%.*s\033[K", size.ws_col - 1, line);
        fflush(stderr);
        report->is_drawn = true;
}

/* --- rows --------------------------------------------------------------------------------------------------------- */

static const TableColumn columns[] = {
        { "CASE", false },  { "PAGES", false }, { "SIZE", true },  { "BLOCK", true },     { "FOLIO", true },
        { "PLAIN", true },  { "UNIT", false },  { "RATIO", true }, { "SPREAD", true },    { "OF MEMCPY", true },
        { "FAULTS", true }, { "CALLS", true },  { "TRIPS", true }, { "PLAIN IS", false },
};

/* Of a suite of small operations. */
static const TableColumn laps_columns[] = {
        { "CASE", false },     { "WRITERS", false },  { "PAGES", false }, { "SIZE", true },   { "FOLIO", true },
        { "PLAIN", true },     { "UNIT", false },     { "RATIO", true },  { "SPREAD", true }, { "P50 US", true },
        { "P99 US", true },    { "CPU US", true },    { "FAULTS", true }, { "CALLS", true },  { "TRIPS", true },
        { "OF MEMCPY", true }, { "PLAIN IS", false },
};

static bool suite_has_laps(const BenchSuite *suite)
{
        for (size_t i = 0; i < suite->n_cases; i++)
                if (suite->cases[i].has_laps)
                        return true;
        return false;
}

int bench_report_begin(BenchReport *report, const Bench *bench, const BenchSuite *suite)
{
        *report = (BenchReport){ .bench = bench, .suite = suite, .has_laps = suite_has_laps(suite) };
        if (bench->ctl->is_json)
                return CTL_OK;
        report->table = report->has_laps ? table_new(laps_columns, sizeof(laps_columns) / sizeof(laps_columns[0]))
                                         : table_new(columns, sizeof(columns) / sizeof(columns[0]));
        return report->table ? CTL_OK : ctl_out_of_memory(bench->ctl);
}

void bench_report_end(BenchReport *report)
{
        wipe(report);
        if (report->table && report->n_rows > 0) {
                printf("\n%s: %s\n", report->suite->name, report->suite->summary);
                output_table(report->bench->ctl, report->table);
                fflush(stdout);
        } else {
                table_free(report->table);
        }
        report->table = NULL;
}

/* Three digits, no more: "0.123", "1.23", "12.3", "1234". */
static const char *format_figure(double value, char buffer[CELL_BYTES])
{
        int n_decimals = value < 1 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0;

        snprintf(buffer, CELL_BYTES, "%.*f", n_decimals, value);
        return buffer;
}

/* "ours/theirs", an unknown one as "?". */
static const char *format_pair(uint64_t ours, uint64_t theirs, char buffer[CELL_BYTES])
{
        char left[CELL_BYTES / 2] = "?", right[CELL_BYTES / 2] = "?";

        if (ours != BENCH_UNKNOWN)
                snprintf(left, sizeof(left), "%llu", (unsigned long long)ours);
        if (theirs != BENCH_UNKNOWN)
                snprintf(right, sizeof(right), "%llu", (unsigned long long)theirs);
        snprintf(buffer, CELL_BYTES, "%s/%s", left, right);
        return buffer;
}

/* Two times in us; "-" where there are none. */
static const char *format_times(double ours_ns, double theirs_ns, char buffer[CELL_BYTES])
{
        char left[CELL_BYTES], right[CELL_BYTES];

        if (ours_ns < 0 || theirs_ns < 0)
                return "-";
        snprintf(buffer, CELL_BYTES, "%.20s/%.20s", format_figure(ours_ns / 1e3, left),
                 format_figure(theirs_ns / 1e3, right));
        return buffer;
}

/* What waiting processes use, for one operation. */
static double waiters_ns(const BenchRun *run, const BenchSide *side)
{
        return side->waiters_cpu_ns > 0 && run->n_units ? side->waiters_cpu_ns / (double)run->n_units : -1;
}

static const char *writers_word(const BenchRun *run)
{
        return run->c->is_trusted ? "trusted" : "untrusted";
}

/* The cells that both kinds of table have. */
typedef struct Cells {
        char size[TEXT_SIZE_BYTES], block[TEXT_SIZE_BYTES], ours[CELL_BYTES], theirs[CELL_BYTES], ratio[CELL_BYTES],
                spread[CELL_BYTES], fraction[CELL_BYTES], faults[CELL_BYTES], calls[CELL_BYTES], asked[CELL_BYTES];
} Cells;

static void fill_cells(const BenchRun *run, const BenchResult *result, Cells *cells)
{
        *cells = (Cells){ .block = "-", .fraction = "-", .asked = "?" };
        (void)text_format_size(run->size_bytes, cells->size);
        if (run->block_bytes)
                (void)text_format_size(run->block_bytes, cells->block);
        (void)format_figure(in_unit(run, result->ours.time_ns), cells->ours);
        (void)format_figure(in_unit(run, result->theirs.time_ns), cells->theirs);
        snprintf(cells->ratio, sizeof(cells->ratio), "%.2fx", result->ratio);
        snprintf(cells->spread, sizeof(cells->spread), "%.0f%%", 100 * result->spread);
        if (result->fraction >= 0)
                snprintf(cells->fraction, sizeof(cells->fraction), "%.0f%%", 100 * result->fraction);
        (void)format_pair(result->ours.n_faults, result->theirs.n_faults, cells->faults);
        (void)format_pair(result->ours.n_calls, result->theirs.n_calls, cells->calls);
        if (result->n_round_trips != BENCH_UNKNOWN)
                snprintf(cells->asked, sizeof(cells->asked), "%llu", (unsigned long long)result->n_round_trips);
}

static int add_plain_row(BenchReport *report, const BenchRun *run, const BenchResult *result)
{
        Cells c;

        fill_cells(run, result, &c);
        return table_add(report->table, 0,
                         (const char *const[]){ run->c->name, pages_words[run->c->pages], c.size, c.block, c.ours,
                                                c.theirs, unit_words[run->c->unit], c.ratio, c.spread, c.fraction,
                                                c.faults, c.calls, c.asked, run->what });
}

static int add_laps_row(BenchReport *report, const BenchRun *run, const BenchResult *result)
{
        const BenchSide *ours = &result->ours, *theirs = &result->theirs;
        char p50[CELL_BYTES], p99[CELL_BYTES], cpu[CELL_BYTES];
        Cells c;

        fill_cells(run, result, &c);
        return table_add(report->table, 0,
                         (const char *const[]){ run->c->name, writers_word(run), pages_words[run->c->pages], c.size,
                                                c.ours, c.theirs, unit_words[run->c->unit], c.ratio, c.spread,
                                                format_times(ours->p50_ns, theirs->p50_ns, p50),
                                                format_times(ours->p99_ns, theirs->p99_ns, p99),
                                                format_times(waiters_ns(run, ours), waiters_ns(run, theirs), cpu),
                                                c.faults, c.calls, c.asked, c.fraction, run->what });
}

static int add_row(BenchReport *report, const BenchRun *run, const BenchResult *result)
{
        int r = report->has_laps ? add_laps_row(report, run, result) : add_plain_row(report, run, result);

        return r < 0 ? ctl_out_of_memory(report->bench->ctl) : CTL_OK;
}

/* --- JSON --------------------------------------------------------------------------------------------------------- */

/* What is no number becomes null. */
static json_t *real_json(double value)
{
        return isfinite(value) ? json_real(value) : json_null();
}

/* Adds nothing for what is not known. 0, or -1: no memory. */
static int set_count(json_t *object, const char *name, uint64_t n)
{
        return n == BENCH_UNKNOWN ? 0 : json_object_set_new(object, name, json_integer((json_int_t)n));
}

static int set_share(json_t *object, const char *name, double share)
{
        return share < 0 ? 0 : json_object_set_new(object, name, real_json(share));
}

/* In us; adds nothing for what was not counted. */
static int set_time(json_t *object, const char *name, double time_ns)
{
        return time_ns < 0 ? 0 : json_object_set_new(object, name, real_json(time_ns / 1e3));
}

static int set_times(json_t *object, const BenchRun *run, const BenchResult *result)
{
        int r = set_time(object, "p50_ours", result->ours.p50_ns);

        r = r < 0 ? r : set_time(object, "p99_ours", result->ours.p99_ns);
        r = r < 0 ? r : set_time(object, "p50_theirs", result->theirs.p50_ns);
        r = r < 0 ? r : set_time(object, "p99_theirs", result->theirs.p99_ns);
        r = r < 0 ? r : set_time(object, "waiter_cpu_ours", waiters_ns(run, &result->ours));
        return r < 0 ? r : set_time(object, "waiter_cpu_theirs", waiters_ns(run, &result->theirs));
}

static json_t *result_json(const BenchReport *report, const BenchRun *run, const BenchResult *result)
{
        json_t *object = json_pack("{s:s, s:s, s:s, s:I, s:I, s:o, s:o, s:s, s:o, s:o, s:s, s:s, s:s, s:i}", "suite",
                                   report->suite->name, "case", run->c->name, "writers", writers_word(run), "size",
                                   (json_int_t)run->size_bytes, "block", (json_int_t)run->block_bytes, "ours",
                                   real_json(in_unit(run, result->ours.time_ns)), "theirs",
                                   real_json(in_unit(run, result->theirs.time_ns)), "unit", unit_words[run->c->unit],
                                   "ratio", real_json(result->ratio), "spread", real_json(result->spread), "what",
                                   run->what, "pages", pages_words[run->c->pages], "theirs_pages",
                                   pages_words[run->c->theirs_pages], "rounds", (int)report->bench->n_rounds);
        int r = object ? 0 : -1;

        r = r < 0 ? r : set_share(object, "huge", run->huge_share);
        r = r < 0 ? r : set_share(object, "theirs_huge", run->theirs_huge_share);
        r = r < 0 ? r : set_share(object, "fraction", result->fraction);
        if (r == 0 && result->copy)
                r = json_object_set_new(object, "memcpy", json_string(result->copy));
        r = r < 0 ? r : set_times(object, run, result);
        r = r < 0 ? r : set_count(object, "faults", result->ours.n_faults);
        r = r < 0 ? r : set_count(object, "theirs_faults", result->theirs.n_faults);
        r = r < 0 ? r : set_count(object, "calls", result->ours.n_calls);
        r = r < 0 ? r : set_count(object, "theirs_calls", result->theirs.n_calls);
        r = r < 0 ? r : set_count(object, "tlb_misses", result->ours.n_tlb_misses);
        r = r < 0 ? r : set_count(object, "theirs_tlb_misses", result->theirs.n_tlb_misses);
        r = r < 0 ? r : set_count(object, "round_trips", result->n_round_trips);
        r = r < 0 ? r : set_count(object, "records", result->n_records);
        if (r == 0)
                return object;
        json_decref(object);
        return NULL;
}

/* Six digits are more than any clock has told. */
static int print_json(BenchReport *report, const BenchRun *run, const BenchResult *result)
{
        json_t *object = result_json(report, run, result);

        if (!object)
                return ctl_out_of_memory(report->bench->ctl);
        /* Whether it got out is found at the end, once for everything. */
        (void)json_dumpf(object, stdout, JSON_COMPACT | JSON_REAL_PRECISION(6));
        json_decref(object);
        putchar('\n');
        fflush(stdout);
        return CTL_OK;
}

int bench_report_add(BenchReport *report, const BenchRun *run, const BenchResult *result)
{
        wipe(report);
        report->n_rows++;
        return report->bench->ctl->is_json ? print_json(report, run, result) : add_row(report, run, result);
}
