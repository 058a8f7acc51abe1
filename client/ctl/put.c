/* SPDX-License-Identifier: Apache-2.0 */
/*
 * put and replace. What fits into one call is put in one call. A file of known size gets its memory first, so that a
 * store that is full says so before a byte is copied; a pipe grows as it comes. Whatever goes wrong on the way, the
 * object is aborted and nothing is left, as if the connection had ended.
 */
#include "client/ctl/ctl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "client/ctl/facts.h"
#include "client/ctl/transfer.h"
#include "client/ctl/verbs.h"

enum {
        PUT_REPLACE = 1,
        PUT_CONTENT_TYPE,
        PUT_METADATA,
        PUT_LIFETIME,
        PUT_EXPIRES_IN,
        PUT_MUTABLE,
        PUT_CAPACITY,
        PUT_SPARSE,
        PUT_OWN_REGION,
};

#define PUT_OPTIONS                                                                                                    \
        { PUT_CONTENT_TYPE, 't', "content-type", "TYPE", "what the bytes are, as `image/png`" },                       \
                { PUT_METADATA, 'm', "metadata", "KEY=VALUE|@FILE",                                                    \
                  "up to 4 KiB of your own: lines, given one by one, or a file's bytes" },                             \
                { PUT_LIFETIME, 0, "lifetime", "WORD", "until-deleted (the default), with-creator or until-time" },    \
                { PUT_EXPIRES_IN, 'e', "expires-in", "TIME", "lifetime until-time: so long from now" },                \
                { PUT_MUTABLE, 0, "mutable", NULL, "shared memory that can be written and truncated; never sealed" },  \
                { PUT_CAPACITY, 0, "capacity", "SIZE", "the largest size a mutable object can be given" },             \
                { PUT_SPARSE, 0, "sparse", NULL, "holes of the file stay holes and take no memory" },                  \
                { PUT_OWN_REGION, 0, "own-region", NULL, "a region of its own, however small it is" },                 \
        {                                                                                                              \
                0                                                                                                      \
        }

static const CtlOption put_options[] = {
        { PUT_REPLACE, 'r', "replace", NULL, "where the name is taken, move it to the new object in one step" },
        PUT_OPTIONS,
};

static const CtlOption replace_options[] = { PUT_OPTIONS };

typedef struct Put {
        const char *name;
        Source source;
        struct folio_create_options options;
        char metadata[FOLIO_METADATA_BYTES_MAX + 1];
        bool has_lifetime;
} Put;

static void put_deinit(Put *put)
{
        source_close(&put->source);
}

static int take_metadata_file(Ctl *ctl, Put *put, const char *path)
{
        Source file;
        size_t n;
        int r;

        if (put->options.metadata_bytes > 0)
                return ctl_usage_error(ctl, "--metadata: lines and a file's bytes do not go together");
        r = source_open(ctl, path, &file);
        if (r != CTL_OK)
                return r;
        r = source_read(&file, put->metadata, sizeof(put->metadata), &n);
        source_close(&file);
        if (r < 0)
                return ctl_complain(ctl, "cannot read %s: %s", path, strerror(-r));
        if (n > FOLIO_METADATA_BYTES_MAX)
                return ctl_usage_error(ctl, "--metadata: %s has more than %d bytes", path, FOLIO_METADATA_BYTES_MAX);
        put->options.metadata_bytes = n;
        return CTL_OK;
}

/* What holds a `=` is a line of its own; everything else, and what begins with `@`, is a file. */
static int take_metadata(Ctl *ctl, Put *put, const char *text)
{
        size_t n = strlen(text), n_before = put->options.metadata_bytes;

        put->options.metadata = put->metadata;
        if (*text == '@' || !strchr(text, '='))
                return take_metadata_file(ctl, put, *text == '@' ? text + 1 : text);
        if (n_before > 0)
                put->metadata[n_before++] = '\n';
        if (n_before > FOLIO_METADATA_BYTES_MAX || n > FOLIO_METADATA_BYTES_MAX - n_before)
                return ctl_usage_error(ctl, "--metadata: together more than %d bytes", FOLIO_METADATA_BYTES_MAX);
        memcpy(put->metadata + n_before, text, n);
        put->options.metadata_bytes = n_before + n;
        return CTL_OK;
}

