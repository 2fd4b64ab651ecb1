/* The file server of a virtual machine. It is a tenant of the room: what it opens, a tenant there could open, and nothing
 * else. On its stream the machine's kernel speaks FUSE (the guest inside carries it from /dev/fuse); that kernel belongs to a
 * tenant, so every length, number and name it sends is checked.
 *
 * Files of the host that nothing changes while the machine lives (the system's) are remembered by its kernel for as long as it
 * likes; all others for a tenth of a second, so that an edit outside is soon seen inside. */
#define _GNU_SOURCE
#include "share.h"
#include "machine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/falloc.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#define MINOR 31
#define DATA_MOST (1u << 20)
#define REQUEST_MOST (DATA_MOST + 65536)
#define REMEMBER_NS 100000000u /* of what the host may change */
#define PROC_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572

static int stream;
static char **fixed_paths;
static uint64_t unique;

/* Open files and directories have numbers of ours: a number that the machine makes up leads nowhere. */
struct handle {
	struct node *node;
	int fd;
	DIR *list;
};
static struct handle *handles;
static size_t nhandles;

static void send_all(struct iovec *parts, int count)
{
	while (count) {
		ssize_t sent = writev(stream, parts, count);
		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			_exit(0); /* the machine is gone */
		for (; count && (size_t)sent >= parts->iov_len; parts++, count--)
			sent -= (ssize_t)parts->iov_len;
		if (count)
			parts->iov_base = (char *)parts->iov_base + sent, parts->iov_len -= (size_t)sent;
	}
}

static void answer(int error, const void *body, size_t size)
{
	struct fuse_out_header head = {(uint32_t)(sizeof head + (error ? 0 : size)), -error, unique};
	struct iovec parts[] = {{&head, sizeof head}, {(void *)body, size}};
	send_all(parts, error || !size ? 1 : 2);
}

static void failed(void)
{
	answer(errno ? errno : EIO, NULL, 0);
}

static void done(bool good)
{
	if (good)
		answer(0, NULL, 0);
	else
		failed();
}

/* One file system inside stands for several outside: their numbers must not meet. */
static uint64_t inode_number(const struct stat *st)
{
	static dev_t seen[256];
	static size_t count;
	size_t i;
	for (i = 0; i < count && seen[i] != st->st_dev; i++)
		;
	if (i == count && count < 256)
		seen[count++] = st->st_dev;
	return st->st_ino ^ (uint64_t)i << 52;
}

static struct fuse_attr attributes(const struct stat *st)
{
	return (struct fuse_attr){
		.ino = inode_number(st), .size = (uint64_t)st->st_size, .blocks = (uint64_t)st->st_blocks,
		.atime = (uint64_t)st->st_atim.tv_sec, .atimensec = (uint32_t)st->st_atim.tv_nsec,
		.mtime = (uint64_t)st->st_mtim.tv_sec, .mtimensec = (uint32_t)st->st_mtim.tv_nsec,
		.ctime = (uint64_t)st->st_ctim.tv_sec, .ctimensec = (uint32_t)st->st_ctim.tv_nsec,
		.mode = st->st_mode, .nlink = (uint32_t)st->st_nlink, .uid = st->st_uid, .gid = st->st_gid,
		.rdev = (uint32_t)st->st_rdev, .blksize = (uint32_t)st->st_blksize};
}

static uint64_t seconds(const struct node *node)
{
	return node->fixed ? 3600 : 0;
}

static uint32_t nanoseconds(const struct node *node)
{
	return node->fixed ? 0 : REMEMBER_NS;
}

/* Whether `path` is, or lies beneath, what nothing changes. */
static bool is_fixed(const struct node *parent, const char *name)
{
	char path[4096];
	size_t at = sizeof path - 1;
	path[at] = 0;
	for (const char *part = name; part; part = parent == NULL ? NULL : parent->name, parent = parent ? parent->parent : NULL) {
		size_t size = strlen(part);
		if (size + 1 > at)
			return false;
		at -= size + 1;
		path[at] = '/';
		memcpy(path + at + 1, part, size);
	}
	for (char **one = fixed_paths; *one; one++)
		if (!strcmp(*one, path + at))
			return true;
	return false;
}

