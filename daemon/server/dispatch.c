/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A request is decoded into the dispatch's one decoder, whose contents live until the next message; so a request about
 * objects takes its items along, into one block with its operations. Everything is answered through one scratch
 * reply: the loop is one thread, and a reply is on its way, or copied, before the next is made. A request that takes
 * longer than its peer's turn is cut between two items, and goes on in a later turn.
 *
 * A reply to 256 items without sentences always fits into a packet; sentences are added as far as there is room.
 *
 * Over 600 lines: each verb has its few, and all of them answer through the one scratch reply.
 */
#include "daemon/server/dispatch.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/macro.h"
#include "daemon/server/ring.h"
#include "daemon/server/shape.h"
#include "daemon/server/trace.h"
#include "proto/channel.h"
#include "proto/layout.h"

#define REPLY_HEAD_BYTES 64 /* id and status of a reply, at most */

typedef struct Request {
        Dispatch *dispatch;
        Peer *peer;                  /* by peer_begin_request() */
        size_t n_block_bytes;
        uint64_t id;                 /* 0: no answer */
        ProtoVerb verb;
        size_t n_items;
        size_t n_begun;              /* items; the others wait for a later turn */
        size_t n_pending;            /* operations that have not ended, and one until all are begun */
        ProtoItem *items;
        StoreOp ops[];
} Request;

struct Dispatch {
        DispatchConfig config;
        ProtoDecoder *decoder;
        uint64_t n_requests;
        size_t n_under_way;
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        ProtoItemReply items[PROTO_ITEMS_MAX];
        int fds[PROTO_FDS_MAX];      /* borrowed */
        ProtoNamespace namespaces[PROTO_NAMESPACES_MAX];
        StoreHolder store_holders[PROTO_HOLDERS_MAX];
        ProtoHolder holders[PROTO_HOLDERS_MAX];
        ProtoFact facts[PROTO_FACTS_MAX];
        char fact_texts[PROTO_FACTS_MAX][128];
        char fact_names[PROTO_FACTS_MAX][64];
        size_t n_facts;
};

static Key key_of(const char *text, size_t n_bytes_max)
{
        size_t n_bytes = text ? strlen(text) : 0;

        return (Key){ n_bytes > 0 ? text : "", MIN(n_bytes, n_bytes_max) };
}

/* --- replies ------------------------------------------------------------------------------------------------------ */

static void send_reply(Dispatch *dispatch, Peer *peer, const ProtoReply *reply, size_t n_fds)
{
        size_t n_bytes;

        if (!proto_encode_reply(reply, dispatch->bytes, &n_bytes)) {
                /* Only where our own sizes are wrong; a client that waits for ever would be worse. */
                peer_log_failure(peer, "a reply", "it does not fit into a packet");
                peer_finish(peer);
                return;
        }
        peer_send(peer, dispatch->bytes, n_bytes, dispatch->fds, n_fds);
}

/* @subject: what it is about, where that has a name. */
static void log_refusal(Peer *peer, ProtoVerb verb, Key subject, Status status, const char *detail)
{
        if (status != STATUS_OK)
                trace_refusal(peer_get_comm(peer), peer_get_cred(peer), verb, subject, status, detail);
        if (status == STATUS_INTERNAL)
                peer_log_failure(peer, "a request", detail ? detail : "no reason was given");
}

/* Of a request as a whole. */
static void send_status(Dispatch *dispatch, Peer *peer, const ProtoRequest *request, Status status, const char *detail)
{
        Key subject = request->n_items > 0 ? request->items[0].key
                                           : key_of(request->ns.name, FOLIO_NAMESPACE_BYTES_MAX);
        ProtoReply reply = {
                .id = request->id,
                .status = status,
                .detail = status == STATUS_OK ? (Key){ "", 0 } : key_of(detail, PROTO_DETAIL_BYTES_MAX),
        };

        log_refusal(peer, request->verb, subject, status, detail);
        send_reply(dispatch, peer, &reply, 0);
}

/* --- requests about objects --------------------------------------------------------------------------------------- */

