/* Changes that the host makes: each directory that the machine's kernel remembers is watched, and what changes there without our
 * doing it is made known. What cannot be watched is remembered for a tenth of a second only. */
#define _GNU_SOURCE
#include "share.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/statfs.h>
#include <unistd.h>

#define WATCHES_MOST 65536
#define EVENTS (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO | IN_MODIFY | IN_ATTRIB | IN_CLOSE_WRITE | IN_ONLYDIR)

static int queue = -1;
static struct node **watched; /* by watch; numbers only grow */
static size_t room;
static size_t count;

int watch_begin(void)
{
	return queue = inotify_init1(IN_CLOEXEC | IN_NONBLOCK);
}

/* In a process that was made after the other had begun. */
void watch_none(void)
{
	if (queue >= 0)
		close(queue);
	queue = -1;
}

/* File systems whose every change passes through the files that are watched. Others change from elsewhere (a network, a
 * program, a layer below). */
static bool tells_all(int directory)
{
	static const unsigned long kinds[] = {0xef53 /* ext */, 0x58465342 /* xfs */, 0x9123683e /* btrfs */, 0x01021994 /* tmpfs */,
					      0xf2f52010 /* f2fs */, 0x2fc12fc1 /* zfs */, 0xca451a4e /* bcachefs */,
					      0x73717368 /* squashfs */, 0xe0f5e1e2 /* erofs */};
	struct statfs fs;
	if (fstatfs(directory, &fs))
		return false;
	for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
		if ((unsigned long)fs.f_type == kinds[i])
			return true;
	return false;
}

static bool remember(int watch, struct node *node)
{
	if ((size_t)watch >= room) {
		size_t more = (size_t)watch * 2 + 1024;
		struct node **grown = realloc(watched, more * sizeof *grown);
		if (!grown)
			return false;
		memset(grown + room, 0, (more - room) * sizeof *grown);
		watched = grown, room = more;
	}
	count += !watched[watch];
	watched[watch] = node;
	return true;
}

void watch_directory(struct node *node, int directory)
{
	if (node->watch || node->fixed || node->closed)
		return;
	node->watch = -1;
	/* By way of the working directory: there is no call that takes a descriptor, and nothing else uses it. */
	if (queue < 0 || count >= WATCHES_MOST || !tells_all(directory) || fchdir(directory))
		return;
	int watch = inotify_add_watch(queue, ".", EVENTS);
	if (watch > 0 && remember(watch, node))
		node->watch = watch;
}

void watch_end(struct node *node)
{
	if (node->watch > 0) {
		inotify_rm_watch(queue, node->watch);
		watched[node->watch] = NULL;
		count--;
	}
	node->watch = 0;
}

bool is_watched(const struct node *node)
{
	return node->watch > 0;
}

static void entry_changed(struct node *directory, const char *name)
{
	struct node *known = node_named(directory, name);
	struct stat st;
	int fd = node_directory(directory);
	bool there = fd >= 0 && !look_at(fd, name, &st);
	if (known && there && known->device == st.st_dev && known->inode == st.st_ino)
		return;
	if (!known && (!there || !directory->missing))
		return;
	notify_entry(directory, name);
}

static void file_changed(struct node *directory, const char *name)
{
	struct node *known = node_named(directory, name);
	struct stat st;
	int fd = node_directory(directory);
	if (!known || fd < 0 || look_at(fd, name, &st) || st.st_ino != known->inode)
		return;
	known->linked = S_ISREG(st.st_mode) && st.st_nlink > 1;
	if (known->size == st.st_size && !memcmp(&known->changed, &st.st_ctim, sizeof st.st_ctim))
		return; /* we did that ourselves */
	node_told(known, &st);
	notify_inode(known, S_ISREG(st.st_mode));
}

/* Events were lost. A name is taken back only when it leads elsewhere now: with the name of a directory, the machine's kernel
 * takes away what is mounted on it and below it. */
static void anything_changed(struct node *node)
{
	if (node->fixed)
		return;
	if (node->parent && node->name)
		entry_changed(node->parent, node->name);
	notify_inode(node, true);
}

static void on_event(const struct inotify_event *event, struct node **listing)
{
	if (event->mask & IN_Q_OVERFLOW) {
		node_each(anything_changed);
		return;
	}
	struct node *directory = event->wd > 0 && (size_t)event->wd < room ? watched[event->wd] : NULL;
	if (!directory)
		return;
	if (event->mask & IN_IGNORED) { /* the directory is gone */
		watched[event->wd] = NULL, directory->watch = -1, count--;
		return;
	}
	if (!event->len) {
		if (event->mask & IN_ATTRIB)
			notify_inode(directory, false);
		return;
	}
	if (event->mask & (IN_CREATE | IN_DELETE | IN_MOVED_FROM | IN_MOVED_TO)) {
		entry_changed(directory, event->name);
		if (directory->own)
			directory->own--; /* whoever it was: there is one more to come */
		else if (*listing != directory)
			notify_inode(*listing = directory, true); /* its list of names, and its own times */
	} else {
		file_changed(directory, event->name);
	}
}

void watch_events(void)
{
	_Alignas(struct inotify_event) char events[16384];
	ssize_t size = read(queue, events, sizeof events);
	struct node *listing = NULL;
	for (ssize_t at = 0; at < size;) {
		const struct inotify_event *event = (void *)(events + at);
		on_event(event, &listing);
		at += (ssize_t)(sizeof *event + event->len);
	}
}