/* The kernel's own file systems are no files of the host's: the machine has its own, and these would show this process. */
static bool is_shared(int directory, const char *name, const struct stat *st, const struct node *parent)
{
	struct statfs fs;
	if (!S_ISDIR(st->st_mode) || st->st_dev == parent->device)
		return true;
	int fd = openat(directory, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool shared = fd < 0 || (!fstatfs(fd, &fs) && fs.f_type != PROC_MAGIC && fs.f_type != SYSFS_MAGIC);
	if (fd >= 0)
		close(fd);
	return shared;
}

static bool good_name(const char *name)
{
	return *name && strlen(name) < 256 && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

/* The entry of `name` in `parent`, with one look-up more for the kernel to forget. */
static bool enter(struct node *parent, const char *name, struct fuse_entry_out *out)
{
	struct stat st;
	int directory = node_directory(parent);
	if (directory < 0 || fstatat(directory, name, &st, AT_SYMLINK_NOFOLLOW))
		return false;
	bool shared = is_shared(directory, name, &st, parent);
	struct node *node = node_enter(parent, name, &st);
	if (!node)
		return false;
	if (!shared) {
		/* Something to mount on is all that the machine needs there. */
		node->closed = true;
		st.st_mode = S_IFDIR | 0555;
	}
	if (!node->fixed && !S_ISLNK(st.st_mode))
		node->fixed = is_fixed(parent, name);
	*out = (struct fuse_entry_out){.nodeid = node_id(node), .generation = 1, .attr = attributes(&st),
				       .entry_valid = seconds(node), .entry_valid_nsec = nanoseconds(node),
				       .attr_valid = seconds(node), .attr_valid_nsec = nanoseconds(node)};
	return true;
}

static void answer_entry(struct node *parent, const char *name)
{
	struct fuse_entry_out out;
	if (enter(parent, name, &out))
		answer(0, &out, sizeof out);
	else
		failed();
}

static void lookup(struct node *parent, const char *name)
{
	struct fuse_entry_out none = {.entry_valid = seconds(parent), .entry_valid_nsec = nanoseconds(parent)};
	struct fuse_entry_out out;
	if (enter(parent, name, &out))
		answer(0, &out, sizeof out);
	else if (errno == ENOENT)
		answer(0, &none, sizeof none); /* node 0: that there is nothing may be remembered, too */
	else
		failed();
}

static bool look(struct node *node, struct stat *st)
{
	const char *name;
	if (node == node_root())
		return !fstat(node_directory(node), st);
	int directory = node_place(node, &name);
	if (directory >= 0 && !fstatat(directory, name, st, AT_SYMLINK_NOFOLLOW) && st->st_dev == node->device &&
	    st->st_ino == node->inode)
		return true;
	if (node->open >= 0)
		return !fstat(node->open, st);
	errno = ENOENT;
	return false;
}

static void answer_attributes(struct node *node)
{
	struct stat st;
	if (!look(node, &st)) {
		failed();
		return;
	}
	struct fuse_attr_out out = {.attr_valid = seconds(node), .attr_valid_nsec = nanoseconds(node), .attr = attributes(&st)};
	answer(0, &out, sizeof out);
}

/* ---- open files */

static struct handle *handle_of(uint64_t number)
{
	if (number >= nhandles || (handles[number].fd < 0 && !handles[number].list)) {
		errno = EBADF;
		return NULL;
	}
	return &handles[number];
}

static struct handle *new_handle(uint64_t *number)
{
	for (size_t i = 0; i < nhandles; i++)
		if (handles[i].fd < 0 && !handles[i].list) {
			*number = i;
			return &handles[i];
		}
	size_t more = nhandles ? nhandles * 2 : 64;
	struct handle *grown = realloc(handles, more * sizeof *grown);
	if (!grown)
		return NULL;
	handles = grown;
	for (size_t i = nhandles; i < more; i++)
		handles[i] = (struct handle){.fd = -1};
	*number = nhandles;
	nhandles = more;
	return &handles[*number];
}

/* Regular files alone: the kernel inside answers for pipes, sockets and devices itself. Not blocking, so that a pipe put
 * in a file's place holds up nobody. */
static int open_file(struct node *node, int flags)
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
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || st.st_dev != node->device || st.st_ino != node->inode) {
		close(fd);
		return -1;
	}
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

static void do_open(struct node *node, const struct fuse_open_in *in)
{
	struct fuse_open_out out;
	int fd = open_file(node, (int)in->flags);
	if (fd < 0) {
		failed();
	} else if (!answer_open(node, fd, &out)) {
		close(fd);
		answer(ENOMEM, NULL, 0);
	} else {
		answer(0, &out, sizeof out);
	}
}

static void create(struct node *parent, const struct fuse_create_in *in, const char *name)
{
	struct {
		struct fuse_entry_out entry;
		struct fuse_open_out open;
	} out;
	int directory = node_directory(parent);
	int flags = (int)(in->flags & (O_ACCMODE | O_EXCL | O_TRUNC)) | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
	int fd = directory < 0 ? -1 : openat(directory, name, flags, in->mode & 0777 & ~in->umask);
	struct stat st;
	if (fd < 0) {
		failed();
		return;
	}
	errno = EACCES;
	if (fstat(fd, &st) || !S_ISREG(st.st_mode) || !enter(parent, name, &out.entry) ||
	    !answer_open(node_of(out.entry.nodeid), fd, &out.open)) {
		failed();
		close(fd);
		return;
	}
	answer(0, &out, sizeof out);
}

static void do_read(const struct fuse_read_in *in, char *buffer)
{
	struct handle *handle = handle_of(in->fh);
	ssize_t got = handle && handle->fd >= 0
			      ? pread(handle->fd, buffer, in->size < DATA_MOST ? in->size : DATA_MOST, (off_t)in->offset)
			      : -1;
	if (got < 0)
		failed();
	else
		answer(0, buffer, (size_t)got);
}

static void do_write(const struct fuse_write_in *in, size_t size)
{
	struct handle *handle = handle_of(in->fh);
	struct fuse_write_out out = {0};
	errno = EBADF;
	ssize_t wrote = handle && handle->fd >= 0 && in->size <= size ? pwrite(handle->fd, in + 1, in->size, (off_t)in->offset) : -1;
	if (wrote < 0) {
		failed();
		return;
	}
	out.size = (uint32_t)wrote;
	answer(0, &out, sizeof out);
}

static void release(uint64_t number)
{
	struct handle *handle = handle_of(number);
	if (handle) {
		struct node *node = handle->node;
		int fd = handle->fd;
		if (handle->list)
			closedir(handle->list);
		if (fd >= 0)
			close(fd);
		*handle = (struct handle){.fd = -1};
		node_closed(node, fd);
	}
	answer(0, NULL, 0);
}

/* ---- directories */

static void open_directory(struct node *node)
{
	struct fuse_open_out out = {0};
	struct handle *handle = new_handle(&out.fh);
	int directory = node_directory(node);
	int fd = directory < 0 || !handle ? -1 : openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	DIR *list = fd < 0 ? NULL : fdopendir(fd);
	if (!list) {
		failed();
		if (fd >= 0)
			close(fd);
		return;
	}
	*handle = (struct handle){.node = node, .fd = -1, .list = list};
	node_opened(node, -1);
	out.open_flags = node->fixed ? FOPEN_CACHE_DIR | FOPEN_KEEP_CACHE : 0;
	answer(0, &out, sizeof out);
}

static void read_directory(const struct fuse_read_in *in, char *buffer, bool plus)
{
	struct handle *handle = handle_of(in->fh);
	if (!handle || !handle->list) {
		answer(EBADF, NULL, 0);
		return;
	}
	size_t most = in->size < 65536 ? in->size : 65536, used = 0;
	seekdir(handle->list, (long)in->offset);
	for (struct dirent *one; (one = readdir(handle->list));) {
		size_t length = strlen(one->d_name);
		size_t size = plus ? FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET_DIRENTPLUS + length)
				   : FUSE_DIRENT_ALIGN(FUSE_NAME_OFFSET + length);
		if (used + size > most)
			break;
		struct fuse_direntplus entry = {.dirent = {.ino = one->d_ino, .off = (uint64_t)telldir(handle->list),
							   .namelen = (uint32_t)length, .type = one->d_type}};
		/* No entry for . and ..: the kernel counts no look-up for them. What cannot be looked at has only its name. */
		if (plus && good_name(one->d_name) && !enter(handle->node, one->d_name, &entry.entry_out))
			entry.entry_out = (struct fuse_entry_out){0};
		memset(buffer + used, 0, size);
		if (plus)
			memcpy(buffer + used, &entry, FUSE_NAME_OFFSET_DIRENTPLUS);
		else
			memcpy(buffer + used, &entry.dirent, FUSE_NAME_OFFSET);
		memcpy(buffer + used + (plus ? FUSE_NAME_OFFSET_DIRENTPLUS : FUSE_NAME_OFFSET), one->d_name, length);
		used += size;
	}
	answer(0, buffer, used);
}

