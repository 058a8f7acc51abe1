/* SPDX-License-Identifier: Apache-2.0 */
/* See pipe.h. The ring's callbacks come with its lock held; they take the lock here, and that of staging memory, and no other. */
#include "client/pipe.h"

#include <stdlib.h>
#include <string.h>

#include "base/cleanup.h"
#include "client/lib/connection.h"
#include "client/resume.h"
#include "proto/status.h"

#define PIPE_REFUSED_NS (UINT64_C(10) * 1000 * 1000 * 1000)

enum {
        PIPE_WANTED_MIN = 2,         /* calls that do without */
        PIPE_STAGED_TRIES_MAX = 8,
};

struct Pipe {
        atomic_uint n_wanted;
        atomic_bool is_asked;
        _Atomic uint64_t refused_until_ns;
        atomic_bool is_careful;
        /* With the ring's lock. */
        unsigned n_staged;
        uint64_t n_given;            /* records whose staging memory has been given back */
        void *staged[RING_RECORDS];  /* of record n at n modulo RING_RECORDS; NULL: none */
        /* With `lock`. */
        pthread_mutex_t lock;
        List lost;                   /* rings that objects may still point at */
        int failure;                 /* 0: none since the last flush */
        char sentence[ERROR_SENTENCE_BYTES];
        uint64_t numbers[RING_MADE_MAX / 64]; /* a bit for each that is taken */
};

/* One that no foliod works any more. */
typedef struct LostRing {
        List link;
        Ring *ring;
} LostRing;

int pipe_new(Client *client)
{
        Pipe *pipe = calloc(1, sizeof(*pipe));

        if (!pipe)
                return -ENOMEM;
        pipe->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
        list_init(&pipe->lost);
        client->pipe = pipe;
        return 0;
}

void pipe_free(Client *client)
{
        Pipe *pipe = steal_ptr(&client->pipe);
        Ring *ring = atomic_exchange(&client->ring, NULL);

        if (ring)
                ring_free(ring);
        for (List *link; pipe && (link = list_take_front(&pipe->lost));) {
                ring_free(LIST_ENTRY(link, LostRing, link)->ring);
                free(LIST_ENTRY(link, LostRing, link));
        }
        if (pipe)
                (void)pthread_mutex_destroy(&pipe->lock);
        free(pipe);
}

/* --- what the ring tells ------------------------------------------------------------------------------------------------------------ */

static bool is_alive(void *userdata)
{
        /* While a foliod is being looked for, what is under way waits for it. */
        return resume_check(userdata) >= 0;
}

static const char *namespace_name(Client *client, uint32_t namespace_id)
{
        const Name *name = atomic_load_explicit(&client->names, memory_order_acquire);

        while (name && name->space->id != namespace_id)
                name = name->next;
        return name ? name->space->name : "?";
}

static void keep(Pipe *pipe, int error, const char *sentence)
{
        (void)pthread_mutex_lock(&pipe->lock);
        if (pipe->failure == 0) {
                pipe->failure = error;
                memcpy(pipe->sentence, sentence, strnlen(sentence, ERROR_SENTENCE_BYTES - 1) + 1);
        }
        (void)pthread_mutex_unlock(&pipe->lock);
}

static void on_failure(void *userdata, const RingRecord *record, uint32_t status, const char *text)
{
        Client *client = userdata;
        const char *reason = text[0] ? text : status_to_text(status);
        char sentence[ERROR_SENTENCE_BYTES];
        int error = status_to_error(status);

        /* Nobody is told of the failure of a word that nobody has asked for. */
        if (record->verb == RING_VERB_RELEASE || record->verb == RING_VERB_ABORT)
                return;
        if (error == FOLIO_E_FULL || error == FOLIO_E_LIMIT)
                atomic_store(&client->pipe->is_careful, true);
        if (record->key_bytes > 0)
                error_format(sentence, "%s:%.*s: %s", namespace_name(client, record->namespace_id),
                             MIN((int)record->key_bytes, RING_KEY_BYTES_MAX), (const char *)record->key, reason);
        else
                error_format(sentence, "an object of namespace %s: %s", namespace_name(client, record->namespace_id), reason);
        keep(client->pipe, error, sentence);
}

static void on_progress(void *userdata, uint64_t head)
{
        Client *client = userdata;
        Pipe *pipe = client->pipe;

        for (; pipe->n_staged > 0 && pipe->n_given < head; pipe->n_given++) {
                void **staged = &pipe->staged[pipe->n_given % RING_RECORDS];

                if (!*staged)
                        continue;
                staging_give(client->staging, steal_ptr(staged));
                pipe->n_staged--;
        }
        if (pipe->n_staged == 0)
                pipe->n_given = head;
}

/* --- making it ------------------------------------------------------------------------------------------------------------------------ */

