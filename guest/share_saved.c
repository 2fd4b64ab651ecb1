/* What the file server knows, saved for a checkpoint and taken up again by the server of a clone.
 *
 * The machine's kernel has our numbers in its memory: of nodes, and of open files. A clone's server has other files before it (its
 * own overlay, its own home), so each node is found again by its path, and each open file is opened again. What cannot be found is
 * gone: the machine is told ESTALE. What nothing may have changed (the system) and has changed is an error. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x32584253u /* "SBX2" */
#define SAVED_MOST (256u << 20)
#define LOST_MOST 4096 /* bytes of names that are told */

struct saved_head {
	uint32_t magic, nodes, handles, lost; /* lost: bytes of names at the end, each with a NUL */
};

struct saved_node {
	uint64_t number, parent, lookups, inode, size;
	int64_t seconds, nanoseconds;
	uint64_t leads; /* of a link: a hash of where to */
	uint16_t device, name; /* name: its length */
	uint8_t closed, fixed, there, regular, named, watched, missing, parent_watched;
	/* the name follows */
};

struct saved_handle {
	uint64_t number, node;
	uint32_t flags;
	uint8_t directory, lost, unused[2];
};

static bool send_all(int to, const void *data, size_t size)
{
	for (const char *at = data; size;) {
		ssize_t sent = write(to, at, size);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent <= 0)
			return false;
		at += sent, size -= (size_t)sent;
	}
	return true;
}

/* Whether its name still leads to this very file. */
static bool is_there(struct node *node, struct stat *st)
{
	const char *name;
	int directory = node_place(node, &name);
	return directory >= 0 && !look_at(directory, name, st) && st->st_dev == node->device &&
	       st->st_ino == node->inode;
}

/* A hash of where a link leads (FNV-1a); 0: it cannot be read. */
static uint64_t leads(struct node *node)
{
	char target[4096];
	const char *name;
	int directory = node_place(node, &name);
	ssize_t size = directory < 0 ? -1 : readlinkat(directory, name, target, sizeof target);
	uint64_t hash = size <= 0 || size == sizeof target ? 0 : 0xcbf29ce484222325u;
	for (ssize_t i = 0; hash && i < size; i++)
		hash = (hash ^ (uint8_t)target[i]) * 0x100000001b3u;
	return hash;
}

static void save_node(FILE *out, struct node *node)
{
	struct stat st;
	struct saved_node saved = {.number = node_id(node), .lookups = node->lookups, .inode = node->inode,
				   .device = (uint16_t)device_number(node->device), .closed = node->closed, .fixed = node->fixed,
				   .name = node->name ? (uint16_t)strlen(node->name) : 0, .named = node->name && node->parent};
	if (saved.named)
		saved.parent = node_id(node->parent);
	saved.watched = is_watched(node), saved.parent_watched = node->parent && is_watched(node->parent), saved.missing = node->missing;
	if (saved.named && is_there(node, &st)) {
		saved.there = true, saved.regular = S_ISREG(st.st_mode);
		saved.leads = S_ISLNK(st.st_mode) ? leads(node) : 0;
		saved.size = (uint64_t)st.st_size;
		saved.seconds = st.st_mtim.tv_sec, saved.nanoseconds = st.st_mtim.tv_nsec;
	}
	fwrite(&saved, sizeof saved, 1, out);
	fwrite(node->name ? node->name : "", saved.name, 1, out);
}

static void save_handle(FILE *out, FILE *lost, size_t number)
{
	struct stat st;
	struct handle *handle = &handles[number];
	struct saved_handle saved = {.number = number, .node = node_id(handle->node), .directory = handle->list != NULL};
	if (handle->fd >= 0)
		saved.flags = (uint32_t)fcntl(handle->fd, F_GETFL) & O_ACCMODE;
	saved.lost = handle->lost || (handle->node != node_root() && !is_there(handle->node, &st));
	if (saved.lost && ftell(lost) < LOST_MOST)
		fprintf(lost, "%s%c", handle->node->name ? handle->node->name : "?", 0);
	fwrite(&saved, sizeof saved, 1, out);
}

