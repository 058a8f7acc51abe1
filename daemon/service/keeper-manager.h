/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The service manager's side of keeping, spoken over its notification socket: store this descriptor under that name,
 * remove what has that name, say when you have done all of it. It answers nothing but the last. Never waits without
 * end: a manager that does not read is one that does not keep. Any thread may call; those who wait for a confirmation
 * at the same time share one.
 */
#ifndef DAEMON_SERVICE_KEEPER_MANAGER_H
#define DAEMON_SERVICE_KEEPER_MANAGER_H

typedef struct KeeperManager KeeperManager;

/* @address: as in NOTIFY_SOCKET. 0 or a negative errno. */
int keeper_manager_new(const char *address, KeeperManager **ret);
void keeper_manager_free(KeeperManager *manager);

/* 0: it has the descriptor, unless it has too many; else a negative errno, and it was told to remove it again. */
int keeper_manager_store(KeeperManager *manager, const char *name, int fd);

/* The same without waiting: keeper_manager_confirm() does. */
int keeper_manager_offer(KeeperManager *manager, const char *name, int fd);

/* 0: it will, before it does anything that is sent afterwards. */
int keeper_manager_remove(KeeperManager *manager, const char *name);

/* 0: everything that was sent before has been done. */
int keeper_manager_confirm(KeeperManager *manager);

#endif
