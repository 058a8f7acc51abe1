/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A namespace is a trust domain: who owns it, who may do what in it, how much may be in it, and how its memory is to
 * be. Here are the settings, their validity and the question "may this uid". What is in it is not known here.
 */
#ifndef DAEMON_STORE_NAMESPACE_H
#define DAEMON_STORE_NAMESPACE_H

#include <stdbool.h>
#include <stdint.h>

#include "daemon/store/account.h"
#include "daemon/store/cred.h"
#include "folio/types.h"
#include "proto/codec.h"
#include "proto/status.h"

#define NAMESPACE_OBJECTS_MAX (UINT64_C(1) << 26) /* of one index */

typedef struct Namespace {
        char name[FOLIO_NAMESPACE_BYTES_MAX + 1];
        uint32_t id;
        uid_t owner_uid;
        gid_t owner_gid;
        uint32_t mode;               /* FOLIO_RIGHT_* thrice */
        uint64_t quota_bytes;        /* as set; 0: none */
        uint64_t quota_objects;      /* as set; 0: objects_max */
        uint32_t objects_max;
        enum folio_backing backing;  /* of regions of their own */
        enum folio_huge huge;
        enum folio_writers writers;
        Account quota;               /* what objects are charged to */
} Namespace;

/* What a namespace is where its settings do not say. */
typedef struct NamespaceDefaults {
        uid_t owner_uid;
        gid_t owner_gid;
        uint32_t mode;
        uint64_t objects_max;
        enum folio_huge huge;
        enum folio_writers writers;
} NamespaceDefaults;

/* Are the fields that @settings gives valid? STATUS_OK, or another with *@ret_detail set to a sentence, to be freed. */
Status namespace_check_settings(const ProtoNamespace *settings, char **ret_detail);

/* @settings are checked. */
void namespace_init(Namespace *ns, uint32_t id, const ProtoNamespace *settings, const NamespaceDefaults *defaults);
void namespace_deinit(Namespace *ns); /* asserts that nothing is charged */

/* Does @settings give another value to what is fixed when a namespace is made? */
bool namespace_is_fixed_change(const Namespace *ns, const ProtoNamespace *settings);

/* Takes over what @settings gives; checked before, and no fixed change. */
void namespace_apply(Namespace *ns, const ProtoNamespace *settings);

/* FOLIO_RIGHT_* of who is @cred. Root and @daemon_uid may everything. */
uint32_t namespace_rights(const Namespace *ns, const Cred *cred, uid_t daemon_uid);

/* The settings as they are in force; the facts in @ret are left 0. */
void namespace_describe(const Namespace *ns, ProtoNamespace *ret);

#endif