/* ---- changes */

static bool set_times(struct node *node, const struct fuse_setattr_in *in)
{
	const char *name;
	struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_nsec = UTIME_OMIT}};
	if (in->valid & FATTR_ATIME)
		times[0] = (struct timespec){(time_t)in->atime, in->valid & FATTR_ATIME_NOW ? UTIME_NOW : (long)in->atimensec};
	if (in->valid & FATTR_MTIME)
		times[1] = (struct timespec){(time_t)in->mtime, in->valid & FATTR_MTIME_NOW ? UTIME_NOW : (long)in->mtimensec};
	int directory = node_place(node, &name);
	if (directory >= 0 && !utimensat(directory, name, times, AT_SYMLINK_NOFOLLOW))
		return true;
	return node->open >= 0 && !futimens(node->open, times);
}

static bool set_size(struct node *node, const struct fuse_setattr_in *in)
{
	struct handle *handle = in->valid & FATTR_FH ? handle_of(in->fh) : NULL;
	if (handle && handle->fd >= 0)
		return !ftruncate(handle->fd, (off_t)in->size);
	int fd = open_file(node, O_WRONLY);
	bool good = fd >= 0 && !ftruncate(fd, (off_t)in->size);
	if (fd >= 0)
		close(fd);
	return good;
}