/* The place of @op's descriptor among those of the message, from 1; each region's goes once. */
static uint32_t place_descriptor(Dispatch *dispatch, const Request *request, size_t i, size_t *n_fds)
{
        const StoreOp *op = &request->ops[i];

        if (op->fd < 0 || op->status != STATUS_OK)
                return 0;
        for (size_t j = 0; request->verb == VERB_REGION && j < i; j++) {
                const StoreOp *other = &request->ops[j];

                if (dispatch->items[j].descriptor != 0 && other->region_id == op->region_id &&
                    (request->items[j].flags & PROTO_ITEM_WRITABLE) == (request->items[i].flags & PROTO_ITEM_WRITABLE))
                        return dispatch->items[j].descriptor;
        }
        assert(*n_fds < PROTO_FDS_MAX);
        dispatch->fds[(*n_fds)++] = op->fd;
        /* A lease's second stands right behind the first. */
        if (op->book_fd >= 0)
                dispatch->fds[(*n_fds)++] = op->book_fd;
        return (uint32_t)*n_fds - (op->book_fd >= 0);
}

static void add_details(Dispatch *dispatch, const Request *request)
{
        size_t n_room = PROTO_MESSAGE_BYTES_MAX - REPLY_HEAD_BYTES;

        for (size_t i = 0; i < request->n_items; i++) {
                size_t n_bytes = proto_item_reply_bytes(&dispatch->items[i]);

                assert(n_bytes <= n_room);
                n_room -= n_bytes;
        }
        for (size_t i = 0; i < request->n_items; i++) {
                ProtoItemReply *item = &dispatch->items[i];
                size_t n_without, n_more;

                if (item->status == STATUS_OK || !request->ops[i].detail)
                        continue;
                n_without = proto_item_reply_bytes(item);
                item->detail = key_of(request->ops[i].detail, PROTO_DETAIL_BYTES_MAX);
                n_more = proto_item_reply_bytes(item) - n_without;
                if (n_more > n_room)
                        item->detail = (Key){ "", 0 };
                else
                        n_room -= n_more;
        }
}

static void answer(const Request *request)
{
        Dispatch *dispatch = request->dispatch;
        ProtoReply reply = { .id = request->id, .n_items = request->n_items, .items = dispatch->items };
        size_t n_fds = 0;

        for (size_t i = 0; i < request->n_items; i++) {
                const StoreOp *op = &request->ops[i];

                dispatch->items[i] = (ProtoItemReply){ .status = op->status, .detail = { "", 0 } };
                log_refusal(request->peer, request->verb, request->items[i].key, op->status, op->detail);
                if (op->status != STATUS_OK)
                        continue;
                dispatch->items[i].slot = op->slot;
                dispatch->items[i].generation = op->generation;
                dispatch->items[i].region_id = op->region_id;
                dispatch->items[i].region_bytes = op->region_bytes;
                dispatch->items[i].offset_bytes = op->offset_bytes;
                dispatch->items[i].placement = op->placement;
                dispatch->items[i].descriptor = place_descriptor(dispatch, request, i, &n_fds);
        }
        add_details(dispatch, request);
        send_reply(dispatch, request->peer, &reply, n_fds);
}

static void finish_item(Request *request)
{
        assert(request->n_pending > 0);
        if (--request->n_pending > 0)
                return;
        if (request->id != 0 && request->verb != VERB_RELEASE)
                answer(request);
        for (size_t i = 0; i < request->n_items; i++) {
                (void)close_fd(request->ops[i].fd);
                (void)close_fd(request->ops[i].book_fd);
                free(request->ops[i].detail);
        }
        request->dispatch->n_under_way--;
        peer_end_request(request->peer, request->n_block_bytes);
        free(request);
}

static void on_op_done(StoreOp *op)
{
        finish_item(op->userdata);
}

static char *take_key(Key *key, char *at)
{
        if (key->n_bytes > 0)
                memcpy(at, key->bytes, key->n_bytes);
        key->bytes = at;
        return at + key->n_bytes;
}

