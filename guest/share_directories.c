/* Descriptors of the shared directories: a bounded number is kept open, and the others are opened again by their names. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define DEPTH_MOST 2048       /* directories above one another, of those not open */
#define DIRECTORIES_MOST 4096 /* descriptors of directories kept open */

static unsigned directories;
static uint64_t clock_;

void directory_close(struct node *node)
{
	if (node->directory < 0 || node == node_root())
		return;
	close(node->directory);
	node->directory = -1;
	directories--;
}

static void make_room(void)
{
	/* All but the half used last. Rare, and cheaper than a list kept in order at each use. */
	uint64_t before = clock_ - DIRECTORIES_MOST / 2;
	for (struct node *node = node_next(NULL); node; node = node_next(node))
		if (node->used < before)
			directory_close(node);
}

static int open_beneath(int parent, struct node *node)
{
	struct stat st;
	if (node->closed) {
		errno = EACCES;
		return -1;
	}
	int fd = openat(parent, node->name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return -1;
	if (look_into(fd, &st) || st.st_dev != node->device || st.st_ino != node->inode) {
		close(fd);
		errno = ESTALE; /* another one by that name: the kernel looks again */
		return -1;
	}
	directories++;
	return node->directory = fd;
}

/* From the nearest directory above that is open downwards. */
int node_directory(struct node *node)
{
	struct node *way[DEPTH_MOST];
	size_t depth = 0;
	if (directories >= DIRECTORIES_MOST)
		make_room();
	for (struct node *one = node; one && one->directory < 0; one = one->parent) {
		if (depth == DEPTH_MOST || !one->name) {
			errno = ESTALE;
			return -1;
		}
		way[depth++] = one;
	}
	while (depth--) {
		struct node *one = way[depth];
		if (!one->parent || open_beneath(one->parent->directory, one) < 0)
			return -1;
		one->used = ++clock_;
	}
	node->used = ++clock_;
	return node->directory;
}

int node_place(struct node *node, const char **name)
{
	if (node == node_root() || !node->parent) {
		errno = ESTALE;
		return -1;
	}
	*name = node->name;
	return node_directory(node->parent);
}