static bool set_mode(struct node *node, uint32_t mode)
{
	const char *name;
	int directory = node_place(node, &name);
	if (directory < 0)
		return node->open >= 0 && !fchmod(node->open, mode & 0777);
	/* The machine's setuid and setgid bits mean nothing outside, and nobody may leave them there. */
	return !fchmodat(directory, name, mode & 01777, 0);
}

static bool set_owner(struct node *node, const struct fuse_setattr_in *in)
{
	const char *name;
	int directory = node_place(node, &name);
	uid_t uid = in->valid & FATTR_UID ? in->uid : (uid_t)-1;
	gid_t gid = in->valid & FATTR_GID ? in->gid : (gid_t)-1;
	return directory >= 0 && !fchownat(directory, name, uid, gid, AT_SYMLINK_NOFOLLOW);
}

static void set_attributes_of(struct node *node, const struct fuse_setattr_in *in)
{
	errno = ENOENT;
	if ((in->valid & (FATTR_UID | FATTR_GID) && !set_owner(node, in)) ||
	    (in->valid & FATTR_MODE && !set_mode(node, in->mode)) || (in->valid & FATTR_SIZE && !set_size(node, in)) ||
	    (in->valid & (FATTR_ATIME | FATTR_MTIME) && !set_times(node, in)))
		failed();
	else
		answer_attributes(node);
}

static void make_directory(struct node *parent, const struct fuse_mkdir_in *in, const char *name)
{
	int directory = node_directory(parent);
	if (directory < 0 || mkdirat(directory, name, in->mode & 01777 & ~in->umask))
		failed();
	else
		answer_entry(parent, name);
}

static void make_node(struct node *parent, const struct fuse_mknod_in *in, const char *name)
{
	int directory = node_directory(parent);
	errno = EPERM;
	if (directory < 0 || !(S_ISREG(in->mode) || S_ISFIFO(in->mode) || S_ISSOCK(in->mode)) ||
	    mknodat(directory, name, (in->mode & (S_IFMT | 0777)) & ~in->umask, 0))
		failed();
	else
		answer_entry(parent, name);
}

