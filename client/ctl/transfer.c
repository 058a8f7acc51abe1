/* SPDX-License-Identifier: Apache-2.0 */
/* See transfer.h. */
#include "client/ctl/transfer.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/progress.h"
#include "client/ctl/text.h"

/*
 * Measured with a file of 512 MiB in the page cache, two cores, milliseconds of the whole put and of its CPU, for an
 * object of 4 KiB pages and for one on a tmpfs of 2 MiB pages; the last line is cp to a tmpfs of the same pages:
 *
 *      windows of 8 MiB            330 (205)       150 (145)
 *      windows of 2 and 32 MiB     315, 340        150, 150
 *      a buffer of 512 KiB         365 (220)       200 (195)
 *      buffers of 128 KiB, 1 MiB   345, 365        235, 215
 *      cp                          315 (300)       195 (190)
 *
 * Bare, in a loop of system calls, two threads on the halves of a file were as fast as one with a buffer, and a reader
 * with a writer behind it slower: the two copies share what the memory can do. So there is one thread here.
 */
#define WINDOW_BYTES ((size_t)8 << 20)
#define BLOCK_BYTES ((size_t)512 << 10)
/* A stream's daemon is asked for memory about once a MiB, so fuller blocks save nothing. */
#define STREAM_BLOCK_BYTES ((size_t)1 << 20)
#define DRAIN_BLOCK_BYTES ((size_t)1 << 20)
#define BUFFER_ALIGNMENT ((size_t)4096)

typedef struct Bar {
        char *label;
        Progress progress;
} Bar;

static void bar_end(Bar *bar)
{
        progress_end(&bar->progress);
        free(bar->label);
}

