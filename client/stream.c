/* SPDX-License-Identifier: Apache-2.0 */
/*
 * See stream.h. While the source has nothing to give no staging memory is held: others need it to put the smallest
 * object. So a block is taken when there is something to put into it, and sent when there is no more for now, full
 * or not.
 */
#include "client/stream.h"

#include <string.h>

#include "base/checked.h"
#include "client/lib/copy.h"
#include "client/lib/splice.h"
#include "client/operation.h"

enum { WRITE_BLOCKS_MAX = 4 };       /* under way at once */
#define WRITE_BLOCK_BYTES_MAX MIB
#define WRITE_BLOCK_BYTES_MIN (4 * KIB)

/* Where the bytes come from: memory, or a descriptor. */
typedef struct Source {
        const uint8_t *data;         /* NULL: of @fd */
        int fd;
        uint64_t n_left;
        bool is_ended;
} Source;

typedef struct BlockOp {
        Op op;
        void *staged;
        bool is_under_way;
} BlockOp;

static void block_settle(Op *op, int error)
{
        BlockOp *block = CONTAINER_OF(op, BlockOp, op);

        if (error == FOLIO_E_TIMEOUT)
                operations_staged_orphan(op->client, &block->staged, 1, op->request.id);
        else
                operations_staged_end(op->client, block->staged);
}

static int block_wait(BlockOp *block)
{
        int r;

        if (!block->is_under_way)
                return 0;
        block->is_under_way = false;
        r = op_wait(&block->op);
        op_deinit(&block->op);
        return r;
}

/* As much room as there is, up to @n_bytes; waits where others will give some back. NULL: it is all held for long. */
static void *block_take(Client *client, size_t *n_bytes)
{
        for (;;) {
                size_t n = *n_bytes;
                Op op;

                for (;;) {
                        void *staged = staging_take(client->staging, n);

                        if (staged) {
                                *n_bytes = n;
                                return staged;
                        }
                        if (n <= WRITE_BLOCK_BYTES_MIN)
                                break;
                        n = MAX(n / 2, (size_t)WRITE_BLOCK_BYTES_MIN);
                }
                op_init(&op, client);
                if (!op_wait_staging(&op, op_complete))
                        return NULL;
                if (op_wait(&op) < 0)
                        return NULL;
        }
}

/* Into @block, as many as there are, up to @n_bytes. */
static int source_fill(Source *source, void *block, size_t *n_bytes)
{
        int r;

        if (source->data) {
                copy_bytes(block, source->data, *n_bytes);
                source->data += *n_bytes;
                return 0;
        }
        r = splice_read_ready(source->fd, block, *n_bytes, n_bytes, &source->is_ended);
        return r < 0 ? error_set(FOLIO_E_IO, "reading the descriptor failed: %s", strerror(-r)) : 0;
}

static int block_send(Object *object, BlockOp *block, Source *source)
{
        Client *client = object->client;
        ProtoItem item = object_slot_item(object);
        uint64_t share = MAX(client->staging_bytes / 8, (uint64_t)64);
        size_t n = (size_t)MIN(source->n_left, MIN((uint64_t)WRITE_BLOCK_BYTES_MAX, share));
        int r;

        block->staged = block_take(client, &n);
        if (!block->staged)
                return error_set(FOLIO_E_LIMIT,
                                 "all %llu bytes of this client's staging memory are held by unsealed objects",
                                 (unsigned long long)client->staging_bytes);
        r = source_fill(source, block->staged, &n);
        if (r < 0 || n == 0) {
                staging_give(client->staging, block->staged);
                return r;
        }
        source->n_left -= n;
        item.offset_bytes = object->size_bytes;
        item.size_bytes = n;
        item.staging_offset = staging_offset(client->staging, block->staged);
        object->size_bytes += n;
        op_init(&block->op, client);
        block->op.space = object->space;
        block->op.settle = block_settle;
        block->is_under_way = true;
        operations_staged_begin(client);
        op_send_item(&block->op, VERB_WRITE, &item, op_complete);
        return 0;
}

/* The first failure is the one to tell: @error, which may be 0, has its sentence already. */
static int blocks_wait(BlockOp *blocks, int error, bool *is_broken)
{
        char sentence[ERROR_SENTENCE_BYTES];

        error_format(sentence, "%s", error_get_sentence());
        for (size_t i = 0; i < WRITE_BLOCKS_MAX; i++) {
                int r = block_wait(&blocks[i]);

                *is_broken = *is_broken || r < 0;
                if (r < 0 && error == 0) {
                        error = r;
                        error_format(sentence, "%s", error_get_sentence());
                }
        }
        return error ? error_set_sentence(error, sentence) : 0;
}

/* With the object's lock. */
static int stream(Object *object, uint64_t offset_bytes, Source *source)
{
        BlockOp blocks[WRITE_BLOCKS_MAX];
        int error = 0;

        if (object->is_streaming)
                return error_set(FOLIO_E_STATE, "another write of the stream is under way");
        if (object->is_broken)
                return error_set(FOLIO_E_STATE, "an earlier write of the stream has failed: abort it");
        if (offset_bytes != object->size_bytes)
                return error_set(FOLIO_E_RANGE, "a stream continues at its end, %llu, not at %llu",
                                 (unsigned long long)object->size_bytes, (unsigned long long)offset_bytes);
        for (size_t i = 0; i < WRITE_BLOCKS_MAX; i++)
                blocks[i].is_under_way = false;
        for (unsigned i = 0; source->n_left > 0 && !source->is_ended && error == 0; i++) {
                BlockOp *block = &blocks[i % WRITE_BLOCKS_MAX];

                error = block_wait(block);
                if (error < 0) {
                        object->is_broken = true;
                        break;
                }
                /* Whoever else waits for room in staging shall have it while we wait for the source. */
                if (!source->data && !splice_is_readable(source->fd)) {
                        error = blocks_wait(blocks, 0, &object->is_broken);
                        if (error == 0)
                                splice_wait_readable(source->fd);
                }
                if (error == 0)
                        error = block_send(object, block, source);
        }
        return blocks_wait(blocks, error, &object->is_broken);
}

int stream_write(Object *object, uint64_t offset_bytes, const void *data, size_t n_bytes)
{
        Source source = { .data = data, .fd = -1, .n_left = n_bytes };
        uint64_t end;
        int r;

        if (!checked_add(offset_bytes, n_bytes, &end) || end > FOLIO_OBJECT_BYTES_MAX)
                return error_set(FOLIO_E_TOO_LARGE, "no object is larger than %llu bytes",
                                 (unsigned long long)FOLIO_OBJECT_BYTES_MAX);
        (void)pthread_mutex_lock(&object->lock);
        r = stream(object, offset_bytes, &source);
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}

int stream_write_file(Object *object, uint64_t offset_bytes, int fd, uint64_t n_bytes, uint64_t *ret_n_bytes)
{
        Source source = { .fd = fd, .n_left = n_bytes };
        int r;

        if (offset_bytes <= FOLIO_OBJECT_BYTES_MAX)
                source.n_left = MIN(n_bytes, FOLIO_OBJECT_BYTES_MAX - offset_bytes);
        (void)pthread_mutex_lock(&object->lock);
        r = stream(object, offset_bytes, &source);
        if (r == 0)
                *ret_n_bytes = object->size_bytes - offset_bytes;
        (void)pthread_mutex_unlock(&object->lock);
        return r;
}