static void make_link(struct node *parent, const char *name, const char *target)
{
	int directory = node_directory(parent);
	if (directory < 0 || symlinkat(target, directory, name))
		failed();
	else
		answer_entry(parent, name);
}

static void hard_link(struct node *parent, uint64_t old, const char *name)
{
	const char *from;
	struct node *node = node_of(old);
	int there = node ? node_place(node, &from) : -1, here = node_directory(parent);
	errno = ENOENT;
	if (there < 0 || here < 0 || linkat(there, from, here, name, 0))
		failed();
	else
		answer_entry(parent, name);
}

static void move(struct node *parent, uint64_t to, unsigned flags, const char *name, const char *new_name)
{
	struct node *there = node_of(to);
	int from = node_directory(parent), into = there ? node_directory(there) : -1;
	if (from < 0 || into < 0 || !good_name(new_name) ||
	    (flags ? syscall(SYS_renameat2, from, name, into, new_name, flags) : renameat(from, name, into, new_name))) {
		failed();
		return;
	}
	node_moved(parent, name, there, new_name);
	answer(0, NULL, 0);
}

static void remove_entry(struct node *parent, const char *name, int flags)
{
	int directory = node_directory(parent);
	done(directory >= 0 && !unlinkat(directory, name, flags));
}

static void read_link(struct node *node)
{
	char target[4096];
	const char *name;
	int directory = node_place(node, &name);
	ssize_t size = directory < 0 ? -1 : readlinkat(directory, name, target, sizeof target);
	if (size < 0)
		failed();
	else
		answer(0, target, (size_t)size);
}

static void space(struct node *node)
{
	struct statvfs st;
	const char *name;
	struct fuse_statfs_out out = {0};
	int fd = node_directory(node); /* ENOTDIR for a file: then that of its directory */
	if (fd < 0)
		fd = node_place(node, &name);
	if (fd < 0 || fstatvfs(fd, &st)) {
		failed();
		return;
	}
	out.st = (struct fuse_kstatfs){.blocks = st.f_blocks, .bfree = st.f_bfree, .bavail = st.f_bavail, .files = st.f_files,
				       .ffree = st.f_ffree, .bsize = (uint32_t)st.f_bsize, .namelen = (uint32_t)st.f_namemax,
				       .frsize = (uint32_t)st.f_frsize};
	answer(0, &out, sizeof out);
}

static void seek(const struct fuse_lseek_in *in)
{
	struct handle *handle = handle_of(in->fh);
	off_t at = handle && handle->fd >= 0 ? lseek(handle->fd, (off_t)in->offset, (int)in->whence) : -1;
	struct fuse_lseek_out out = {.offset = (uint64_t)at};
	if (at < 0)
		failed();
	else
		answer(0, &out, sizeof out);
}

static void reserve(const struct fuse_fallocate_in *in)
{
	struct handle *handle = handle_of(in->fh);
	done(handle && handle->fd >= 0 && !fallocate(handle->fd, (int)in->mode, (off_t)in->offset, (off_t)in->length));
}

static void sync_file(const struct fuse_fsync_in *in)
{
	struct handle *handle = handle_of(in->fh);
	done(handle && (handle->fd < 0 || !(in->fsync_flags & 1 ? fdatasync(handle->fd) : fsync(handle->fd))));
}

static void begin(const struct fuse_init_in *in)
{
	struct fuse_init_out out = {.major = FUSE_KERNEL_VERSION, .minor = MINOR, .max_readahead = DATA_MOST, .max_write = DATA_MOST,
				    .max_background = 64, .congestion_threshold = 48, .time_gran = 1, .max_pages = DATA_MOST / 4096};
	out.flags = FUSE_ASYNC_READ | FUSE_BIG_WRITES | FUSE_ATOMIC_O_TRUNC | FUSE_AUTO_INVAL_DATA | FUSE_DO_READDIRPLUS |
		    FUSE_READDIRPLUS_AUTO | FUSE_PARALLEL_DIROPS | FUSE_MAX_PAGES | FUSE_CACHE_SYMLINKS | FUSE_ASYNC_DIO;
	out.flags &= in->flags;
	answer(0, &out, sizeof out);
}