/* Writes it all, after its size, to `to`. */
bool share_save(int to)
{
	char *data = NULL, *names = NULL;
	size_t size = 0, named = 0;
	FILE *out = open_memstream(&data, &size), *lost = open_memstream(&names, &named);
	struct saved_head head = {.magic = MAGIC};
	if (!out || !lost)
		return false;
	fwrite(&head, sizeof head, 1, out);
	for (struct node *node = NULL; (node = node_next(node));) {
		save_node(out, node);
		head.nodes++;
	}
	for (size_t i = 0; i < nhandles; i++)
		if (handle_used(&handles[i])) {
			save_handle(out, lost, i);
			head.handles++;
		}
	fclose(lost);
	head.lost = (uint32_t)named;
	fwrite(names, named, 1, out);
	bool good = !fclose(out) && size <= SAVED_MOST;
	if (good)
		memcpy(data, &head, sizeof head);
	uint64_t length = good ? size : 0;
	good = send_all(to, &length, sizeof length) && (!length || send_all(to, data, size));
	free(data), free(names);
	return good;
}

/* ---- taking it up again */

struct reader {
	const char *at, *end;
};

static const void *take(struct reader *in, size_t size)
{
	if ((size_t)(in->end - in->at) < size)
		return NULL;
	const void *taken = in->at;
	in->at += size;
	return taken;
}

static bool read_nodes(struct reader *in, uint32_t count, struct saved_node *nodes, struct node **made)
{
	for (uint32_t i = 0; i < count; i++) {
		const char *name;
		const void *saved = take(in, sizeof *nodes);
		if (!saved)
			return false;
		memcpy(&nodes[i], saved, sizeof *nodes);
		name = take(in, nodes[i].name);
		if (!name || !(made[i] = node_again(nodes[i].number)))
			return false;
		made[i]->lookups = nodes[i].lookups;
		made[i]->closed = nodes[i].closed, made[i]->fixed = nodes[i].fixed;
		if (nodes[i].named && !(made[i]->name = strndup(name, nodes[i].name)))
			return false;
	}
	for (uint32_t i = 0; i < count; i++) {
		if (!nodes[i].named)
			continue;
		made[i]->parent = node_any(nodes[i].parent);
		if (!made[i]->parent || made[i]->parent == made[i])
			return false;
		made[i]->parent->children++;
	}
	return true;
}

/* Whose content, attributes or name the machine's kernel remembers wrongly, or may soon. */
static struct {
	struct node *node;
	bool name, content;
} *outdated;
static size_t noutdated;

static bool same(const struct saved_node *saved, const struct stat *st)
{
	return saved->there && saved->regular == S_ISREG(st->st_mode) && (uint64_t)st->st_size == saved->size &&
	       st->st_mtim.tv_sec == saved->seconds && st->st_mtim.tv_nsec == saved->nanoseconds;
}

/* The system's server has one file of /etc that is shown, the list of libraries (machine_warm.c): another one is as good, and is
 * read anew. */
static bool is_of_etc(const struct node *node)
{
	while (node->parent && node->parent != node_root())
		node = node->parent;
	return node->name && !strcmp(node->name, "etc");
}