/* The items, with what they borrow from the decoder, in one block with their operations. */
static Request *request_new(Dispatch *dispatch, Peer *peer, const ProtoRequest *from)
{
        size_t n_bytes = sizeof(Request) + from->n_items * (sizeof(StoreOp) + sizeof(ProtoItem));
        Request *request;
        char *at;

        /* Each term is small: 256 items, 16 KiB of bytes. */
        for (size_t i = 0; i < from->n_items; i++)
                n_bytes += from->items[i].key.n_bytes + from->items[i].metadata.n_bytes +
                           from->items[i].content_type.n_bytes;
        request = malloc(n_bytes);
        if (!request)
                return NULL;
        *request = (Request){
                .dispatch = dispatch,
                .peer = peer,
                .n_block_bytes = n_bytes,
                .id = from->id,
                .verb = from->verb,
                .n_items = from->n_items,
                .n_pending = from->n_items + 1,
                .items = (ProtoItem *)(void *)&request->ops[from->n_items],
        };
        memcpy(request->items, from->items, from->n_items * sizeof(ProtoItem));
        at = (char *)(request->items + from->n_items);
        for (size_t i = 0; i < from->n_items; i++) {
                at = take_key(&request->items[i].key, at);
                at = take_key(&request->items[i].metadata, at);
                at = take_key(&request->items[i].content_type, at);
                request->ops[i] = (StoreOp){
                        .session = peer_get_session(peer),
                        .verb = from->verb,
                        .namespace_id = from->namespace_id,
                        .item = &request->items[i],
                        .origin = layout_origin_of_message(session_number(peer_get_session(peer)), from->id,
                                                           (uint32_t)i),
                        .done = on_op_done,
                        .userdata = request,
                        .fd = -1,
                        .book_fd = -1,
                };
        }
        dispatch->n_under_way++;
        peer_begin_request(peer, n_bytes);
        return request;
}

static void refuse_item(Request *request, StoreOp *op, Status status, const char *detail)
{
        op->status = status;
        op->detail = strdup(detail); /* without memory for it, an answer without a sentence */
        finish_item(request);
}

static void begin_item(Request *request, StoreOp *op)
{
        const char *fault = shape_find_item_fault(request->verb, op->item);

        if (!peer_get_session(request->peer))
                refuse_item(request, op, STATUS_CANCELLED, "the connection has ended");
        else if (fault)
                refuse_item(request, op, STATUS_INVALID, fault);
        else if (request->verb == VERB_LEASE && !peer_has_side(request->peer))
                refuse_item(request, op, STATUS_STATE, "what is placed in a lease is published through a ring, and "
                                                       "there is none");
        else
                store_submit(request->dispatch->config.store, op);
}

/* The items that have not been begun, as many as the peer's turn has room for, one at least; then it is put off. */
static void begin_items(void *userdata)
{
        Request *request = userdata;
        Peer *peer = request->peer;

        while (request->n_begun < request->n_items) {
                begin_item(request, &request->ops[request->n_begun++]);
                if (request->n_begun < request->n_items && peer_get_session(peer) && peer_turn_is_over(peer)) {
                        peer_put_off(peer, begin_items, request);
                        return;
                }
        }
        finish_item(request);
}

static void start_object_request(Dispatch *dispatch, Peer *peer, const ProtoRequest *from)
{
        Request *request = request_new(dispatch, peer, from);

        if (request)
                begin_items(request);
        else if (from->id != 0)
                send_status(dispatch, peer, from, STATUS_INTERNAL, "foliod has no memory for the request");
}

/* --- HELLO -------------------------------------------------------------------------------------------------------- */

/* For who comes after us: by it a session ends whose client does not come back. */
static void keep_process(Peer *peer, Session *session)
{
        int fd = session_token(session) != 0 ? peer_open_process(peer) : -1;

        session_keep_process(session, fd);
        (void)close_fd(fd);
}

/* The session that it had with an earlier foliod; false: there is none, and it gets a new one. */
static bool resume_session(Dispatch *dispatch, Peer *peer, uint64_t token, const SessionConfig *config)
{
        DaemonRing *ring = NULL;
        Session *session = NULL;

        if (dispatch->config.ghosts)
                session = ghosts_resume(dispatch->config.ghosts, token, config, &ring);
        if (!session)
                return false;
        keep_process(peer, session);
        peer_set_session(peer, session);
        if (ring)
                daemon_ring_attach(ring, peer);
        return true;
}

static Status open_session(Dispatch *dispatch, Peer *peer, const ProtoRequest *request, bool *ret_is_resumed,
                           char **ret_detail)
{
        char name[PROTO_CLIENT_NAME_BYTES_MAX + 1];
        SessionConfig config = {
                .cred = *peer_get_cred(peer),
                .comm = peer_get_comm(peer),
                .connected_ns = peer_get_connected_ns(peer),
                .is_tool = request->is_tool,
                .userdata = peer,
        };
        Session *session;
        Status status;

        if (request->client_name.n_bytes > 0) {
                memcpy(name, request->client_name.bytes, request->client_name.n_bytes);
                name[request->client_name.n_bytes] = '\0';
                config.comm = name;
        }
        *ret_is_resumed = request->resume != 0 && resume_session(dispatch, peer, request->resume, &config);
        if (*ret_is_resumed)
                return STATUS_OK;
        status = session_new(dispatch->config.store, &config, &session, ret_detail);
        if (status == STATUS_OK) {
                keep_process(peer, session);
                peer_set_session(peer, session);
        }
        return status;
}