static void forget(const struct fuse_in_header *head, const void *body, size_t size)
{
	if (head->opcode == FUSE_FORGET) {
		struct node *node = node_of(head->nodeid);
		if (node && size >= sizeof(struct fuse_forget_in))
			node_forget(node, ((const struct fuse_forget_in *)body)->nlookup);
		return;
	}
	const struct fuse_batch_forget_in *batch = body;
	const struct fuse_forget_one *each = (const void *)(batch + 1);
	for (size_t i = 0; size >= sizeof *batch && i < batch->count && sizeof *batch + (i + 1) * sizeof *each <= size; i++) {
		struct node *node = node_of(each[i].nodeid);
		if (node)
			node_forget(node, each[i].nlookup);
	}
}

/* How many bytes stand before the names of a request, and how many names there must be. */
static bool well_formed(uint32_t operation, const char *body, size_t size, size_t *before, const char *names[2])
{
	static const struct {
		uint32_t operation;
		size_t before;
		int names;
	} table[] = {
		{FUSE_LOOKUP, 0, 1}, {FUSE_UNLINK, 0, 1}, {FUSE_RMDIR, 0, 1}, {FUSE_SYMLINK, 0, 2},
		{FUSE_MKNOD, sizeof(struct fuse_mknod_in), 1}, {FUSE_MKDIR, sizeof(struct fuse_mkdir_in), 1},
		{FUSE_RENAME, sizeof(struct fuse_rename_in), 2}, {FUSE_RENAME2, sizeof(struct fuse_rename2_in), 2},
		{FUSE_LINK, sizeof(struct fuse_link_in), 1}, {FUSE_CREATE, sizeof(struct fuse_create_in), 1},
		{FUSE_INIT, 16, 0}, {FUSE_SETATTR, sizeof(struct fuse_setattr_in), 0}, {FUSE_OPEN, sizeof(struct fuse_open_in), 0},
		{FUSE_READ, sizeof(struct fuse_read_in), 0}, {FUSE_READDIR, sizeof(struct fuse_read_in), 0},
		{FUSE_READDIRPLUS, sizeof(struct fuse_read_in), 0}, {FUSE_WRITE, sizeof(struct fuse_write_in), 0},
		{FUSE_RELEASE, sizeof(struct fuse_release_in), 0}, {FUSE_RELEASEDIR, sizeof(struct fuse_release_in), 0},
		{FUSE_FSYNC, sizeof(struct fuse_fsync_in), 0}, {FUSE_FSYNCDIR, sizeof(struct fuse_fsync_in), 0},
		{FUSE_LSEEK, sizeof(struct fuse_lseek_in), 0}, {FUSE_FALLOCATE, sizeof(struct fuse_fallocate_in), 0},
	};
	for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
		if (table[i].operation != operation)
			continue;
		*before = table[i].before;
		if (size < *before)
			return false;
		const char *at = body + *before, *end = body + size;
		for (int name = 0; name < table[i].names; name++) {
			const char *stop = memchr(at, 0, (size_t)(end - at));
			if (!stop)
				return false;
			names[name] = at;
			at = stop + 1;
		}
		/* The second word of a symbolic link is its target, which may be anything. */
		return !table[i].names || good_name(names[0]);
	}
	return true; /* without a body, or not known */
}