static bool find_again(struct node *node, const struct saved_node *saved, bool parent_watched, char *said, size_t room)
{
	struct stat st;
	const char *name;
	int directory = node_place(node, &name);
	bool found = directory >= 0 && !look_at(directory, name, &st);
	bool of_etc = is_of_etc(node);
	if (node->fixed && !of_etc && saved->there && saved->regular && (!found || st.st_ino != saved->inode || !same(saved, &st))) {
		snprintf(said, room, "changed: %s", node->name);
		return false;
	}
	if (found)
		device_again(st.st_dev, saved->device);
	node_found(node, found ? &st : NULL);
	node->missing = saved->missing;
	if (saved->watched && found && (directory = node_directory(node)) >= 0)
		watch_directory(node, directory);
	/* What was watched and is not now would be remembered for long, and nobody would say when it changes. */
	if ((!node->fixed || of_etc) && (!found || !same(saved, &st) || (!node->fixed && saved->watched && !is_watched(node)) ||
			     (parent_watched && !is_watched(node->parent)))) {
		outdated[noutdated].node = node;
		/* Every room makes its links anew: one that leads to the same place keeps its name. */
		bool same_link = found && saved->leads && S_ISLNK(st.st_mode) && leads(node) == saved->leads &&
				 (!parent_watched || is_watched(node->parent));
		outdated[noutdated].content = !same_link;
		outdated[noutdated++].name = node->file && !same_link && !node->fixed;
	}
	return true;
}

/* A node is looked for once its parent has been: as many rounds as the tree is deep. */
static bool find_all(const struct saved_node *nodes, struct node **made, uint32_t count, char *said, size_t room)
{
	for (uint32_t i = 0; i < count; i++) /* before what is in it: whether that is told of depends on it */
		if (made[i] == node_root() && nodes[i].watched)
			watch_directory(node_root(), node_directory(node_root()));
	for (uint32_t left = count, before = count + 1; left && left < before;) {
		before = left;
		for (uint32_t i = 0; i < count; i++) {
			struct node *node = made[i];
			if (!node || (node->parent && node->parent != node_root() && !node->parent->inode))
				continue;
			if (node != node_root() && node->parent &&
			    !find_again(node, &nodes[i], nodes[i].parent_watched, said, room))
				return false;
			made[i] = NULL;
			left--;
		}
	}
	return true;
}

void share_tell(void)
{
	for (size_t i = 0; i < noutdated; i++) {
		/* Not the name of a directory: the kernel would take away what is mounted on it or below it. One that is another now
		 * is ESTALE, and then the kernel looks again. */
		if (outdated[i].name)
			notify_entry(outdated[i].node->parent, outdated[i].node->name);
		notify_inode(outdated[i].node, outdated[i].content);
	}
	free(outdated);
	outdated = NULL, noutdated = 0;
}

static bool read_handles(struct reader *in, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		struct saved_handle saved;
		const void *at = take(in, sizeof saved);
		if (!at)
			return false;
		memcpy(&saved, at, sizeof saved);
		struct node *node = node_any(saved.node);
		if (!node || saved.number >= 1u << 20 || !handle_again(saved.number, node, (int)saved.flags, saved.directory, saved.lost))
			return false;
	}
	return true;
}

/* Reads what was saved, after its size, and says on the same socket "" when all is well, or what is wrong. */
bool share_restore(int control)
{
	uint64_t size = 0;
	struct saved_head head;
	char said[300] = "damaged";
	char *data = NULL;
	struct saved_node *nodes = NULL;
	struct node **made = NULL;
	bool good = wire_read(control, &size, sizeof size) && size >= sizeof head && size <= SAVED_MOST && (data = malloc(size)) &&
		    wire_read(control, data, size);
	struct reader in = {data, data + size};
	if (good) {
		memcpy(&head, take(&in, sizeof head), sizeof head);
		good = head.magic == MAGIC && head.nodes <= size / sizeof *nodes && (nodes = calloc(head.nodes + 1, sizeof *nodes)) &&
		       (made = calloc(head.nodes + 1, sizeof *made)) && (outdated = calloc(head.nodes + 1, sizeof *outdated));
	}
	good = good && read_nodes(&in, head.nodes, nodes, made) && find_all(nodes, made, head.nodes, said, sizeof said) &&
	       read_handles(&in, head.handles);
	nodes_again();
	uint64_t length = good ? 0 : strlen(said);
	bool told = send_all(control, &length, sizeof length) && send_all(control, said, length);
	free(data), free(nodes), free(made);
	return good && told;
}
