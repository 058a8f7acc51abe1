/* SPDX-License-Identifier: Apache-2.0 */
/* Settings and rights of a namespace. A pure function of its arguments but for the quota account it carries. */
#include "daemon/store/namespace.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/macro.h"
#include "folio/admin.h"
#include "proto/key.h"

static Status refuse(char **ret_detail, Status status, const char *format, ...) _printf_(3, 4);

static Status refuse(char **ret_detail, Status status, const char *format, ...)
{
        va_list arguments;

        va_start(arguments, format);
        if (vasprintf(ret_detail, format, arguments) < 0)
                *ret_detail = NULL;
        va_end(arguments);
        return status;
}

static bool is_given(const ProtoNamespace *settings, uint32_t field)
{
        return settings->fields & field;
}

Status namespace_check_settings(const ProtoNamespace *settings, char **ret_detail)
{
        size_t n_name = strnlen(settings->name, sizeof(settings->name));

        if (!key_is_valid_namespace(settings->name, n_name))
                return refuse(ret_detail, STATUS_INVALID,
                              "a namespace's name is 1 to %d of a-z 0-9 . _ -", FOLIO_NAMESPACE_BYTES_MAX);
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_MODE) && settings->mode > 0777)
                return refuse(ret_detail, STATUS_INVALID, "mode %04o of namespace %s has more than nine bits",
                              settings->mode, settings->name);
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_OBJECTS_MAX) &&
            (settings->objects_max == 0 || settings->objects_max > NAMESPACE_OBJECTS_MAX))
                return refuse(ret_detail, STATUS_INVALID,
                              "objects-max %llu of namespace %s is not between 1 and %llu",
                              (unsigned long long)settings->objects_max, settings->name,
                              (unsigned long long)NAMESPACE_OBJECTS_MAX);
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_HUGE) && settings->huge > FOLIO_HUGE_NEVER)
                return refuse(ret_detail, STATUS_INVALID, "the policy for huge pages (%u) of namespace %s is none of auto, always, never",
                              settings->huge, settings->name);
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_WRITERS) && settings->writers != FOLIO_WRITERS_UNTRUSTED &&
            settings->writers != FOLIO_WRITERS_TRUSTED)
                return refuse(ret_detail, STATUS_INVALID, "the writers (%u) of namespace %s are neither trusted nor untrusted",
                              settings->writers, settings->name);
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_BACKING)) {
                if (settings->backing == FOLIO_BACKING_HUGETLB)
                        return refuse(ret_detail, STATUS_UNSUPPORTED,
                                      "namespace %s asks for backing hugetlb, which this foliod does not have; use "
                                      "memfd or tmpfs",
                                      settings->name);
                if (settings->backing != FOLIO_BACKING_MEMFD && settings->backing != FOLIO_BACKING_TMPFS)
                        return refuse(ret_detail, STATUS_INVALID, "the backing (%u) of namespace %s is none of memfd, tmpfs",
                                      settings->backing, settings->name);
        }
        return STATUS_OK;
}

/* The limits of the quota account follow from the settings. */
static void set_limits(Namespace *ns)
{
        ns->quota.bytes_max = ns->quota_bytes ? ns->quota_bytes : UINT64_MAX;
        ns->quota.count_max = ns->quota_objects ? ns->quota_objects : ns->objects_max;
}

void namespace_init(Namespace *ns, uint32_t id, const ProtoNamespace *settings, const NamespaceDefaults *defaults)
{
        uint64_t objects_max = CLAMP(defaults->objects_max, 1, NAMESPACE_OBJECTS_MAX);

        *ns = (Namespace){
                .id = id,
                .owner_uid = defaults->owner_uid,
                .owner_gid = defaults->owner_gid,
                .mode = defaults->mode,
                .objects_max = (uint32_t)objects_max,
                .backing = FOLIO_BACKING_MEMFD,
                .huge = defaults->huge,
                .writers = defaults->writers,
        };
        memcpy(ns->name, settings->name, strnlen(settings->name, FOLIO_NAMESPACE_BYTES_MAX));
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_OBJECTS_MAX))
                ns->objects_max = (uint32_t)settings->objects_max;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_BACKING))
                ns->backing = settings->backing;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_WRITERS))
                ns->writers = settings->writers;
        account_init(&ns->quota, NULL, UINT64_MAX, UINT64_MAX);
        namespace_apply(ns, settings);
}

void namespace_deinit(Namespace *ns)
{
        account_deinit(&ns->quota);
}

bool namespace_is_fixed_change(const Namespace *ns, const ProtoNamespace *settings)
{
        return (is_given(settings, FOLIO_NAMESPACE_FIELD_OBJECTS_MAX) && settings->objects_max != ns->objects_max) ||
               (is_given(settings, FOLIO_NAMESPACE_FIELD_BACKING) && settings->backing != ns->backing) ||
               (is_given(settings, FOLIO_NAMESPACE_FIELD_WRITERS) && settings->writers != ns->writers);
}

void namespace_apply(Namespace *ns, const ProtoNamespace *settings)
{
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_OWNER))
                ns->owner_uid = settings->owner_uid;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_GROUP))
                ns->owner_gid = settings->owner_gid;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_MODE))
                ns->mode = settings->mode;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_QUOTA_BYTES))
                ns->quota_bytes = settings->quota_bytes;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS))
                ns->quota_objects = settings->quota_objects;
        if (is_given(settings, FOLIO_NAMESPACE_FIELD_HUGE))
                ns->huge = settings->huge;
        set_limits(ns);
}

static bool is_in_group(const Cred *cred, gid_t gid)
{
        if (cred->gid == gid)
                return true;
        for (size_t i = 0; i < cred->n_groups; i++)
                if (cred->groups[i] == gid)
                        return true;
        return false;
}

/* As for a file: the first class that fits decides, also where a later one would give more. */
uint32_t namespace_rights(const Namespace *ns, const Cred *cred, uid_t daemon_uid)
{
        if (cred->uid == 0 || cred->uid == daemon_uid)
                return FOLIO_RIGHT_READ | FOLIO_RIGHT_WRITE | FOLIO_RIGHT_ADMIN;
        if (cred->uid == ns->owner_uid)
                return ns->mode >> 6 & 7;
        if (is_in_group(cred, ns->owner_gid))
                return ns->mode >> 3 & 7;
        return ns->mode & 7;
}

void namespace_describe(const Namespace *ns, ProtoNamespace *ret)
{
        *ret = (ProtoNamespace){
                .id = ns->id,
                .fields = FOLIO_NAMESPACE_FIELD_OWNER | FOLIO_NAMESPACE_FIELD_GROUP | FOLIO_NAMESPACE_FIELD_MODE |
                          FOLIO_NAMESPACE_FIELD_QUOTA_BYTES | FOLIO_NAMESPACE_FIELD_QUOTA_OBJECTS |
                          FOLIO_NAMESPACE_FIELD_OBJECTS_MAX | FOLIO_NAMESPACE_FIELD_BACKING |
                          FOLIO_NAMESPACE_FIELD_HUGE | FOLIO_NAMESPACE_FIELD_WRITERS,
                .owner_uid = ns->owner_uid,
                .owner_gid = ns->owner_gid,
                .mode = ns->mode,
                .backing = ns->backing,
                .huge = ns->huge,
                .writers = ns->writers,
                .quota_bytes = ns->quota_bytes,
                .quota_objects = ns->quota_objects,
                .objects_max = ns->objects_max,
        };
        memcpy(ret->name, ns->name, sizeof(ret->name));
}
