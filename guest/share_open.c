/* Open files and directories of the machine. They have numbers of ours: a number that the machine makes up leads nowhere. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LISTING_MOST 65536
#define GIVEN_MOST 16384
#define KEPT_MOST 512 /* files of the system that stay open: nobody says when they are not needed any more */

struct handle *handles; /* number 0 is nobody's: it means that the kernel never asked to open */
size_t nhandles;
static unsigned kept;

bool handle_used(const struct handle *handle)
{
	return handle->fd >= 0 || handle->list || handle->lost;
}

struct handle *handle_of(uint64_t number)
{
	if (!number || number >= nhandles || !handle_used(&handles[number]) || handles[number].lost) {
		errno = number < nhandles && handles[number].lost ? ESTALE : EBADF;
		return NULL;
	}
	return &handles[number];
}

static bool more_handles(size_t most)
{
	struct handle *grown = realloc(handles, most * sizeof *grown);
	if (!grown)
		return false;
	handles = grown;
	for (; nhandles < most; nhandles++)
		handles[nhandles] = (struct handle){.fd = -1};
	return true;
}

static struct handle *new_handle(uint64_t *number)
{
	size_t i = 1;
	while (i < nhandles && handle_used(&handles[i]))
		i++;
	if (i >= nhandles && !more_handles(nhandles ? nhandles * 2 : 64))
		return NULL;
	*number = i;
	return &handles[i];
}

/* Regular files alone: the kernel inside answers for pipes, sockets and devices itself. Not blocking, so that a pipe put
 * in a file's place holds up nobody. */
int open_file(struct node *node, int flags)
{
	const char *name;
	struct stat st;
	int directory = node_place(node, &name);
	if (directory < 0)
		return -1;
	int fd = openat(directory, name, (flags & (O_ACCMODE | O_TRUNC)) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
	if (fd < 0)
		return -1;
	errno = EACCES;
	if (look_into(fd, &st) || !S_ISREG(st.st_mode) || st.st_dev != node->device || st.st_ino != node->inode) {
		close(fd);
		return -1;
	}
	if (flags & O_TRUNC)
		node_told(node, &st);
	return fd;
}

static bool answer_open(struct node *node, int fd, struct fuse_open_out *out)
{
	uint64_t number;
	struct handle *handle = new_handle(&number);
	if (!handle)
		return false;
	*handle = (struct handle){.node = node, .fd = fd};
	node_opened(node, fd);
	/* AUTO_INVAL_DATA: what the kernel keeps is dropped when size or time have changed. */
	*out = (struct fuse_open_out){.fh = number, .open_flags = FOPEN_KEEP_CACHE};
	return true;
}

/* Content of a small file, with the answer to its opening: it saves a question. Only when nobody else has it open: whoever reads or
 * writes it may have locked a page that this would have to wait for, and what is written must not be overtaken. */
static void give_content(struct node *node, int fd, int flags)
{
	static char content[GIVEN_MOST];
	struct stat st;
	if (node->handles != 1 || (flags & O_ACCMODE) != O_RDONLY || look_into(fd, &st) || !st.st_size || st.st_size > GIVEN_MOST ||
	    !memcmp(&node->given, &st.st_ctim, sizeof st.st_ctim))
		return;
	if (pread(fd, content, sizeof content, 0) == st.st_size) {
		notify_content(node, content, (size_t)st.st_size);
		node->given = st.st_ctim;
	}
}

void do_open(struct node *node, const struct fuse_open_in *in)
{
	struct fuse_open_out out;
	int fd = open_file(node, (int)in->flags);
	if (fd < 0) {
		failed();
	} else if (!answer_open(node, fd, &out)) {
		close(fd);
		answer(ENOMEM, NULL, 0);
	} else {
		give_content(node, fd, (int)in->flags);
		answer(0, &out, sizeof out);
	}
}

void create(struct node *parent, const struct fuse_create_in *in, const char *name)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	if (sets_id(in->mode)) {
		failed();
		return;
	}
	int directory = node_directory(parent);
	int flags = (int)(in->flags & (O_ACCMODE | O_TRUNC)) | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int fd = directory < 0 ? -1 : openat(directory, name, flags | O_CREAT | O_EXCL, in->mode & 0777 & ~in->umask);
	struct stat st;
	if (fd >= 0)
		node_changing(parent);
	else if (directory >= 0 && errno == EEXIST && !(in->flags & O_EXCL))
		fd = openat(directory, name, flags);
	if (fd < 0) {
		failed();
		return;
	}
	errno = EACCES;
	watch_directory(parent, directory);
	/* Not looked for by its name: the host may have taken that away already, and whoever made the file has it all the same. */
	if (look_into(fd, &st) || !S_ISREG(st.st_mode) || !enter_found(parent, directory, name, st, &out.entry) ||
	    !answer_open(node_of(out.entry.nodeid), fd, &out.open)) {
		failed();
		close(fd);
		return;
	}
	answer(0, &out, sizeof out);
}

static void close_kept(struct node *node)
{
	if (node->open >= 0)
		close(node->open), node->open = -1;
}

/* Of the system's files none is opened: the kernel names the file, and it stays open here for the next time. */
static int open_kept(uint64_t id)
{
	struct node *node = node_of(id);
	if (!node)
		return -1;
	if (node->open < 0) {
		if (kept == KEPT_MOST)
			node_each(close_kept), kept = 0;
		node->open = open_file(node, O_RDONLY);
		kept += node->open >= 0;
	}
	return node->open;
}

int readable(uint64_t key, bool system)
{
	if (system)
		return open_kept(key);
	struct handle *handle = handle_of(key);
	return handle ? handle->fd : -1;
}

