/* What the machine's kernel knows of the shared files: a table of nodes, bounded, found by number or by file. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NODES_MOST (1u << 20) /* 120 MB of the room's memory at the most */
#define CHUNK 1024
#define CHAINS (1u << 16)

static struct node *chunks[NODES_MOST / CHUNK];
static size_t made;
static struct node *unused;
static struct node *chains[CHAINS], *name_chains[CHAINS];
static struct node *root;

static struct node **chain(dev_t device, ino_t inode)
{
	uint64_t hash = (inode ^ (device << 20)) * 0x9e3779b97f4a7c15ull;
	return &chains[hash >> 48 & (CHAINS - 1)];
}

static struct node **name_chain(const struct node *parent, const char *name)
{
	uint64_t hash = parent->number;
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * 0x100000001b3ull;
	return &name_chains[(hash * 0x9e3779b97f4a7c15ull) >> 48 & (CHAINS - 1)];
}

struct node *node_named(struct node *parent, const char *name)
{
	struct node *node = *name_chain(parent, name);
	while (node && (node->parent != parent || !node->name || strcmp(node->name, name)))
		node = node->next_name;
	return node;
}

/* It is not found by its name any more. */
static void unname(struct node *node)
{
	if (!node->parent || !node->name)
		return;
	struct node **at = name_chain(node->parent, node->name);
	for (; *at && *at != node; at = &(*at)->next_name)
		;
	if (*at)
		*at = node->next_name;
}

static struct node *new_node(void)
{
	if (!unused) {
		if (made == NODES_MOST) {
			errno = ENFILE;
			return NULL;
		}
		struct node *chunk = calloc(CHUNK, sizeof *chunk);
		if (!chunk)
			return NULL;
		chunks[made / CHUNK] = chunk;
		for (size_t i = CHUNK; i--; unused = &chunk[i])
			chunk[i] = (struct node){.next = unused, .number = made + i + 2, .open = -1, .directory = -1};
		made += CHUNK;
	}
	struct node *node = unused;
	unused = node->next;
	*node = (struct node){.number = node->number, .open = -1, .directory = -1};
	return node;
}

struct node *node_root(void)
{
	return root;
}

/* Numbers come from the machine, whose kernel may lie: one that names no node in use is none. */
struct node *node_of(uint64_t id)
{
	if (id == FUSE_ROOT_ID)
		return root;
	if (id < 2 || id - 2 >= made)
		return NULL;
	struct node *node = &chunks[(id - 2) / CHUNK][(id - 2) % CHUNK];
	return node->lookups ? node : NULL;
}

uint64_t node_id(const struct node *node)
{
	return node == root ? FUSE_ROOT_ID : node->number;
}

bool nodes_begin(void)
{
	struct stat st;
	root = new_node();
	if (!root || look_at(AT_FDCWD, "/", &st))
		return false;
	root->lookups = 1;
	root->device = st.st_dev, root->inode = st.st_ino;
	root->directory = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	return root->directory >= 0;
}

static void release(struct node *node)
{
	while (node && node != root && !node->lookups && !node->children && !node->handles) {
		struct node *parent = node->parent, **at = chain(node->device, node->inode);
		for (; *at && *at != node; at = &(*at)->next)
			;
		if (*at)
			*at = node->next;
		directory_close(node);
		watch_end(node);
		unname(node);
		if (node->open >= 0)
			close(node->open);
		free(node->name);
		*node = (struct node){.next = unused, .number = node->number, .open = -1, .directory = -1};
		unused = node;
		if (parent)
			parent->children--;
		node = parent;
	}
}

/* Where a node is found from now on. A file with several names is found by the one that was used last. */
static bool put(struct node *node, struct node *parent, const char *name)
{
	if (node->parent == parent && node->name && !strcmp(node->name, name))
		return true;
	char *copy = strdup(name);
	if (!copy)
		return false;
	struct node *before = node->parent, **chained = name_chain(parent, name);
	unname(node);
	free(node->name);
	node->name = copy;
	node->parent = parent;
	node->next_name = *chained;
	*chained = node;
	parent->children++;
	if (before && --before->children == 0)
		release(before);
	return true;
}

static bool within(const struct node *node, const struct node *above)
{
	for (; node; node = node->parent)
		if (node == above)
			return true;
	return false;
}

struct node *node_enter(struct node *parent, const char *name, const struct stat *st)
{
	struct node **at = chain(st->st_dev, st->st_ino), *node;
	for (node = *at; node && !(node->device == st->st_dev && node->inode == st->st_ino); node = node->next)
		;
	/* A directory that is mounted a second time below itself would be its own parent. */
	if (node && within(parent, node)) {
		errno = ELOOP;
		return NULL;
	}
	if (node == NULL) {
		node = new_node();
		if (!node)
			return NULL;
		node->device = st->st_dev, node->inode = st->st_ino;
		node->fixed = parent->fixed;
		node->next = *at;
		*at = node;
	}
	node->lookups++;
	if (!put(node, parent, name)) {
		node_forget(node, 1);
		return NULL;
	}
	return node;
}

