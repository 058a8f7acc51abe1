/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The raw client. Every wait is bounded; what goes wrong on our own side is a failure of the test, never a return
 * value.
 */
#include "tests/integration/raw.h"

#include <sys/socket.h>
#include <sys/un.h>

enum { RAW_WAIT_MS = 20000 };

Raw *raw_connect(const Foliod *foliod)
{
        struct sockaddr_un address = { .sun_family = AF_UNIX };
        Raw *raw = calloc(1, sizeof(*raw));

        CHECK(raw);
        raw->staging_fd = -1;
        CHECK(proto_decoder_new(&raw->decoder) == 0);
        CHECK(strlen(foliod->socket_path) < sizeof(address.sun_path));
        memcpy(address.sun_path, foliod->socket_path, strlen(foliod->socket_path) + 1);
        raw->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        CHECK(raw->socket >= 0);
        /* A full backlog answers EAGAIN on a socket that does not block: look again. */
        for (unsigned i = 0; connect(raw->socket, (struct sockaddr *)&address, sizeof(address)) != 0; i++) {
                CHECK(errno == EAGAIN && i < 5000);
                harness_pause();
        }
        return raw;
}

Raw *raw_open(const Foliod *foliod)
{
        ProtoRequest hello = {
                .verb = VERB_HELLO,
                .version_min = PROTO_VERSION,
                .version_max = PROTO_VERSION,
                .client_name = raw_key("raw"),
        };
        Raw *raw = raw_connect(foliod);

        CHECK(raw_call(raw, &hello));
        CHECK(raw->reply.status == STATUS_OK && raw->reply.has_welcome);
        CHECK(raw->n_fds == 2);
        raw->staging_bytes = raw->reply.staging_bytes;
        raw->packed_bytes_max = raw->reply.packed_bytes_max;
        raw->budget_bytes = raw->reply.budget_bytes;
        raw->staging_fd = raw_take_fd(raw, 0);
        raw->staging = mmap(NULL, raw->staging_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, raw->staging_fd, 0);
        CHECK(raw->staging != MAP_FAILED);
        return raw;
}

static void drop_fds(Raw *raw)
{
        for (size_t i = 0; i < raw->n_fds; i++)
                if (raw->fds[i] >= 0)
                        close(raw->fds[i]);
        raw->n_fds = 0;
}

void raw_close(Raw *raw)
{
        if (!raw)
                return;
        drop_fds(raw);
        if (raw->staging)
                (void)munmap(raw->staging, raw->staging_bytes);
        if (raw->staging_fd >= 0)
                close(raw->staging_fd);
        close(raw->socket);
        proto_decoder_free(raw->decoder);
        free(raw);
}

static void await(const Raw *raw, short events)
{
        struct pollfd ready = { .fd = raw->socket, .events = events };
        int n;

        do
                n = poll(&ready, 1, RAW_WAIT_MS);
        while (n < 0 && errno == EINTR);
        CHECK(n == 1);
}

bool raw_send_bytes(Raw *raw, const void *bytes, size_t n_bytes, const int *fds, size_t n_fds)
{
        for (unsigned i = 0; i < 10000; i++) {
                int outcome = channel_send(raw->socket, bytes, n_bytes, fds, n_fds);

                if (outcome == CHANNEL_OK)
                        return true;
                if (outcome == CHANNEL_E_TOO_MANY)
                        harness_pause();
                else if (outcome == CHANNEL_E_AGAIN)
                        await(raw, POLLOUT);
                else
                        return false;
        }
        CHECK(!"the socket never had room");
        return false;
}

bool raw_send(Raw *raw, ProtoRequest *request, bool is_quiet, const int *fds, size_t n_fds)
{
        uint8_t bytes[PROTO_MESSAGE_BYTES_MAX];
        size_t n_bytes;

        if (is_quiet)
                request->id = 0;
        else if (request->id == 0)
                request->id = ++raw->last_id;
        CHECK(proto_encode_request(request, bytes, &n_bytes));
        return raw_send_bytes(raw, bytes, n_bytes, fds, n_fds);
}

bool raw_receive(Raw *raw)
{
        size_t n_bytes = 0, n_uninvited = 0;
        int outcome;

        drop_fds(raw);
        for (;;) {
                outcome = channel_receive(raw->socket, raw->packet, sizeof(raw->packet), &n_bytes, raw->fds,
                                          PROTO_FDS_MAX, &raw->n_fds, &n_uninvited);
                if (outcome != CHANNEL_E_AGAIN)
                        break;
                await(raw, POLLIN);
        }
        if (outcome == CHANNEL_E_HANGUP || outcome == -ECONNRESET || outcome == -EPIPE)
                return false;
        CHECK(outcome == CHANNEL_OK);
        CHECK(proto_decode_reply(raw->decoder, raw->packet, n_bytes, &raw->reply));
        return true;
}

bool raw_call(Raw *raw, ProtoRequest *request)
{
        request->id = 0;
        if (!raw_send(raw, request, false, NULL, 0))
                return false;
        while (raw_receive(raw))
                if (raw->reply.id == request->id)
                        return true;
        return false;
}

Status raw_item(Raw *raw, ProtoVerb verb, uint32_t namespace_id, ProtoItem item)
{
        ProtoRequest request = { .verb = verb, .namespace_id = namespace_id, .n_items = 1, .items = &item };

        CHECK(raw_call(raw, &request));
        if (raw->reply.status != STATUS_OK)
                return raw->reply.status;
        CHECK(raw->reply.n_items == 1);
        return raw->reply.items[0].status;
}

uint32_t raw_namespace(Raw *raw, const char *name)
{
        ProtoRequest request = { .verb = VERB_NAMESPACE_OPEN, .has_namespace = true };

        (void)snprintf(request.ns.name, sizeof(request.ns.name), "%s", name);
        CHECK(raw_call(raw, &request));
        CHECK(raw->reply.status == STATUS_OK && raw->reply.n_namespaces == 1);
        return raw->reply.namespaces[0].id;
}

int raw_take_fd(Raw *raw, size_t place)
{
        int fd;

        CHECK(place < raw->n_fds && raw->fds[place] >= 0);
        fd = raw->fds[place];
        raw->fds[place] = -1;
        return fd;
}

void raw_await_hangup(Raw *raw)
{
        for (unsigned i = 0; i < 100000; i++)
                if (!raw_receive(raw))
                        return;
        CHECK(!"the daemon goes on answering");
}