static int take_lifetime(Ctl *ctl, Put *put, const char *word)
{
        if (!facts_parse_lifetime(word, &put->options.lifetime))
                return ctl_usage_error(ctl, "--lifetime: '%s' is none of until-deleted, with-creator, until-time",
                                       word);
        put->has_lifetime = true;
        if (put->options.lifetime == FOLIO_WITH_CREATOR)
                ctl_note(ctl, "an object with lifetime with-creator is deleted when this folioctl ends");
        return CTL_OK;
}

static int take_expires_in(Ctl *ctl, Put *put, const char *text)
{
        uint64_t in_ns;

        if (!ctl_take_duration(ctl, "--expires-in", text, &in_ns))
                return ctl->status;
        if (in_ns == 0)
                return ctl_usage_error(ctl, "--expires-in: %s is no time from now", text);
        if (__builtin_add_overflow(ctl_now_ns(), in_ns, &put->options.expires_ns))
                return ctl_usage_error(ctl, "--expires-in: %s from now lies beyond the calendar", text);
        return CTL_OK;
}

static int take_option(Ctl *ctl, Put *put, int id, const char *argument)
{
        switch (id) {
        case PUT_REPLACE:
                put->options.flags |= FOLIO_REPLACE;
                return CTL_OK;
        case PUT_CONTENT_TYPE:
                put->options.content_type = argument;
                return CTL_OK;
        case PUT_METADATA:
                return take_metadata(ctl, put, argument);
        case PUT_LIFETIME:
                return take_lifetime(ctl, put, argument);
        case PUT_EXPIRES_IN:
                return take_expires_in(ctl, put, argument);
        case PUT_MUTABLE:
                put->options.flags |= FOLIO_MUTABLE;
                return CTL_OK;
        case PUT_CAPACITY:
                return ctl_take_size(ctl, "--capacity", argument, &put->options.capacity_bytes) ? CTL_OK : ctl->status;
        case PUT_SPARSE:
                put->options.flags |= FOLIO_SPARSE;
                return CTL_OK;
        default:
                put->options.flags |= FOLIO_OWN_REGION;
                return CTL_OK;
        }
}

/* What contradicts itself, whatever the store would say. */
static int check_options(Ctl *ctl, Put *put)
{
        bool is_mutable = put->options.flags & FOLIO_MUTABLE;

        if (put->options.expires_ns && !put->has_lifetime)
                put->options.lifetime = FOLIO_UNTIL_TIME;
        if (put->options.expires_ns && put->options.lifetime != FOLIO_UNTIL_TIME)
                return ctl_usage_error(ctl, "--expires-in goes with --lifetime until-time only");
        if (put->options.lifetime == FOLIO_UNTIL_TIME && !put->options.expires_ns)
                return ctl_usage_error(ctl, "--lifetime until-time needs --expires-in");
        if (put->options.capacity_bytes && !is_mutable)
                return ctl_usage_error(ctl, "--capacity goes with --mutable only");
        if (put->options.content_type && strlen(put->options.content_type) > FOLIO_CONTENT_TYPE_BYTES_MAX)
                return ctl_usage_error(ctl, "--content-type: more than %d bytes", FOLIO_CONTENT_TYPE_BYTES_MAX);
        return CTL_OK;
}

static int put_small(Ctl *ctl, Put *put, const void *data, size_t n_bytes)
{
        int r = folio_put(ctl->client, put->name, data, n_bytes, &put->options);

        return r < 0 ? ctl_fail(ctl, r, "put", put->name) : CTL_OK;
}

/* Of a pipe: @head holds all that has been read so far. */
static int put_stream(Ctl *ctl, Put *put, const void *head, size_t n_head_bytes)
{
        _ctl_cleanup_(ctl_cleanup_object) struct folio_object *object = NULL;
        bool is_mutable = put->options.flags & FOLIO_MUTABLE;
        int r;

        if (!is_mutable)
                put->options.flags |= FOLIO_STREAM;
        r = folio_create(ctl->client, put->name, 0, &put->options, &object);
        if (r < 0)
                return ctl_fail(ctl, r, "put", put->name);
        r = transfer_fill_stream(ctl, &put->source, object, put->name, head, n_head_bytes, is_mutable);
        if (is_mutable && r != CTL_OK)
                /* It was there for everybody from the beginning, but it is not what was asked for. */
                (void)folio_delete(ctl->client, put->name, FOLIO_IF_EXISTS);
        if (is_mutable || r != CTL_OK)
                return r;
        r = folio_object_seal(object);
        return r < 0 ? ctl_fail(ctl, r, "put", put->name) : CTL_OK;
}