static void take_ring(Op *op, const ProtoReply *reply, int *fds, size_t n_fds)
{
        Client *client = op->client;
        RingConfig config = { .is_alive = is_alive, .on_failure = on_failure, .on_progress = on_progress, .userdata = client };
        Ring *ring;

        if (n_fds == 2 && ring_new(&config, steal_fd(&fds[0]), steal_fd(&fds[1]), &ring) == 0)
                atomic_store_explicit(&client->ring, ring, memory_order_release);
        else
                op_fail_connection(op, FOLIO_E_PROTOCOL);
}

static void make_begin(Op *op)
{
        ProtoRequest message = { .verb = VERB_RING };

        op_send(op, &message, take_ring, op_complete);
}

/* Where there is none to be had the call goes another way: so what failed is nobody's to know, and the thread's sentence stays. */
static bool make(Client *client)
{
        Op op;

        op_init(&op, client);
        make_begin(&op);
        (void)op_wait_quietly(&op);
        op_deinit(&op);
        return op.error == 0;
}

static __attribute__((noinline)) void want(Client *client)
{
        Pipe *pipe = client->pipe;
        uint64_t refused_until_ns = atomic_load_explicit(&pipe->refused_until_ns, memory_order_relaxed);

        if (atomic_load(&client->is_opening) || client_is_closing(client))
                return;
        if (atomic_fetch_add_explicit(&pipe->n_wanted, 1, memory_order_relaxed) < PIPE_WANTED_MIN)
                return;
        if (refused_until_ns != 0 && connection_now_ns() < refused_until_ns)
                return;
        /* Another thread is at it: this once it goes without. */
        if (atomic_exchange(&pipe->is_asked, true))
                return;
        if (!atomic_load(&client->ring) && !make(client))
                atomic_store(&pipe->refused_until_ns, connection_now_ns() + PIPE_REFUSED_NS);
        atomic_store(&pipe->is_asked, false);
}

Ring *pipe_want(Client *client)
{
        if (UNLIKELY(!atomic_load_explicit(&client->ring, memory_order_acquire)))
                want(client);
        return LIKELY(order_is_free(client)) ? atomic_load_explicit(&client->ring, memory_order_acquire) : NULL;
}

/* --- another foliod ------------------------------------------------------------------------------------------------------------------- */

void pipe_resume(Client *client)
{
        Ring *ring = atomic_load_explicit(&client->ring, memory_order_acquire);

        uint32_t n = ring ? ring_count_restarts(ring) : 0;

        /* If this foliod has ended too, it may be the next one's number. */
        if (ring)
                ring_resume(ring, resume_is_lit(resume_beacon(client)) ? n : n - 1);
}

bool pipe_is_ahead(const Client *client)
{
        const Ring *ring = atomic_load_explicit(&client->ring, memory_order_acquire);

        return ring && ring_is_taken_over(ring);
}

void pipe_settle(Client *client)
{
        /* Where nobody comes, what has been carried out is in the index that there is. */
        if (UNLIKELY(!resume_is_lit(resume_beacon(client))))
                (void)resume_wait(client);
}

void pipe_lose(Client *client)
{
        Pipe *pipe = client->pipe;
        Ring *ring = atomic_exchange(&client->ring, NULL);
        LostRing *lost = ring ? malloc(sizeof(*lost)) : NULL;
        char sentence[ERROR_SENTENCE_BYTES];
        uint64_t n;

        atomic_store(&pipe->refused_until_ns, 0);
        if (!ring)
                return;
        n = ring_lose(ring);
        /* As if they had been carried out: nobody reads what they were to bring any more. */
        on_progress(client, ring_tail(ring));
        if (n > 0) {
                error_format(sentence, "foliod ended, and its successor does not know this session: what became of the last "
                                       "%llu requests is not known", (unsigned long long)n);
                keep(pipe, FOLIO_E_DAEMON_GONE, sentence);
        }
        /* Without memory for the note it is lost for good; others point at it. */
        if (!lost)
                return;
        lost->ring = ring;
        (void)pthread_mutex_lock(&pipe->lock);
        list_push_back(&pipe->lost, &lost->link);
        (void)pthread_mutex_unlock(&pipe->lock);
}

/* --- records -------------------------------------------------------------------------------------------------------------------------- */

int pipe_begin(Client *client, Ring *ring, RingRecord **ret, uint64_t *ret_sequence)
{
        int r = ring_begin(ring, client->timeout_ns, ret, ret_sequence);

        /* Given up before; there may be somebody now. */
        if (UNLIKELY(r == RING_E_GONE) && resume_wait(client) == 0)
                r = ring_begin(ring, client->timeout_ns, ret, ret_sequence);
        return LIKELY(r == 0) ? 0 : order_fail(client, r);
}