bool dispatch_is_tool(Dispatch *dispatch, const void *bytes, size_t n_bytes)
{
        ProtoRequest request;

        return proto_decode_request(dispatch->decoder, bytes, n_bytes, &request) && request.verb == VERB_HELLO &&
               request.is_tool;
}

static void do_hello(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        _cleanup_(cleanup_free) char *detail = NULL;
        ProtoReply reply = {
                .id = request->id,
                .has_welcome = true,
                .version = PROTO_VERSION,
                .staging_bytes = dispatch->config.staging_bytes,
                .packed_bytes_max = dispatch->config.packed_bytes_max,
                .budget_bytes = dispatch->config.budget_bytes,
                .daemon_pid = (uint32_t)getpid(),
                .daemon_version = key_of(dispatch->config.version, 63),
        };
        size_t n_fds = 0;
        Status status;

        if (request->version_min > PROTO_VERSION || request->version_max < PROTO_VERSION) {
                char sentence[128];

                (void)snprintf(sentence, sizeof(sentence),
                               "this foliod speaks version %d of the protocol, the client %u to %u", PROTO_VERSION,
                               request->version_min, request->version_max);
                send_status(dispatch, peer, request, STATUS_PROTOCOL, sentence);
                peer_finish(peer);
                return;
        }
        status = open_session(dispatch, peer, request, &reply.is_resumed, &detail);
        if (status != STATUS_OK) {
                send_status(dispatch, peer, request, status, detail);
                peer_finish(peer);
                return;
        }
        reply.instance = store_instance(dispatch->config.store);
        reply.session_token = session_token(peer_get_session(peer));
        reply.session_number = session_number(peer_get_session(peer));
        if (!reply.is_resumed)
                dispatch->fds[n_fds++] = session_staging_fd(peer_get_session(peer));
        if (dispatch->config.beacon)
                dispatch->fds[n_fds++] = daemon_beacon_fd(dispatch->config.beacon);
        send_reply(dispatch, peer, &reply, n_fds);
}

/* --- verbs that answer as a whole --------------------------------------------------------------------------------- */

static void do_namespace(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        _cleanup_(cleanup_free) char *detail = NULL;
        Store *store = dispatch->config.store;
        Session *session = peer_get_session(peer);
        ProtoReply reply = { .id = request->id, .n_namespaces = 1, .namespaces = dispatch->namespaces };
        int index_fd = -1, pins_fd = -1;
        size_t n_fds = 0;
        Status status;

        memset(&dispatch->namespaces[0], 0, sizeof(dispatch->namespaces[0]));
        if (request->verb == VERB_NAMESPACE_OPEN)
                status = store_namespace_open(store, session, request->ns.name, &dispatch->namespaces[0], &index_fd,
                                              &pins_fd, &detail);
        else if (request->verb == VERB_NAMESPACE_ADD)
                status = store_namespace_add(store, session, &request->ns, &dispatch->namespaces[0], &detail);
        else if (request->verb == VERB_NAMESPACE_SET)
                status = store_namespace_set(store, session, &request->ns, &dispatch->namespaces[0], &detail);
        else
                status = store_namespace_remove(store, session, request->ns.name, &detail);
        if (status != STATUS_OK) {
                send_status(dispatch, peer, request, status, detail);
                return;
        }
        if (request->verb != VERB_NAMESPACE_OPEN)
                trace_namespace(peer_get_comm(peer), peer_get_cred(peer), request->verb,
                                request->verb == VERB_NAMESPACE_REMOVE ? &request->ns : &dispatch->namespaces[0]);
        if (request->verb == VERB_NAMESPACE_REMOVE)
                reply.n_namespaces = 0;
        if (index_fd >= 0)
                dispatch->fds[n_fds++] = index_fd;
        if (pins_fd >= 0)
                dispatch->fds[n_fds++] = pins_fd;
        send_reply(dispatch, peer, &reply, n_fds);
}

