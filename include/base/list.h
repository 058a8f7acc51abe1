/* SPDX-License-Identifier: Apache-2.0 */
/* An intrusive, circular, doubly linked list. A node that is in no list points at itself, so unlinking twice is legal. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>

#include "base/macro.h"

typedef struct List List;

struct List {
        List *next;
        List *previous;
};

#define LIST_INIT(node) { &(node), &(node) }

static inline void list_init(List *node)
{
        node->next = node->previous = node;
}

static inline bool list_is_empty(const List *head)
{
        return head->next == head;
}

static inline bool list_is_linked(const List *node)
{
        return node->next && node->next != node;
}

static inline void list_insert_between(List *node, List *previous, List *next)
{
        node->previous = previous;
        node->next = next;
        previous->next = node;
        next->previous = node;
}

static inline void list_push_front(List *head, List *node)
{
        list_insert_between(node, head, head->next);
}

static inline void list_push_back(List *head, List *node)
{
        list_insert_between(node, head->previous, head);
}

static inline void list_unlink(List *node)
{
        if (!node->next)
                return;
        node->previous->next = node->next;
        node->next->previous = node->previous;
        list_init(node);
}

static inline List *list_peek_front(List *head)
{
        return list_is_empty(head) ? NULL : head->next;
}

static inline List *list_take_front(List *head)
{
        List *node = list_peek_front(head);

        if (node)
                list_unlink(node);
        return node;
}

/* Moves everything in @from to the end of @to, in order. */
static inline void list_splice_back(List *to, List *from)
{
        if (list_is_empty(from))
                return;
        from->next->previous = to->previous;
        to->previous->next = from->next;
        from->previous->next = to;
        to->previous = from->previous;
        list_init(from);
}

#define LIST_ENTRY(node, type, member) CONTAINER_OF(node, type, member)

#define LIST_FOREACH(node, head) for (List *node = (head)->next; node != (head); node = node->next)

/* Safe against unlinking @node itself, not against unlinking its successor. */
#define LIST_FOREACH_SAFE(node, head)                                                                                  \
        for (List *node = (head)->next, *node##_next = node->next; node != (head);                                     \
             node = node##_next, node##_next = node->next)

#endif
