/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A file that must not stay when the program is interrupted. The signals that end a program from outside remove it and
 * then do what they do to any program; nothing else is caught, so blocking calls need no thought of signals.
 */
#ifndef CTL_INTERRUPT_H
#define CTL_INTERRUPT_H

/* @path is borrowed until interrupt_release(). One file at a time. */
void interrupt_guard(const char *path);
void interrupt_release(void);

#endif