/* How many of a list fit, by trying: a list is asked for rarely, and goes on behind its last. */
static void send_shortened(Dispatch *dispatch, Peer *peer, ProtoReply *reply, size_t *n, bool counts_more)
{
        uint32_t n_more = reply->n_more;
        size_t n_bytes, n_all = *n;

        while (!proto_encode_reply(reply, dispatch->bytes, &n_bytes)) {
                assert(*n > 0);
                *n -= MAX(*n / 8, 1);
                reply->n_more = counts_more ? n_more + (uint32_t)(n_all - *n) : 0;
        }
        send_reply(dispatch, peer, reply, 0);
}

static void do_namespace_list(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        ProtoReply reply = { .id = request->id, .namespaces = dispatch->namespaces };

        reply.n_namespaces = store_namespace_list(dispatch->config.store, peer_get_session(peer), request->after,
                                                  dispatch->namespaces, PROTO_NAMESPACES_MAX);
        send_shortened(dispatch, peer, &reply, &reply.n_namespaces, false);
}

static void do_holders(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        _cleanup_(cleanup_free) char *detail = NULL;
        ProtoReply reply = { .id = request->id, .holders = dispatch->holders };
        size_t n_holders = 0;
        Status status;

        status = store_holders(dispatch->config.store, peer_get_session(peer), request->namespace_id,
                               &request->items[0], dispatch->store_holders, PROTO_HOLDERS_MAX, &n_holders, &detail);
        if (status != STATUS_OK) {
                send_status(dispatch, peer, request, status, detail);
                return;
        }
        reply.n_holders = MIN(n_holders, PROTO_HOLDERS_MAX);
        reply.n_more = (uint32_t)(n_holders - reply.n_holders);
        for (size_t i = 0; i < reply.n_holders; i++) {
                const StoreHolder *from = &dispatch->store_holders[i];
                const Cred *cred = session_cred(from->session);

                dispatch->holders[i] = (ProtoHolder){ cred->pid, cred->uid, from->n_pins,
                                                      session_connected_ns(from->session),
                                                      key_of(session_comm(from->session), PEER_COMM_BYTES_MAX) };
        }
        send_shortened(dispatch, peer, &reply, &reply.n_holders, true);
}

static void do_watch(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        _cleanup_(cleanup_free) char *detail = NULL;
        ProtoReply reply = { .id = request->id };
        int fd = -1;
        Status status;

        status = store_watch(dispatch->config.store, peer_get_session(peer), request->namespace_id, &fd, &detail);
        if (status != STATUS_OK) {
                send_status(dispatch, peer, request, status, detail);
                return;
        }
        dispatch->fds[0] = fd;
        send_reply(dispatch, peer, &reply, 1);
}

/* Two descriptors: its memory, and its bell. */
static void do_ring(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        _cleanup_(cleanup_free) char *detail = NULL;
        ProtoReply reply = { .id = request->id };
        RingHost host = {
                .base = dispatch->config.base,
                .store = dispatch->config.store,
                .poller = dispatch->config.poller,
                .packed_bytes_max = dispatch->config.packed_bytes_max,
        };
        DaemonRing *ring = peer_get_side(peer);
        Status status = STATUS_OK;

        /* One that came back with its session may have asked for it before, and not been answered. */
        if (ring && !daemon_ring_is_restored(ring)) {
                send_status(dispatch, peer, request, STATUS_STATE, "the connection has its ring");
                return;
        }
        if (!host.base || !host.poller) {
                send_status(dispatch, peer, request, STATUS_UNSUPPORTED, "there are no rings here");
                return;
        }
        if (!ring)
                status = daemon_ring_new(&host, peer, &ring, &detail);
        if (status != STATUS_OK) {
                send_status(dispatch, peer, request, status, detail);
                return;
        }
        dispatch->fds[0] = daemon_ring_fd(ring);
        dispatch->fds[1] = daemon_ring_bell_fd(ring);
        send_reply(dispatch, peer, &reply, 2);
}

static void take_fact(void *userdata, const char *name, uint64_t value, const char *text)
{
        Dispatch *dispatch = userdata;
        size_t i = dispatch->n_facts;

        if (i >= PROTO_FACTS_MAX)
                return;
        /* Cut where too long: names are ours, and texts are for people. */
        (void)snprintf(dispatch->fact_names[i], sizeof(dispatch->fact_names[i]), "%s", name);
        (void)snprintf(dispatch->fact_texts[i], sizeof(dispatch->fact_texts[i]), "%s", text ? text : "");
        dispatch->facts[i] = (ProtoFact){ key_of(dispatch->fact_names[i], 63), value,
                                          key_of(dispatch->fact_texts[i], 127) };
        dispatch->n_facts++;
}

