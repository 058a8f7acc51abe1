/* SPDX-License-Identifier: Apache-2.0 */
/* See transfer.h. */
#include "client/ctl/transfer.h"

#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "client/ctl/progress.h"
#include "client/ctl/text.h"

/*
 * The library copies; here it is told how much at a time, so that the progress line moves: slices that take about a
 * tenth of a second, whatever the other end is.
 */
#define SLICE_BYTES_MIN ((uint64_t)1 << 20)
#define SLICE_BYTES_MAX ((uint64_t)128 << 20)
#define SLICE_SHORT_NS UINT64_C(50000000)
#define SLICE_LONG_NS UINT64_C(200000000)
#define BLOCK_BYTES ((size_t)1 << 20)
#define BUFFER_ALIGNMENT ((size_t)4096)

typedef struct Bar {
        char *label;
        Progress progress;
        uint64_t slice_bytes; /* the next one */
        uint64_t slice_begun_ns;
} Bar;

static uint64_t now_ns(void)
{
        struct timespec now;

        (void)clock_gettime(CLOCK_MONOTONIC, &now);
        return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void bar_end(Bar *bar)
{
        progress_end(&bar->progress);
        free(bar->label);
}

static void bar_begin(Bar *bar, const char *name, uint64_t total_bytes)
{
        bar->label = text_escape(name);
        progress_begin(&bar->progress, bar->label ? bar->label : "", total_bytes);
        bar->slice_bytes = SLICE_BYTES_MIN;
        bar->slice_begun_ns = now_ns();
}

/* A slice is done, up to @done_bytes. */
static void bar_update(Bar *bar, uint64_t done_bytes)
{
        uint64_t now = now_ns(), took_ns = now - bar->slice_begun_ns;

        if (took_ns < SLICE_SHORT_NS && bar->slice_bytes < SLICE_BYTES_MAX)
                bar->slice_bytes *= 2;
        else if (took_ns > SLICE_LONG_NS && bar->slice_bytes > SLICE_BYTES_MIN)
                bar->slice_bytes /= 2;
        bar->slice_begun_ns = now;
        progress_update(&bar->progress, done_bytes);
}

static uint64_t bar_get_slice(const Bar *bar, uint64_t n_left)
{
        return n_left < bar->slice_bytes ? n_left : bar->slice_bytes;
}

static int complain_read(Ctl *ctl, const Source *source, int error)
{
        return ctl_complain(ctl, "cannot read %s: %s", source->label, strerror(-error));
}

int transfer_complain_changed(Ctl *ctl, const Source *source, const char *name, bool has_grown, uint64_t found_bytes)
{
        char expected[TEXT_SIZE_BYTES], found[TEXT_SIZE_BYTES];

        text_format_size(source->size_bytes, expected);
        if (has_grown)
                return ctl_complain(
                        ctl,
                        "cannot put %s: %s grew beyond %s (%llu bytes) while it was read; stop who writes it, "
                        "or store what there is when it has been read: `cat FILE | folioctl put - NAME`",
                        name, source->label, expected, (unsigned long long)source->size_bytes);
        return ctl_complain(
                ctl, "cannot put %s: %s shrank from %s to %s (%llu of %llu bytes) while it was read; put it again",
                name, source->label, expected, text_format_size(found_bytes, found), (unsigned long long)found_bytes,
                (unsigned long long)source->size_bytes);
}

/* One source on its way into one object. */
typedef struct Fill {
        Ctl *ctl;
        Source *source;
        struct folio_object *object;
        const char *name;
        Bar bar;
} Fill;

static void fill_deinit(Fill *fill)
{
        bar_end(&fill->bar);
}

static void fill_init(Fill *fill, Ctl *ctl, Source *source, struct folio_object *object, const char *name)
{
        *fill = (Fill){ .ctl = ctl, .source = source, .object = object, .name = name };
        bar_begin(&fill->bar, name, source->is_size_known ? source->size_bytes : PROGRESS_TOTAL_UNKNOWN);
}

/* FOLIO_E_IO is of the source, most likely; the sentence says it. */
static int fill_complain(Fill *fill, int error)
{
        progress_end(&fill->bar.progress);
        if (error == FOLIO_E_IO)
                return ctl_complain(fill->ctl, "cannot put %s from %s: %s", fill->name, fill->source->label,
                                    folio_strerror_full());
        return ctl_fail(fill->ctl, error, "put", fill->name);
}

/* Is the file as long as it said? */
static int fill_check_size(Fill *fill)
{
        uint64_t found_bytes;
        int r = source_get_size(fill->source, &found_bytes);

        if (r < 0)
                return complain_read(fill->ctl, fill->source, r);
        if (found_bytes == fill->source->size_bytes)
                return CTL_OK;
        return transfer_complain_changed(fill->ctl, fill->source, fill->name, found_bytes > fill->source->size_bytes,
                                         found_bytes);
}

static int fill_range(Fill *fill, uint64_t begin_bytes, uint64_t end_bytes)
{
        int r = source_seek(fill->source, begin_bytes);

        if (r < 0)
                return complain_read(fill->ctl, fill->source, r);
        while (begin_bytes < end_bytes) {
                uint64_t n_wanted = bar_get_slice(&fill->bar, end_bytes - begin_bytes), n;

                r = folio_object_write_file(fill->object, begin_bytes, fill->source->fd, n_wanted, &n);
                if (r < 0)
                        return fill_complain(fill, r);
                begin_bytes += n;
                if (n < n_wanted) {
                        progress_end(&fill->bar.progress);
                        return transfer_complain_changed(fill->ctl, fill->source, fill->name, false, begin_bytes);
                }
                bar_update(&fill->bar, begin_bytes);
        }
        return CTL_OK;
}

int transfer_fill_known(Ctl *ctl, Source *source, struct folio_object *object, const char *name)
{
        _ctl_cleanup_(fill_deinit) Fill fill;
        int r;

        fill_init(&fill, ctl, source, object, name);
        r = fill_range(&fill, 0, source->size_bytes);
        progress_end(&fill.bar.progress);
        return r == CTL_OK ? fill_check_size(&fill) : r;
}

int transfer_fill_sparse(Ctl *ctl, Source *source, struct folio_object *object, const char *name)
{
        _ctl_cleanup_(fill_deinit) Fill fill;
        uint64_t offset_bytes = 0, begin_bytes, end_bytes;
        int r = CTL_OK;

        fill_init(&fill, ctl, source, object, name);
        while (r == CTL_OK && offset_bytes < source->size_bytes) {
                source_find_data(source, offset_bytes, &begin_bytes, &end_bytes);
                r = fill_range(&fill, begin_bytes, end_bytes);
                offset_bytes = end_bytes;
        }
        progress_end(&fill.bar.progress);
        return r == CTL_OK ? fill_check_size(&fill) : r;
}

/* Everybody sees a mutable object at once: it grows by blocks, never beyond what is written next. */
static int fill_growing(Fill *fill, uint64_t offset_bytes)
{
        _ctl_cleanup_(ctl_cleanup_free) void *buffer = aligned_alloc(BUFFER_ALIGNMENT, BLOCK_BYTES);
        size_t n;
        int r;

        if (!buffer)
                return ctl_out_of_memory(fill->ctl);
        for (;;) {
                r = source_read(fill->source, buffer, BLOCK_BYTES, &n);
                if (r < 0 || n == 0)
                        break;
                r = folio_object_truncate(fill->object, offset_bytes + n);
                if (r == 0)
                        r = folio_object_write(fill->object, offset_bytes, buffer, n);
                if (r < 0)
                        return fill_complain(fill, r);
                offset_bytes += n;
                bar_update(&fill->bar, offset_bytes);
        }
        progress_end(&fill->bar.progress);
        return r < 0 ? complain_read(fill->ctl, fill->source, r) : CTL_OK;
}

int transfer_fill_stream(Ctl *ctl, Source *source, struct folio_object *object, const char *name, const void *head,
                         size_t n_head_bytes, bool is_mutable)
{
        _ctl_cleanup_(fill_deinit) Fill fill;
        uint64_t offset_bytes = n_head_bytes, n_wanted, n;
        int r = 0;

        fill_init(&fill, ctl, source, object, name);
        if (n_head_bytes > 0 && is_mutable)
                r = folio_object_truncate(object, n_head_bytes);
        if (n_head_bytes > 0 && r == 0)
                r = folio_object_write(object, 0, head, n_head_bytes);
        if (r == 0 && is_mutable)
                return fill_growing(&fill, offset_bytes);
        if (r < 0)
                return fill_complain(&fill, r);
        do {
                n_wanted = bar_get_slice(&fill.bar, UINT64_MAX);
                r = folio_object_write_file(object, offset_bytes, source->fd, n_wanted, &n);
                if (r < 0)
                        return fill_complain(&fill, r);
                offset_bytes += n;
                bar_update(&fill.bar, offset_bytes);
        } while (n == n_wanted);
        return CTL_OK;
}

/* Whoever reads a pipe or a socket may go away: that is no failure of ours to talk about. */
static bool is_abandoned(int fd)
{
        struct pollfd poll_fd = { .fd = fd };

        return poll(&poll_fd, 1, 0) == 1 && poll_fd.revents & (POLLERR | POLLHUP);
}

int transfer_drain(Ctl *ctl, struct folio_object *object, const char *name, uint64_t offset_bytes, uint64_t n_bytes,
                   int fd, const char *label)
{
        _ctl_cleanup_(bar_end) Bar bar = { 0 };
        uint64_t n_done = 0;

        bar_begin(&bar, name, n_bytes);
        while (n_done < n_bytes) {
                uint64_t n = bar_get_slice(&bar, n_bytes - n_done);
                int r = folio_object_read_file(object, offset_bytes + n_done, fd, n);

                if (r < 0)
                        progress_end(&bar.progress);
                if (r == FOLIO_E_IO && is_abandoned(fd))
                        return CTL_REFUSED;
                if (r == FOLIO_E_IO)
                        return ctl_complain(ctl, "cannot write %s: %s", label, folio_strerror_full());
                if (r < 0)
                        return ctl_fail(ctl, r, "get", name);
                n_done += n;
                bar_update(&bar, n_done);
        }
        return CTL_OK;
}
