/* SPDX-License-Identifier: Apache-2.0 */
/* See progress.h. */
#include "client/ctl/progress.h"

#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

#include "client/ctl/text.h"

#define NS_PER_S UINT64_C(1000000000)
#define REDRAW_NS (NS_PER_S / 10)
#define LINE_BYTES 512
#define BAR_COLUMNS_MAX 40

static uint64_t now_ns(void)
{
        struct timespec now;

        /* Cannot fail for this clock. */
        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * NS_PER_S + (uint64_t)now.tv_nsec;
}

void progress_begin(Progress *progress, const char *label, uint64_t total_bytes)
{
        *progress = (Progress){
                .label = label,
                .total_bytes = total_bytes,
                .begun_ns = now_ns(),
                .is_enabled = isatty(STDERR_FILENO),
        };
}

bool progress_is_due(uint64_t done_bytes, uint64_t total_bytes, uint64_t elapsed_ns)
{
        if (elapsed_ns >= NS_PER_S)
                return true;
        if (elapsed_ns < NS_PER_S / 4 || total_bytes == PROGRESS_TOTAL_UNKNOWN)
                return false;
        /* Due if elapsed * total / done >= 1 s. */
        return (unsigned __int128)elapsed_ns * total_bytes >= (unsigned __int128)NS_PER_S * done_bytes;
}

static void render_bar(char *buffer, size_t buffer_bytes, size_t n_columns, uint64_t done_bytes, uint64_t total_bytes)
{
        size_t n_full = total_bytes ? (size_t)((unsigned __int128)done_bytes * n_columns / total_bytes) : n_columns;
        size_t i;

        for (i = 0; i < n_columns && i + 1 < buffer_bytes; i++)
                buffer[i] = i < n_full ? '=' : i == n_full ? '>' : ' ';
        buffer[i] = '\0';
}

void progress_render(char *buffer, size_t buffer_bytes, size_t n_columns, const char *label, uint64_t done_bytes,
                     uint64_t total_bytes, uint64_t elapsed_ns)
{
        char done[TEXT_SIZE_BYTES], total[TEXT_SIZE_BYTES], rate[TEXT_SIZE_BYTES], left[TEXT_DURATION_BYTES];
        char facts[128], bar[BAR_COLUMNS_MAX + 1];
        uint64_t bytes_per_s = elapsed_ns ? (uint64_t)((unsigned __int128)done_bytes * NS_PER_S / elapsed_ns) : 0;
        size_t n_facts, n_label;

        /* What a file that grew has beyond its size is told at the end; the line stays at 100 %. */
        done_bytes = done_bytes < total_bytes ? done_bytes : total_bytes;
        text_format_size(done_bytes, done);
        text_format_size(bytes_per_s, rate);
        if (total_bytes == PROGRESS_TOTAL_UNKNOWN) {
                snprintf(facts, sizeof(facts), "%s  %s/s  %s", done, rate, text_format_duration(elapsed_ns, left));
        } else {
                text_format_size(total_bytes, total);
                if (bytes_per_s)
                        text_format_duration(
                                (uint64_t)((unsigned __int128)(total_bytes - done_bytes) * NS_PER_S / bytes_per_s),
                                left);
                else
                        strcpy(left, "?");
                snprintf(facts, sizeof(facts), "%3u%%  %s of %s  %s/s  %s left",
                         total_bytes ? (unsigned)((unsigned __int128)done_bytes * 100 / total_bytes) : 100, done, total,
                         rate, left);
        }
        n_facts = strlen(facts);
        n_label = text_width(label);
        if (n_columns < n_facts + 1)
                snprintf(buffer, buffer_bytes, "%.*s", (int)(n_columns ? n_columns - 1 : 0), facts);
        else if (n_columns < n_label + 2 + n_facts + 1)
                snprintf(buffer, buffer_bytes, "%s", facts);
        else if (total_bytes == PROGRESS_TOTAL_UNKNOWN || n_columns < n_label + n_facts + 20)
                snprintf(buffer, buffer_bytes, "%s  %s", label, facts);
        else {
                size_t n_bar = n_columns - n_label - n_facts - 7;

                render_bar(bar, sizeof(bar), n_bar < BAR_COLUMNS_MAX ? n_bar : BAR_COLUMNS_MAX, done_bytes,
                           total_bytes);
                snprintf(buffer, buffer_bytes, "%s  [%s]  %s", label, bar, facts);
        }
}

void progress_update(Progress *progress, uint64_t done_bytes)
{
        char line[LINE_BYTES];
        struct winsize size = { 0 };
        uint64_t now;

        if (!progress->is_enabled)
                return;
        now = now_ns();
        if (progress->is_drawn ? now - progress->drawn_ns < REDRAW_NS
                               : !progress_is_due(done_bytes, progress->total_bytes, now - progress->begun_ns))
                return;
        if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) < 0 || size.ws_col == 0)
                size.ws_col = 80;
        progress_render(line, sizeof(line), size.ws_col, progress->label, done_bytes, progress->total_bytes,
                        now - progress->begun_ns);
        fprintf(stderr, "\r%s\033[K", line);
        fflush(stderr);
        progress->drawn_ns = now;
        progress->is_drawn = true;
}

void progress_end(Progress *progress)
{
        if (progress->is_drawn) {
                fputs("\r\033[K", stderr);
                fflush(stderr);
        }
        *progress = (Progress){ 0 };
}
