/* The kernel's mount calls, as far as the place needs them. */
#ifndef MOUNT_H
#define MOUNT_H

#include <linux/mount.h>
#include <stdbool.h>
#include <stdint.h>

#define RECURSIVE 0x8000 /* AT_RECURSIVE */

int open_place(const char *path); /* O_PATH, no link on the way */
int open_tree(int dir, const char *path, unsigned flags);
int set_attributes(int mount, unsigned flags, uint64_t set, uint64_t clear);
bool attach(int mount, int target);
int detach(const char *path);

int option(int fs, const char *key, const char *value);
int number_option(int fs, const char *key, const char *format, uint64_t value);
int new_mount(int fs, unsigned attributes);
int new_tmpfs(uint64_t size, uint64_t mode, unsigned attributes);

#endif
