/* Sharing files with a virtual machine: the room's files, by the kernel's own FUSE protocol, over a stream. */
#ifndef SHARE_H
#define SHARE_H

#include <linux/fuse.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdnoreturn.h>
#include <sys/stat.h>

/* A file or directory that the machine's kernel knows. It is found again by its directory and its name; a descriptor for
 * each would need more descriptors than a process may have. */
struct node {
	struct node *next;     /* in its hash chain, or of the free ones */
	uint64_t number;       /* what the kernel calls it */
	struct node *parent;   /* NULL: the root, or one whose name is gone */
	char *name;
	uint64_t lookups;      /* what the kernel has not forgotten yet */
	uint32_t children;     /* nodes that have us as parent: we outlive them */
	uint32_t handles;      /* open files */
	int open;              /* one of them, or -1: all that leads to a file without a name */
	int directory;         /* a descriptor of this directory, or -1 */
	uint64_t used;         /* when it was last needed */
	dev_t device;
	ino_t inode;
	bool closed;           /* nobody looks into this directory */
	bool fixed;            /* nothing on the host changes it: the machine's kernel may remember it for long */
};

/* share_nodes.c */
bool nodes_begin(void);
struct node *node_root(void);
struct node *node_of(uint64_t id);
uint64_t node_id(const struct node *node);
/* The node of what `name` in `parent` is, with one more look-up. NULL with errno. */
struct node *node_enter(struct node *parent, const char *name, const struct stat *st);
void node_forget(struct node *node, uint64_t lookups);
void node_moved(struct node *parent, const char *name, struct node *new_parent, const char *new_name);
/* A directory's descriptor, good until the next call but two. -1 with errno. */
int node_directory(struct node *node);
/* The directory and name by which `node` is reached; -1 with errno. */
int node_place(struct node *node, const char **name);
void node_opened(struct node *node, int fd);
void node_closed(struct node *node, int fd);

noreturn void share(int stream, char **fixed); /* share.c */

#endif
