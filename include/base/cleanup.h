/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Ownership in one word: a local that owns carries `_cleanup_(...)`, and gives up what it owns only through
 * steal_ptr() or steal_fd(). A cleanup function takes a pointer to the variable and accepts the empty value.
 */
#ifndef BASE_CLEANUP_H
#define BASE_CLEANUP_H

#include <stdlib.h>
#include <unistd.h>

#define _cleanup_(function) __attribute__((cleanup(function)))

/* Defines `<name>` for use with _cleanup_: calls @free_function on a non-NULL pointer. */
#define DEFINE_CLEANUP(type, name, free_function)                                                                      \
        static inline void name(type *pointer)                                                                         \
        {                                                                                                              \
                if (*pointer)                                                                                          \
                        free_function(*pointer);                                                                       \
        }

static inline void cleanup_free(void *pointer)
{
        free(*(void **)pointer);
}

static inline void cleanup_fd(int *fd)
{
        /* The kernel has released the descriptor whatever close() says; there is nobody to tell. */
        if (*fd >= 0)
                (void)close(*fd);
}

static inline int steal_fd(int *fd)
{
        int stolen = *fd;

        *fd = -1;
        return stolen;
}

/* Closes and empties; returns -1 so that `fd = close_fd(fd)` reads as it works. */
static inline int close_fd(int fd)
{
        if (fd >= 0)
                (void)close(fd);
        return -1;
}

static inline void *steal_pointer(void *pointer_to_pointer)
{
        void **place = pointer_to_pointer;
        void *stolen = *place;

        *place = NULL;
        return stolen;
}

#define steal_ptr(pointer_to_pointer) ((__typeof__(*(pointer_to_pointer)))steal_pointer(pointer_to_pointer))

#endif