static int put_known(Ctl *ctl, Put *put)
{
        _ctl_cleanup_(ctl_cleanup_object) struct folio_object *object = NULL;
        bool is_mutable = put->options.flags & FOLIO_MUTABLE;
        int r = folio_create(ctl->client, put->name, put->source.size_bytes, &put->options, &object);

        if (r < 0)
                return ctl_fail(ctl, r, "put", put->name);
        r = put->options.flags & FOLIO_SPARSE ? transfer_fill_sparse(ctl, &put->source, object, put->name)
                                              : transfer_fill_known(ctl, &put->source, object, put->name);
        if (is_mutable && r != CTL_OK)
                (void)folio_delete(ctl->client, put->name, FOLIO_IF_EXISTS);
        if (is_mutable || r != CTL_OK)
                return r;
        r = folio_object_seal(object);
        return r < 0 ? ctl_fail(ctl, r, "put", put->name) : CTL_OK;
}

static int put_source(Ctl *ctl, Put *put)
{
        const size_t room_bytes = TRANSFER_SMALL_BYTES + 1;
        bool is_plain = !(put->options.flags & (FOLIO_MUTABLE | FOLIO_SPARSE));
        _ctl_cleanup_(ctl_cleanup_free) char *head = NULL;
        size_t n;
        int r;

        if (put->source.is_size_known && (!is_plain || put->source.size_bytes > TRANSFER_SMALL_BYTES))
                return put_known(ctl, put);
        if (put->options.flags & FOLIO_SPARSE && put->source.size_bytes == 0)
                return ctl_usage_error(ctl, "--sparse needs a file; a pipe has no holes");
        head = malloc(room_bytes);
        if (!head)
                return ctl_out_of_memory(ctl);
        r = source_read(&put->source, head, room_bytes, &n);
        if (r < 0)
                return ctl_complain(ctl, "cannot read %s: %s", put->source.label, strerror(-r));
        if (put->source.is_size_known && n != put->source.size_bytes)
                return transfer_complain_changed(ctl, &put->source, put->name, n > put->source.size_bytes, n);
        if (is_plain && n <= TRANSFER_SMALL_BYTES)
                return put_small(ctl, put, head, n);
        if (!is_plain && !put->options.capacity_bytes)
                return ctl_usage_error(ctl, "--mutable from a pipe needs --capacity, since its size is not known");
        return put_stream(ctl, put, head, n);
}

static int put_or_replace(Ctl *ctl, uint32_t flags)
{
        _ctl_cleanup_(put_deinit) Put put = { .source = { .fd = -1 } };
        const char *argument;
        int id, r;

        put.options.struct_bytes = sizeof(put.options);
        put.options.flags = flags;
        while ((id = ctl_next_option(ctl, &argument)) > 0) {
                r = take_option(ctl, &put, id, argument);
                if (r != CTL_OK)
                        return r;
        }
        if (id < 0 || !ctl_check_arguments(ctl, 2, 2))
                return ctl->status;
        r = check_options(ctl, &put);
        if (r != CTL_OK)
                return r;
        put.name = ctl->arguments[1];
        r = source_open(ctl, ctl->arguments[0], &put.source);
        if (r != CTL_OK)
                return r;
        r = ctl_open(ctl);
        return r == CTL_OK ? put_source(ctl, &put) : r;
}

static int put_run(Ctl *ctl)
{
        return put_or_replace(ctl, 0);
}

static int replace_run(Ctl *ctl)
{
        return put_or_replace(ctl, FOLIO_REPLACE);
}

const CtlVerb verb_put = {
        .name = "put",
        .usage = "FILE|- NAME",
        .summary = "make an object of a file or a stream",
        .options = put_options,
        .run = put_run,
};

const CtlVerb verb_replace = {
        .name = "replace",
        .usage = "FILE|- NAME",
        .summary = "put where the name may be taken; readers keep the old object",
        .options = replace_options,
        .run = replace_run,
};