/* A node as an earlier server knew it. Numbers that are not used between those that are stay unused. */
struct node *node_restore(uint64_t id, struct node *parent, const char *name, uint64_t lookups, const struct stat *st)
{
	while (id >= 2 && id - 2 >= made && made < NODES_MOST) {
		struct node *keep = unused;
		unused = NULL;
		struct node *one = new_node();
		if (!one)
			return NULL;
		one->next = unused, unused = one;
		while (unused->next)
			unused = unused->next;
		unused->next = keep;
		unused = one;
	}
	if (id < 2 || id - 2 >= made)
		return NULL;
	struct node *node = &chunks[(id - 2) / CHUNK][(id - 2) % CHUNK], **at = &unused;
	if (node->lookups || node == root)
		return NULL;
	for (; *at && *at != node; at = &(*at)->next)
		;
	if (!*at)
		return NULL;
	*at = node->next;
	struct node **chained = chain(st->st_dev, st->st_ino);
	*node = (struct node){.number = id, .open = -1, .directory = -1, .lookups = lookups, .device = st->st_dev,
			      .inode = st->st_ino, .next = *chained, .fixed = true};
	*chained = node;
	return put(node, parent, name) ? node : NULL;
}

void node_each(void (*visit)(struct node *))
{
	for (size_t i = 0; i < made; i++)
		if (chunks[i / CHUNK][i % CHUNK].lookups)
			visit(&chunks[i / CHUNK][i % CHUNK]);
}

void node_forget(struct node *node, uint64_t lookups)
{
	if (node == root)
		return;
	node->lookups -= lookups < node->lookups ? lookups : node->lookups;
	release(node);
}

static struct node *child(struct node *parent, const char *name)
{
	struct stat st;
	int fd = node_directory(parent);
	if (fd < 0 || look_at(fd, name, &st))
		return NULL;
	for (struct node *node = *chain(st.st_dev, st.st_ino); node; node = node->next)
		if (node->device == st.st_dev && node->inode == st.st_ino)
			return node;
	return NULL;
}

void node_moved(struct node *parent, const char *name, struct node *new_parent, const char *new_name)
{
	struct node *moved = child(new_parent, new_name); /* it is there now */
	if (moved && moved->parent == parent && moved->name && !strcmp(moved->name, name) && !within(new_parent, moved))
		put(moved, new_parent, new_name);
}

void node_removed(struct node *parent, const char *name)
{
	struct node *node = node_named(parent, name);
	if (!node)
		return;
	unname(node);
	free(node->name);
	node->name = NULL;
	node->parent = NULL;
	if (--parent->children == 0)
		release(parent);
}

void node_told(struct node *node, const struct stat *st)
{
	node->changed = st->st_ctim;
	node->size = st->st_size;
	node->file = !S_ISDIR(st->st_mode);
	node->linked = S_ISREG(st->st_mode) && st->st_nlink > 1;
}

void node_changing(struct node *directory)
{
	directory->own += is_watched(directory);
}

void node_opened(struct node *node, int fd)
{
	node->handles++;
	if (node->open < 0)
		node->open = fd;
}

void node_closed(struct node *node, int fd)
{
	if (node->open == fd)
		node->open = -1;
	if (node->handles)
		node->handles--;
	release(node);
}

/* ---- for a clone */

static bool in_use(const struct node *node)
{
	return node == root || node->lookups || node->children || node->handles;
}

struct node *node_next(struct node *node)
{
	for (size_t i = node ? (size_t)(node->number - 1) : 0; i < made; i++)
		if (in_use(&chunks[i / CHUNK][i % CHUNK]))
			return &chunks[i / CHUNK][i % CHUNK];
	return NULL;
}

struct node *node_any(uint64_t id)
{
	if (id == FUSE_ROOT_ID)
		return root;
	return id < 2 || id - 2 >= made ? NULL : &chunks[(id - 2) / CHUNK][(id - 2) % CHUNK];
}

struct node *node_again(uint64_t id)
{
	if (id - 2 >= NODES_MOST && id != FUSE_ROOT_ID)
		return NULL;
	while (id != FUSE_ROOT_ID && id - 2 >= made) {
		unused = NULL; /* they are put together again at the end */
		if (!new_node())
			return NULL;
	}
	return node_any(id);
}

/* NULL: it is not there any more. */
void node_found(struct node *node, const struct stat *st)
{
	node->device = st ? st->st_dev : (dev_t)-1, node->inode = st ? st->st_ino : (ino_t)node->number;
	struct node **at = chain(node->device, node->inode), **named = name_chain(node->parent, node->name);
	node->next = *at;
	*at = node;
	node->next_name = *named;
	*named = node;
	if (st)
		node_told(node, st);
}

void nodes_again(void)
{
	unused = NULL;
	for (size_t i = made; i--;) {
		struct node *node = &chunks[i / CHUNK][i % CHUNK];
		if (!in_use(node)) {
			free(node->name);
			*node = (struct node){.next = unused, .number = node->number, .open = -1, .directory = -1};
			unused = node;
		}
	}
}