void do_read(const struct fuse_in_header *head, const struct fuse_read_in *in, char *buffer, bool system)
{
	int fd = readable(system ? head->nodeid : in->fh, system);
	ssize_t got = fd < 0 ? -1 : pread(fd, buffer, in->size < DATA_MOST ? in->size : DATA_MOST, (off_t)in->offset);
	if (got < 0)
		failed();
	else
		answer(0, buffer, (size_t)got);
}

void do_write(const struct fuse_write_in *in, size_t size)
{
	struct handle *handle = handle_of(in->fh);
	struct fuse_write_out out = {0};
	struct stat st;
	errno = EBADF;
	ssize_t wrote = handle && handle->fd >= 0 && in->size <= size ? pwrite(handle->fd, in + 1, in->size, (off_t)in->offset) : -1;
	if (wrote < 0) {
		failed();
		return;
	}
	if (!look_into(handle->fd, &st))
		node_told(handle->node, &st);
	out.size = (uint32_t)wrote;
	answer(0, &out, sizeof out);
}

void release_handle(uint64_t number)
{
	struct handle *handle = number && number < nhandles && handle_used(&handles[number]) ? &handles[number] : NULL;
	if (handle) {
		struct node *node = handle->node;
		int fd = handle->fd;
		locks_released(number);
		if (handle->list)
			closedir(handle->list);
		if (fd >= 0)
			close(fd);
		*handle = (struct handle){.fd = -1};
		node_closed(node, fd);
	}
	answer(0, NULL, 0);
}

static DIR *list_directory(struct node *node)
{
	int directory = node_directory(node);
	if (directory >= 0)
		watch_directory(node, directory);
	int fd = directory < 0 ? -1 : openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	if (!list && fd >= 0)
		close(fd);
	return list;
}

/* Of a clone: opens what was open when the machine was saved. */
bool handle_again(uint64_t number, struct node *node, int flags, bool directory, bool lost)
{
	if (!number || (number >= nhandles && !more_handles((number / 64 + 1) * 64)) || handle_used(&handles[number]))
		return false;
	struct handle *handle = &handles[number];
	*handle = (struct handle){.node = node, .fd = -1};
	if (!lost && directory)
		handle->list = list_directory(node);
	else if (!lost)
		handle->fd = open_file(node, flags & O_ACCMODE);
	handle->lost = handle->fd < 0 && !handle->list;
	node_opened(node, handle->fd);
	return true;
}

void open_directory(struct node *node)
{
	struct fuse_open_out out = {0};
	struct handle *handle = new_handle(&out.fh);
	DIR *list = handle ? list_directory(node) : NULL;
	if (!list) {
		failed();
		return;
	}
	*handle = (struct handle){.node = node, .fd = -1, .list = list};
	node_opened(node, -1);
	out.open_flags = node->fixed || is_watched(node) ? FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE : 0;
	answer(0, &out, sizeof out);
}

static size_t list_entries(struct node *node, DIR *list, size_t most, char *buffer, bool plus)
{
	size_t used = 0, before = plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET;
	for (struct dirent *one; (one = readdir(list));) {
		size_t length = strlen(one->d_name), size = FUSE_DIRENT_ALIGN(before + length);
		if (used + size > most)
			break;
		struct fuse_direntplus entry = {.dirent = {.ino = one->d_ino, .off = (uint64_t)telldir(list),
							   .namelen = (uint32_t)length, .type = one->d_type}};
		/* No entry for . and ..: the kernel counts no look-up for them. What cannot be looked at has only its name. */
		if (plus && good_name(one->d_name) && !enter(node, one->d_name, &entry.entry_out))
			entry.entry_out = (struct fuse_entry_out){0};
		memset(buffer + used, 0, size);
		memcpy(buffer + used, plus ? (void *)&entry : (void *)&entry.dirent, before);
		memcpy(buffer + used + before, one->d_name, length);
		used += size;
	}
	return used;
}

void read_directory(struct node *node, const struct fuse_read_in *in, char *buffer, bool plus, bool system)
{
	struct handle *handle = system ? NULL : handle_of(in->fh);
	DIR *list = system ? list_directory(node) : handle ? handle->list : NULL;
	if (!list) {
		answer(system ? errno : EBADF, NULL, 0);
		return;
	}
	seekdir(list, (long)in->offset);
	size_t used = list_entries(system ? node : handle->node, list, in->size < LISTING_MOST ? in->size : LISTING_MOST, buffer, plus);
	if (system)
		closedir(list);
	answer(0, buffer, used);
}

void seek(const struct fuse_lseek_in *in)
{
	struct handle *handle = handle_of(in->fh);
	off_t at = handle && handle->fd >= 0 ? lseek(handle->fd, (off_t)in->offset, (int)in->whence) : -1;
	struct fuse_lseek_out out = {.offset = (uint64_t)at};
	if (at < 0)
		failed();
	else
		answer(0, &out, sizeof out);
}

void reserve(const struct fuse_fallocate_in *in)
{
	struct handle *handle = handle_of(in->fh);
	struct stat st;
	bool good = handle && handle->fd >= 0 && !fallocate(handle->fd, (int)in->mode, (off_t)in->offset, (off_t)in->length);
	if (good && !look_into(handle->fd, &st))
		node_told(handle->node, &st);
	done(good);
}

void sync_file(const struct fuse_fsync_in *in)
{
	struct handle *handle = handle_of(in->fh);
	done(handle && (handle->fd < 0 || !(in->fsync_flags & 1 ? fdatasync(handle->fd) : fsync(handle->fd))));
}