void pipe_keep_staged(Client *client, uint64_t sequence, void *data)
{
        Pipe *pipe = client->pipe;
        void **staged = &pipe->staged[sequence % RING_RECORDS];

        if (!data)
                return;
        /* The record that had this place has been carried out, or there would be no room for this one. */
        if (*staged)
                staging_give(client->staging, *staged);
        else
                pipe->n_staged++;
        if (pipe->n_staged == 1)
                pipe->n_given = sequence;
        *staged = data;
}

void *pipe_take_staged(Client *client, Ring *ring, size_t n_bytes)
{
        for (unsigned i = 0; i < PIPE_STAGED_TRIES_MAX; i++) {
                void *data = staging_take(client->staging, n_bytes);
                uint64_t head, tail;

                if (LIKELY(data))
                        return data;
                head = ring_head(ring);
                tail = ring_tail(ring);
                /* Half of what is under way: who waits for all of it finds the daemon idle afterwards. */
                if (head >= tail || ring_wait(ring, head + (tail - head) / 2, client->timeout_ns) != 0)
                        break;
        }
        return staging_take(client->staging, n_bytes);
}

int pipe_refused(uint32_t status, const char *name, const char *text)
{
        return error_set(status_to_error(status), "%.330s: %s", name, text[0] ? text : status_to_text(status));
}

/* One sentence at a time comes through the ring: what failed before, for the same reason, has had it. */
static int refused_like(Pipe *pipe, uint32_t status, const char *name)
{
        char text[ERROR_SENTENCE_BYTES] = "";

        (void)pthread_mutex_lock(&pipe->lock);
        if (pipe->failure == status_to_error(status))
                error_format(text, "%s, as for %s", status_to_text(status), pipe->sentence);
        (void)pthread_mutex_unlock(&pipe->lock);
        return pipe_refused(status, name, text);
}

int pipe_result(Client *client, Ring *ring, uint64_t sequence, const char *name, RingResult *ret)
{
        char text[RING_FAILURE_BYTES_MAX + 1];
        int r = ring_wait_result(ring, sequence, client->timeout_ns, ret, text);

        if (UNLIKELY(r != 0))
                return order_fail(client, r);
        pipe_settle(client);
        if (LIKELY(ret->status == STATUS_OK))
                return 0;
        return text[0] ? pipe_refused(ret->status, name, text) : refused_like(client->pipe, ret->status, name);
}

bool pipe_release(Client *client, uint32_t namespace_id, uint32_t slot, uint64_t generation)
{
        Ring *ring = atomic_load_explicit(&client->ring, memory_order_acquire);
        RingRecord *record;
        uint64_t sequence;

        if (!ring || client_is_closing(client) || ring_begin(ring, 0, &record, &sequence) != 0)
                return false;
        *record = (RingRecord){ .verb = RING_VERB_RELEASE, .namespace_id = namespace_id, .slot = slot, .generation = generation };
        ring_submit(ring, 0, false);
        return true;
}

/* --- failures and numbers ------------------------------------------------------------------------------------------------------------- */

void pipe_keep_failure(Client *client, int error)
{
        keep(client->pipe, error, error_get_sentence());
}

int pipe_take_failure(Client *client)
{
        Pipe *pipe = client->pipe;
        char sentence[ERROR_SENTENCE_BYTES];
        int error;

        (void)pthread_mutex_lock(&pipe->lock);
        error = pipe->failure;
        if (error)
                memcpy(sentence, pipe->sentence, sizeof(sentence));
        pipe->failure = 0;
        (void)pthread_mutex_unlock(&pipe->lock);
        return error ? error_set_sentence(error, sentence) : 0;
}

bool pipe_is_careful(const Client *client)
{
        return UNLIKELY(atomic_load_explicit(&client->pipe->is_careful, memory_order_relaxed));
}

void pipe_note_result(Client *client, int error)
{
        bool is_careful = error == FOLIO_E_FULL || error == FOLIO_E_LIMIT;

        if (is_careful != pipe_is_careful(client) && (is_careful || error == 0))
                atomic_store(&client->pipe->is_careful, is_careful);
}

bool pipe_take_number(Client *client, uint32_t *ret)
{
        Pipe *pipe = client->pipe;
        bool is_found = false;

        (void)pthread_mutex_lock(&pipe->lock);
        for (uint32_t i = 0; !is_found && i < ARRAY_SIZE(pipe->numbers); i++) {
                if (pipe->numbers[i] == UINT64_MAX)
                        continue;
                *ret = i * 64 + (uint32_t)__builtin_ctzll(~pipe->numbers[i]);
                pipe->numbers[i] |= UINT64_C(1) << (*ret % 64);
                is_found = true;
        }
        (void)pthread_mutex_unlock(&pipe->lock);
        return is_found;
}

void pipe_give_number(Client *client, uint32_t number)
{
        Pipe *pipe = client->pipe;

        (void)pthread_mutex_lock(&pipe->lock);
        pipe->numbers[number / 64] &= ~(UINT64_C(1) << (number % 64));
        (void)pthread_mutex_unlock(&pipe->lock);
}
