/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See stream.h. A block of staging memory is taken when there is something to put into it, and sent when there is no
 * more for now, full or not: while a source has nothing to give, others have the memory. Only a blocking call has a
 * source that can keep it waiting, and there the steps run in the caller's own thread, which may.
 */
#include "client/stream.h"

#include <string.h>

#include "base/checked.h"
#include "client/bundle.h"
#include "client/call.h"
#include "client/lib/copy.h"
#include "client/lib/splice.h"

enum { STREAM_BLOCKS_MAX = 4 };      /* under way at once */
#define STREAM_BLOCK_BYTES_MAX MIB
#define STREAM_BLOCK_BYTES_MIN (4 * KIB)

typedef struct StreamOp {
        Op op;
        Object *object;
        uint64_t offset_bytes;
        /* Where the bytes come from: memory, or a descriptor. */
        const uint8_t *data;
        int fd;                      /* -1: memory */
        uint64_t n_left;
        bool is_ended;               /* the descriptor */
        uint64_t n_written;
        Bundles bundles;
} StreamOp;

static void stream_end(StreamOp *stream)
{
        Object *object = stream->object;

        (void)pthread_mutex_lock(&object->lock);
        object->is_streaming = false;
        stream->n_written = object->size_bytes - stream->offset_bytes;
        (void)pthread_mutex_unlock(&object->lock);
        bundles_deinit(&stream->bundles);
        object_unref(object);
        op_complete(&stream->op);
}

static void stream_take(StreamOp *stream)
{
        Bundle *bundle;

        while ((bundle = bundles_take(&stream->bundles))) {
                int r = bundle_get_error(bundle, 0);

                if (r < 0) {
                        stream->object->is_broken = true;
                        op_fail_as_thread(&stream->op, r);
                }
                bundle_give(bundle);
        }
}

/* As much room as there is, up to @n_bytes. NULL: none now. */
static void *take_room(Staging *staging, size_t *n_bytes)
{
        for (size_t n = *n_bytes;; n = MAX(n / 2, (size_t)STREAM_BLOCK_BYTES_MIN)) {
                void *staged = staging_take(staging, n);

                if (staged) {
                        *n_bytes = n;
                        return staged;
                }
                if (n <= STREAM_BLOCK_BYTES_MIN)
                        return NULL;
        }
}

/* Into @block, as many as there are, up to @n_bytes. */
static int source_fill(StreamOp *stream, void *block, size_t *n_bytes)
{
        int r;

        if (stream->fd < 0) {
                copy_bytes(block, stream->data, *n_bytes);
                stream->data += *n_bytes;
                return 0;
        }
        r = splice_read_ready(stream->fd, block, *n_bytes, n_bytes, &stream->is_ended);
        return r < 0 ? error_set(FOLIO_E_IO, "reading the descriptor failed: %s", strerror(-r)) : 0;
}

/* 0: one block more is under way, or the source has ended; 1: there is no room; an error. */
static int stream_block(StreamOp *stream)
{
        Client *client = stream->op.client;
        Object *object = stream->object;
        ProtoItem item = object_slot_item(object);
        uint64_t block_bytes = MIN((uint64_t)STREAM_BLOCK_BYTES_MAX, MAX(client->staging_bytes / 8, (uint64_t)64));
        size_t n = (size_t)MIN(stream->n_left, block_bytes);
        void *staged = take_room(client->staging, &n);
        int r;

        if (!staged)
                return 1;
        r = source_fill(stream, staged, &n);
        if (r < 0 || n == 0) {
                staging_give(client->staging, staged);
                return r;
        }
        item.offset_bytes = object->size_bytes;
        item.size_bytes = n;
        item.staging_offset = staging_offset(client->staging, staged);
        r = bundles_add(&stream->bundles, object->space, VERB_WRITE, &item, 0, staged);
        if (r != BUNDLES_ADDED) {
                staging_give(client->staging, staged);
                object->is_broken = stream->fd >= 0; /* what was read is lost */
                return r < 0 ? r : error_set(FOLIO_E_NO_MEMORY, "too much of the stream is under way");
        }
        (void)bundles_flush(&stream->bundles);
        stream->n_left -= n;
        object->size_bytes += n;
        return 0;
}