static void handle(const struct fuse_in_header *head, char *body, size_t size, char *buffer)
{
	size_t before = 0;
	const char *names[2] = {NULL, NULL};
	struct node *node = node_of(head->nodeid);
	unique = head->unique;
	if (head->opcode == FUSE_FORGET || head->opcode == FUSE_BATCH_FORGET) {
		forget(head, body, size);
		return;
	}
	if (head->opcode == FUSE_INTERRUPT)
		return; /* each request is answered before the next is read */
	if (!well_formed(head->opcode, body, size, &before, names) || (!node && head->opcode != FUSE_INIT)) {
		answer(node ? EINVAL : ESTALE, NULL, 0);
		return;
	}
	switch (head->opcode) {
	case FUSE_INIT: begin((void *)body); break;
	case FUSE_LOOKUP: lookup(node, names[0]); break;
	case FUSE_GETATTR: answer_attributes(node); break;
	case FUSE_SETATTR: set_attributes_of(node, (void *)body); break;
	case FUSE_READLINK: read_link(node); break;
	case FUSE_SYMLINK: make_link(node, names[0], names[1]); break;
	case FUSE_MKNOD: make_node(node, (void *)body, names[0]); break;
	case FUSE_MKDIR: make_directory(node, (void *)body, names[0]); break;
	case FUSE_UNLINK: remove_entry(node, names[0], 0); break;
	case FUSE_RMDIR: remove_entry(node, names[0], AT_REMOVEDIR); break;
	case FUSE_RENAME: move(node, ((struct fuse_rename_in *)(void *)body)->newdir, 0, names[0], names[1]); break;
	case FUSE_RENAME2: {
		const struct fuse_rename2_in *in = (void *)body;
		move(node, in->newdir, in->flags, names[0], names[1]);
		break;
	}
	case FUSE_LINK: hard_link(node, ((struct fuse_link_in *)(void *)body)->oldnodeid, names[0]); break;
	case FUSE_OPEN: do_open(node, (void *)body); break;
	case FUSE_CREATE: create(node, (void *)body, names[0]); break;
	case FUSE_READ: do_read((void *)body, buffer); break;
	case FUSE_WRITE: do_write((void *)body, size - before); break;
	case FUSE_STATFS: space(node); break;
	case FUSE_RELEASE: case FUSE_RELEASEDIR: release(((struct fuse_release_in *)(void *)body)->fh); break;
	case FUSE_FSYNC: case FUSE_FSYNCDIR: sync_file((void *)body); break;
	case FUSE_OPENDIR: open_directory(node); break;
	case FUSE_READDIR: read_directory((void *)body, buffer, false); break;
	case FUSE_READDIRPLUS: read_directory((void *)body, buffer, true); break;
	case FUSE_LSEEK: seek((void *)body); break;
	case FUSE_FALLOCATE: reserve((void *)body); break;
	case FUSE_DESTROY: answer(0, NULL, 0); break;
	default: answer(ENOSYS, NULL, 0); /* the kernel then does without: extended attributes, locks, polling */
	}
}

static bool read_all(char *buffer, size_t size)
{
	while (size) {
		ssize_t got = read(stream, buffer, size);
		if (got < 0 && errno == EINTR)
			continue;
		if (got <= 0)
			return false;
		buffer += got, size -= (size_t)got;
	}
	return true;
}

#define TOP_MOST 256

/* Everything at the top but the kernel's own file systems and what belongs to QEMU. What this server is asked for by mistake, or
 * made to do by a machine that has broken it, Landlock refuses. */
static bool confine(void)
{
	static struct permission top[TOP_MOST + 1] = {{"/", LIST}};
	static char paths[TOP_MOST][260];
	size_t count = 1;
	DIR *root = opendir("/");
	for (struct dirent *one; root && (one = readdir(root)) && count < TOP_MOST;) {
		struct statfs fs;
		snprintf(paths[count], sizeof *paths, "/%s", one->d_name);
		if (one->d_name[0] == '.' && (!one->d_name[1] || !strcmp(one->d_name, "..") || !strcmp(one->d_name, ".machine")))
			continue;
		if (!statfs(paths[count], &fs) && (fs.f_type == PROC_MAGIC || fs.f_type == SYSFS_MAGIC))
			continue;
		top[count] = (struct permission){paths[count], CHANGE};
		count++;
	}
	return root && !closedir(root) && confine_files(top);
}

noreturn void share(int from, char **fixed)
{
	char *request = aligned_alloc(4096, REQUEST_MOST), *buffer = aligned_alloc(4096, DATA_MOST);
	struct fuse_in_header head;
	stream = from;
	fixed_paths = fixed;
	umask(0);
	/* Nothing else of this user may look into us, and we hold nothing open that we were not told to. */
	if (!request || !buffer || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) || !nodes_begin() || !confine())
		_exit(1);
	while (read_all((char *)&head, sizeof head)) {
		if (head.len < sizeof head || head.len - sizeof head > REQUEST_MOST || !read_all(request, head.len - sizeof head))
			_exit(1);
		handle(&head, request, head.len - sizeof head, buffer);
	}
	_exit(0);
}