static void do_status(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        ProtoReply reply = { .id = request->id, .facts = dispatch->facts };

        dispatch->n_facts = 0;
        if (dispatch->config.each_fact)
                dispatch->config.each_fact(dispatch->config.userdata, take_fact, dispatch);
        if (dispatch->config.ghosts) {
                GhostsFacts facts;

                ghosts_get_facts(dispatch->config.ghosts, &facts);
                take_fact(dispatch, "sessions.ghosts", facts.n_ghosts, NULL);
                take_fact(dispatch, "sessions.resumed", facts.n_resumed, NULL);
                take_fact(dispatch, "sessions.lost", facts.n_ended, NULL);
        }
        store_each_fact(dispatch->config.store, take_fact, dispatch);
        reply.n_facts = dispatch->n_facts;
        send_shortened(dispatch, peer, &reply, &reply.n_facts, false);
}

/* --- messages ----------------------------------------------------------------------------------------------------- */

static void carry_out(Dispatch *dispatch, Peer *peer, const ProtoRequest *request)
{
        switch (request->verb) {
        case VERB_HELLO:
                do_hello(dispatch, peer, request);
                break;
        case VERB_NAMESPACE_OPEN:
        case VERB_NAMESPACE_ADD:
        case VERB_NAMESPACE_SET:
        case VERB_NAMESPACE_REMOVE:
                do_namespace(dispatch, peer, request);
                break;
        case VERB_PUT:
        case VERB_CREATE:
        case VERB_WRITE:
        case VERB_SEAL:
        case VERB_ABORT:
        case VERB_REGION:
        case VERB_RELEASE:
        case VERB_TRUNCATE:
        case VERB_DELETE:
        case VERB_LEASE:
                start_object_request(dispatch, peer, request);
                break;
        case VERB_HOLDERS:
                do_holders(dispatch, peer, request);
                break;
        case VERB_WATCH:
                do_watch(dispatch, peer, request);
                break;
        case VERB_RING:
                do_ring(dispatch, peer, request);
                break;
        case VERB_NAMESPACE_LIST:
                do_namespace_list(dispatch, peer, request);
                break;
        case VERB_STATUS:
                do_status(dispatch, peer, request);
                break;
        case VERB_PING:
                send_status(dispatch, peer, request, STATUS_OK, NULL);
                break;
        case VERB_NONE:
        case _VERB_MAX:
                assert(false); /* the codec knows verbs only */
        }
}

void dispatch_message(Peer *peer, const void *bytes, size_t n_bytes, void *userdata)
{
        Dispatch *dispatch = userdata;
        ProtoRequest request;
        const char *breach, *fault;

        if (!proto_decode_request(dispatch->decoder, bytes, n_bytes, &request)) {
                peer_breach(peer, "a message is a Request within the limits");
                return;
        }
        dispatch->n_requests++;
        breach = shape_find_breach(&request, peer_get_session(peer) != NULL);
        if (breach) {
                peer_breach(peer, "%s (%s)", breach, trace_verb_name(request.verb));
                return;
        }
        fault = shape_find_fault(&request, dispatch->config.packed_bytes_max);
        if (fault)
                send_status(dispatch, peer, &request, STATUS_INVALID, fault);
        else
                carry_out(dispatch, peer, &request);
}

int dispatch_new(const DispatchConfig *config, Dispatch **ret)
{
        Dispatch *dispatch = calloc(1, sizeof(*dispatch));
        int r;

        if (!dispatch)
                return -ENOMEM;
        dispatch->config = *config;
        r = proto_decoder_new(&dispatch->decoder);
        if (r < 0) {
                free(dispatch);
                return r;
        }
        *ret = dispatch;
        return 0;
}

void dispatch_free(Dispatch *dispatch)
{
        assert(dispatch->n_under_way == 0);
        proto_decoder_free(dispatch->decoder);
        free(dispatch);
}

void dispatch_set_budget(Dispatch *dispatch, uint64_t budget_bytes)
{
        dispatch->config.budget_bytes = budget_bytes;
}

uint64_t dispatch_n_requests(const Dispatch *dispatch)
{
        return dispatch->n_requests;
}