/* Is there something to be sent? A source that is silent is waited for when nothing is under way. */
static bool stream_has_more(StreamOp *stream)
{
        if (stream->op.error || stream->n_left == 0 || stream->is_ended ||
            stream->bundles.n_under_way >= STREAM_BLOCKS_MAX)
                return false;
        if (stream->fd < 0 || splice_is_readable(stream->fd))
                return true;
        if (stream->bundles.n_under_way > 0)
                return false;
        splice_wait_readable(stream->fd);
        return true;
}

static void stream_go(Op *op)
{
        StreamOp *stream = CONTAINER_OF(op, StreamOp, op);
        bool is_full = false;

        stream_take(stream);
        while (!is_full && stream_has_more(stream)) {
                int r = stream_block(stream);

                op_fail_as_thread(op, MIN(r, 0));
                is_full = r > 0;
        }
        if (stream->bundles.n_under_way > 0) {
                bundles_wait(&stream->bundles, stream_go);
                return;
        }
        if (is_full && op->error == 0) {
                if (op_wait_staging(op, stream_go))
                        return;
                op_fail(op, FOLIO_E_LIMIT, "all %llu bytes of this client's staging memory are held by unsealed objects",
                        (unsigned long long)op->client->staging_bytes);
        }
        stream_end(stream);
}

/* Makes the stream ours. 0 or an error, with the sentence. */
static int stream_claim(StreamOp *stream)
{
        Object *object = stream->object;
        int r = 0;

        /* Nobody who has the lock waits for the daemon with a stream. */
        (void)pthread_mutex_lock(&object->lock);
        if (object->is_streaming)
                r = error_set(FOLIO_E_STATE, "another write of the stream is under way");
        else if (object->is_broken)
                r = error_set(FOLIO_E_STATE, "an earlier write of the stream has failed: abort it");
        else if (stream->offset_bytes != object->size_bytes)
                r = error_set(FOLIO_E_RANGE, "a stream continues at its end, %llu, not at %llu",
                              (unsigned long long)object->size_bytes, (unsigned long long)stream->offset_bytes);
        else
                object->is_streaming = true;
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

static void stream_begin(Op *op)
{
        StreamOp *stream = CONTAINER_OF(op, StreamOp, op);
        uint64_t end;
        int r = 0;

        /* A descriptor may end before. */
        if (stream->fd < 0 &&
            (!checked_add(stream->offset_bytes, stream->n_left, &end) || end > FOLIO_OBJECT_BYTES_MAX))
                r = error_set(FOLIO_E_TOO_LARGE, "no object is larger than %llu bytes",
                              (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        if (r == 0)
                r = stream_claim(stream);
        if (r < 0) {
                op_fail_as_thread(op, r);
                op_complete(op);
                return;
        }
        (void)object_ref(stream->object);
        bundles_init(&stream->bundles, op);
        stream_go(op);
}

int stream_write(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        StreamOp stream = {
                .object = object, .offset_bytes = offset_bytes, .data = data, .fd = -1, .n_left = n_bytes,
        };

        op_init(&stream.op, object->client);
        return call_wait(&stream.op, stream_begin);
}

int stream_write_async(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes, folio_done_fn done,
                       void *userdata)
{
        StreamOp stream = {
                .object = object, .offset_bytes = offset_bytes, .data = data, .fd = -1, .n_left = n_bytes,
        };

        op_init(&stream.op, object->client);
        return call_async(&stream.op, sizeof(stream), stream_begin, done, userdata);
}

int stream_write_file(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        StreamOp stream = { .object = object, .offset_bytes = offset_bytes, .fd = fd }; /* nothing, where that cannot be its end */
        int r;

        if (offset_bytes <= FOLIO_OBJECT_BYTES_MAX)
                stream.n_left = MIN(n_bytes, FOLIO_OBJECT_BYTES_MAX - offset_bytes);
        op_init(&stream.op, object->client);
        r = call_wait(&stream.op, stream_begin);
        if (r == 0)
                *ret_n_bytes = stream.n_written;
        return r;
}