static void bar_begin(Bar *bar, const char *name, uint64_t total_bytes)
{
        bar->label = text_escape(name);
        progress_begin(&bar->progress, bar->label ? bar->label : "", total_bytes);
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

/* One file on its way into one object. */
typedef struct Fill {
        Ctl *ctl;
        Source *source;
        struct folio_object *object;
        const char *name;
        void *buffer;
        bool is_mapped; /* by windows of the file's own pages; else through the buffer */
        Bar bar;
} Fill;

static void fill_deinit(Fill *fill)
{
        bar_end(&fill->bar);
        free(fill->buffer);
}

/*
 * Windows save the copy into a buffer, but are safe only where the library gives them to the kernel as they are: a
 * page that the file loses meanwhile is then an error, where a copy by the processor would be a signal. That is so for
 * what has a region of its own.
 */
static int fill_init(Fill *fill, Ctl *ctl, Source *source, struct folio_object *object, const char *name)
{
        struct folio_stat stat = { .struct_bytes = sizeof(stat) };

        *fill = (Fill){ .ctl = ctl, .source = source, .object = object, .name = name };
        fill->is_mapped = folio_object_stat(object, &stat) == 0 && stat.placement == FOLIO_PLACEMENT_OWN;
        fill->buffer = aligned_alloc(BUFFER_ALIGNMENT, BLOCK_BYTES);
        if (!fill->buffer)
                return ctl_out_of_memory(ctl);
        bar_begin(&fill->bar, name, source->size_bytes);
        return CTL_OK;
}

/* Is the file as long as it said? Its last page, read through a window, would not have told. */
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

static int fill_write(Fill *fill, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        int r = folio_object_write(fill->object, offset_bytes, data, n_bytes), r_size;

        if (r == 0)
                return CTL_OK;
        progress_end(&fill->bar.progress);
        /* Pages that are gone from under a window are not the store's fault. */
        r_size = fill->is_mapped ? fill_check_size(fill) : CTL_OK;
        return r_size != CTL_OK ? r_size : ctl_fail(fill->ctl, r, "put", fill->name);
}

/* The next block at @offset_bytes, @n_bytes at most. CTL_OK and how many, or the status to end with. */
static int fill_by_window(Fill *fill, uint64_t offset_bytes, uint64_t n_bytes, size_t *ret_n_bytes)
{
        SourceWindow window;
        int r;

        *ret_n_bytes = 0;
        r = source_map(fill->source, offset_bytes, n_bytes < WINDOW_BYTES ? (size_t)n_bytes : WINDOW_BYTES, &window);
        if (r < 0) {
                /* A file that cannot be mapped, or no room for it: the buffer does as well. */
                fill->is_mapped = false;
                return CTL_OK;
        }
        r = fill_write(fill, offset_bytes, window.data, window.n_bytes);
        *ret_n_bytes = window.n_bytes;
        source_unmap(&window);
        return r;
}

static int fill_by_buffer(Fill *fill, uint64_t offset_bytes, uint64_t n_bytes, size_t *ret_n_bytes)
{
        size_t n_wanted = n_bytes < BLOCK_BYTES ? (size_t)n_bytes : BLOCK_BYTES, n;
        int r = source_read_at(fill->source, offset_bytes, fill->buffer, n_wanted, &n);

        if (r < 0 || n < n_wanted)
                progress_end(&fill->bar.progress);
        if (r < 0)
                return complain_read(fill->ctl, fill->source, r);
        if (n < n_wanted)
                return transfer_complain_changed(fill->ctl, fill->source, fill->name, false, offset_bytes + n);
        *ret_n_bytes = n;
        return fill_write(fill, offset_bytes, fill->buffer, n);
}

static int fill_range(Fill *fill, uint64_t begin_bytes, uint64_t end_bytes)
{
        for (uint64_t offset_bytes = begin_bytes; offset_bytes < end_bytes;) {
                size_t n = 0;
                int r = fill->is_mapped ? fill_by_window(fill, offset_bytes, end_bytes - offset_bytes, &n)
                                        : fill_by_buffer(fill, offset_bytes, end_bytes - offset_bytes, &n);

                if (r != CTL_OK)
                        return r;
                offset_bytes += n;
                progress_update(&fill->bar.progress, offset_bytes);
        }
        return CTL_OK;
}

int transfer_fill_known(Ctl *ctl, Source *source, struct folio_object *object, const char *name)
{
        _ctl_cleanup_(fill_deinit) Fill fill;
        int r = fill_init(&fill, ctl, source, object, name);

        if (r == CTL_OK)
                r = fill_range(&fill, 0, source->size_bytes);
        progress_end(&fill.bar.progress);
        return r == CTL_OK ? fill_check_size(&fill) : r;
}

int transfer_fill_sparse(Ctl *ctl, Source *source, struct folio_object *object, const char *name)
{
        _ctl_cleanup_(fill_deinit) Fill fill;
        uint64_t offset_bytes = 0, begin_bytes, end_bytes;
        int r = fill_init(&fill, ctl, source, object, name);

        while (r == CTL_OK && offset_bytes < source->size_bytes) {
                source_find_data(source, offset_bytes, &begin_bytes, &end_bytes);
                r = fill_range(&fill, begin_bytes, end_bytes);
                offset_bytes = end_bytes;
        }
        progress_end(&fill.bar.progress);
        return r == CTL_OK ? fill_check_size(&fill) : r;
}

int transfer_fill_stream(Ctl *ctl, Source *source, struct folio_object *object, const char *name, const void *head,
                         size_t n_head_bytes, bool is_mutable)
{
        _ctl_cleanup_(ctl_cleanup_free) void *buffer = aligned_alloc(BUFFER_ALIGNMENT, STREAM_BLOCK_BYTES);
        _ctl_cleanup_(bar_end) Bar bar = { 0 };
        uint64_t offset_bytes = 0;
        const void *block = head;
        size_t n = n_head_bytes;

        if (!buffer)
                return ctl_out_of_memory(ctl);
        bar_begin(&bar, name, PROGRESS_TOTAL_UNKNOWN);
        for (;;) {
                int r = 0;

                /* Everybody sees a mutable object at once: it grows by blocks, never beyond what is written next. */
                if (n > 0 && is_mutable)
                        r = folio_object_truncate(object, offset_bytes + n);
                if (n > 0 && r == 0)
                        r = folio_object_write(object, offset_bytes, block, n);
                if (r < 0) {
                        progress_end(&bar.progress);
                        return ctl_fail(ctl, r, "put", name);
                }
                offset_bytes += n;
                progress_update(&bar.progress, offset_bytes);
                r = source_read(source, buffer, STREAM_BLOCK_BYTES, &n);
                if (r < 0) {
                        progress_end(&bar.progress);
                        return complain_read(ctl, source, r);
                }
                if (n == 0)
                        return CTL_OK;
                block = buffer;
        }
}

/* 0, or a negative errno. */
static int write_all(int fd, const char *data, size_t n_bytes)
{
        while (n_bytes > 0) {
                ssize_t n = write(fd, data, n_bytes);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return -errno;
                data += n;
                n_bytes -= (size_t)n;
        }
        return 0;
}

int transfer_drain(Ctl *ctl, struct folio_object *object, const char *name, uint64_t offset_bytes, uint64_t n_bytes,
                   int fd, const char *label)
{
        /*
         * Straight from the mapping: of 512 MiB 180-250 ms of the CPU, where a buffer takes 210-290 and cp from a file
         * 250. Mapping it ahead of write() changed nothing. Where there is no room for a mapping it is the buffer.
         */
        const char *data = folio_object_data(object);
        _ctl_cleanup_(ctl_cleanup_free) void *buffer = data ? NULL : aligned_alloc(BUFFER_ALIGNMENT, DRAIN_BLOCK_BYTES);
        _ctl_cleanup_(bar_end) Bar bar = { 0 };
        uint64_t n_done = 0;

        if (!data && !buffer)
                return ctl_out_of_memory(ctl);
        bar_begin(&bar, name, n_bytes);
        while (n_done < n_bytes) {
                uint64_t n_left = n_bytes - n_done;
                size_t n = n_left < DRAIN_BLOCK_BYTES ? (size_t)n_left : DRAIN_BLOCK_BYTES;
                int r = data ? 0 : folio_object_read(object, offset_bytes + n_done, buffer, n);

                if (r < 0) {
                        progress_end(&bar.progress);
                        return ctl_fail(ctl, r, "get", name);
                }
                r = write_all(fd, data ? data + offset_bytes + n_done : buffer, n);
                if (r < 0) {
                        progress_end(&bar.progress);
                        return r == -EPIPE ? CTL_REFUSED
                                           : ctl_complain(ctl, "cannot write %s: %s", label, strerror(-r));
                }
                n_done += n;
                progress_update(&bar.progress, n_done);
        }
        return CTL_OK;
}
