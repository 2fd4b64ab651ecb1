/* File operations, in the process of a helper: with exactly a tenant's rights. */
#define _GNU_SOURCE
#include "job.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#define READ_MOST (1u << 20)
#define LIST_MOST (FRAME_MOST - 4096)
#define DEPTH_MOST 256
#define PROC_MAGIC 0x9fa0

void answer_begin(struct answer *a, unsigned keys)
{
	job_frame(a->job, &a->done, "done", keys);
}

/* Opens what a tenant could: no magic links, which in this process would mean the guest's own; and nothing of
 * procfs for writing, where "self" would be this process, too. */
int open_path(const char *path, uint64_t flags, uint64_t mode)
{
	struct open_how how = {.flags = flags | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, .resolve = RESOLVE_NO_MAGICLINKS};
	struct statfs fs;
	if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE)
		how.mode = mode;
	if (how.mode & place.set_id) {
		errno = EPERM;
		return -1;
	}
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
	if (fd >= 0 && (flags & O_ACCMODE) != O_RDONLY && (fstatfs(fd, &fs) || fs.f_type == PROC_MAGIC)) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return fd;
}

/* A file whose content is moved piece by piece: reading from a device might never end, or wait. */
static int open_regular(const char *path, uint64_t flags, uint64_t mode)
{
	struct stat st = {0};
	int fd = open_path(path, flags, mode);
	if (fd >= 0 && (fstat(fd, &st) || !S_ISREG(st.st_mode))) {
		close(fd);
		errno = S_ISDIR(st.st_mode) ? EISDIR : EINVAL;
		return -1;
	}
	return fd;
}

static bool do_open(struct cbor q, const char *path, struct answer *a)
{
	uint64_t flags, mode;
	if (!cbor_get_uint(q, "flags", INT32_MAX, 0, &flags) || !cbor_get_uint(q, "mode", 07777, 0666, &mode))
		return false;
	a->fd = open_path(path, flags, mode);
	if (a->fd < 0)
		return false;
	answer_begin(a, 1);
	put_key_uint(&a->done, "fds", 1);
	return true;
}

static int64_t nanoseconds(struct timespec t)
{
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static bool do_stat(struct cbor q, const char *path, struct answer *a)
{
	struct stat st;
	bool follow;
	if (!cbor_get_bool(q, "follow", true, &follow) || (follow ? stat(path, &st) : lstat(path, &st)))
		return false;
	answer_begin(a, 7);
	put_key_uint(&a->done, "mode", st.st_mode);
	put_key_uint(&a->done, "size", (uint64_t)st.st_size);
	put_text(&a->done, "mtime_ns");
	put_int(&a->done, nanoseconds(st.st_mtim));
	put_key_uint(&a->done, "uid", st.st_uid);
	put_key_uint(&a->done, "gid", st.st_gid);
	put_key_uint(&a->done, "nlink", st.st_nlink);
	put_key_uint(&a->done, "ino", st.st_ino);
	return true;
}

static bool do_mkdir(struct cbor q, const char *path, struct answer *a)
{
	uint64_t mode;
	bool parents;
	struct stat st;
	if (!cbor_get_uint(q, "mode", 07777, 0777, &mode) || !cbor_get_bool(q, "parents", false, &parents))
		return false;
	char *part = strdup(path);
	for (char *slash = part; parents && part && *slash && (slash = strchr(slash + 1, '/'));) {
		*slash = 0; /* whatever stands in the way shows at the last one */
		mkdir(part, 0777);
		*slash = '/';
	}
	if (mkdir(path, (mode_t)mode) && !(parents && errno == EEXIST && !stat(path, &st) && S_ISDIR(st.st_mode)))
		return false;
	answer_begin(a, 0);
	return true;
}

/* Never through a link: what it points to stays. */
static bool remove_tree(int parent, const char *name, int depth)
{
	if (!unlinkat(parent, name, 0))
		return true;
	if (errno != EISDIR && errno != EPERM)
		return false;
	int fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	if (!dir)
		return false;
	bool done = depth < DEPTH_MOST || (errno = ENAMETOOLONG, false);
	for (struct dirent *e; done && (e = readdir(dir));)
		if (strcmp(e->d_name, ".") && strcmp(e->d_name, ".."))
			done = remove_tree(fd, e->d_name, depth + 1);
	int saved = errno;
	closedir(dir);
	errno = saved;
	return done && !unlinkat(parent, name, AT_REMOVEDIR);
}

/* `.`, `..` and `/` cannot be removed by these names: said before what is in them is gone, as rm says it. */
static bool names_itself(const char *path)
{
	size_t end = strlen(path);
	while (end && path[end - 1] == '/')
		end--;
	size_t start = end;
	while (start && path[start - 1] != '/')
		start--;
	size_t length = end - start;
	return !length || (length <= 2 && path[start] == '.' && (length == 1 || path[start + 1] == '.'));
}

static bool do_remove(struct cbor q, const char *path, struct answer *a)
{
	bool recursive;
	if (!cbor_get_bool(q, "recursive", false, &recursive))
		return false;
	if (recursive && names_itself(path)) {
		errno = EINVAL;
		return false;
	}
	if (recursive ? !remove_tree(AT_FDCWD, path, 0)
		      : unlink(path) && ((errno != EISDIR && errno != EPERM) || rmdir(path)))
		return false;
	answer_begin(a, 0);
	return true;
}

static bool do_rename(struct cbor q, const char *path, struct answer *a)
{
	char *to = cbor_get_cstring(q, "to");
	if (!to || rename(path, to))
		return false;
	answer_begin(a, 0);
	return true;
}

/* A descriptor that only names the file, which need not be readable. Nothing of procfs: its files and links would be those
 * of this process, the guest's own. */
int open_name(const char *path, uint64_t flags)
{
	struct open_how how = {.flags = flags | O_PATH | O_CLOEXEC, .resolve = RESOLVE_NO_MAGICLINKS};
	struct statfs fs;
	int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
	if (fd >= 0 && (fstatfs(fd, &fs) || fs.f_type == PROC_MAGIC)) {
		close(fd);
		errno = EACCES;
		return -1;
	}
	return fd;
}

/* By descriptor, so that what was looked at is what is changed. fchmod takes no O_PATH descriptor, and one that is open for
 * reading cannot be had of every file; the link in /proc is this process's own, to which it is always let through. */
static bool do_chmod(struct cbor q, const char *path, struct answer *a)
{
	char again[32];
	uint64_t mode;
	if (!cbor_get_uint(q, "mode", 07777, UINT64_MAX, &mode))
		return false;
	if (mode > 07777 || mode & place.set_id) {
		errno = mode > 07777 ? EINVAL : EPERM;
		return false;
	}
	int fd = open_name(path, 0);
	if (fd < 0)
		return false;
	snprintf(again, sizeof again, "/proc/self/fd/%d", fd);
	if (chmod(again, (mode_t)mode))
		return false;
	answer_begin(a, 0);
	return true;
}

static bool do_symlink(struct cbor q, const char *path, struct answer *a)
{
	char *target = cbor_get_cstring(q, "target");
	if (!target || symlink(target, path))
		return false;
	answer_begin(a, 0);
	return true;
}

static bool do_readlink(struct cbor q, const char *path, struct answer *a)
{
	(void)q;
	char target[4096];
	int fd = open_name(path, O_NOFOLLOW);
	if (fd < 0)
		return false;
	ssize_t size = readlinkat(fd, "", target, sizeof target);
	if (size < 0) {
		errno = errno == ENOENT ? EINVAL : errno; /* what readlinkat says of a descriptor that is no link's */
		return false;
	}
	answer_begin(a, 1);
	put_text(&a->done, "target");
	put_bytes(&a->done, target, (size_t)size);
	return true;
}

static bool do_list(struct cbor q, const char *path, struct answer *a)
{
	(void)q;
	int fd = open_path(path, O_RDONLY | O_DIRECTORY, 0);
	DIR *dir = fd < 0 ? NULL : fdopendir(fd);
	struct out entries = {0};
	uint64_t n = 0;
	bool cut = false;
	if (!dir)
		return false;
	for (struct dirent *e; !cut && (e = readdir(dir));) {
		struct stat st;
		if (!strcmp(e->d_name, ".") || !strcmp(e->d_name, "..") || fstatat(fd, e->d_name, &st, AT_SYMLINK_NOFOLLOW))
			continue;
		put_array(&entries, 4);
		put_bytes(&entries, e->d_name, strlen(e->d_name));
		put_uint(&entries, st.st_mode);
		put_uint(&entries, (uint64_t)st.st_size);
		put_int(&entries, nanoseconds(st.st_mtim));
		n++;
		cut = entries.size > LIST_MOST;
	}
	answer_begin(a, 2);
	put_text(&a->done, "entries");
	put_array(&a->done, n);
	put_raw(&a->done, entries.data, entries.size);
	put_key_bool(&a->done, "cut", cut);
	return !entries.failed;
}

static bool do_read(struct cbor q, const char *path, struct answer *a)
{
	uint64_t offset, size;
	if (!cbor_get_uint(q, "offset", INT64_MAX, 0, &offset) || !cbor_get_uint(q, "size", READ_MOST, READ_MOST, &size))
		return false;
	int fd = open_regular(path, O_RDONLY, 0);
	char *data = fd < 0 ? NULL : malloc(size + 1);
	size_t got = 0;
	while (data && got < size) {
		ssize_t n = pread(fd, data + got, size - got, (off_t)(offset + got));
		if (n < 0)
			return false;
		if (!n)
			break;
		got += (size_t)n;
	}
	if (!data)
		return false;
	answer_begin(a, 1);
	put_text(&a->done, "data");
	put_bytes(&a->done, data, got);
	return true;
}

static bool do_write(struct cbor q, const char *path, struct answer *a)
{
	uint64_t offset, mode;
	bool truncate;
	struct cbor item;
	const uint8_t *data;
	size_t size;
	if (!cbor_get_uint(q, "offset", INT64_MAX, 0, &offset) || !cbor_get_uint(q, "mode", 07777, 0666, &mode) ||
	    !cbor_get_bool(q, "truncate", false, &truncate))
		return false;
	if (!cbor_get(q, "data", &item) || !cbor_string(item, &data, &size)) {
		errno = EINVAL;
		return false;
	}
	int fd = open_regular(path, O_WRONLY | O_CREAT | (truncate ? O_TRUNC : 0), mode);
	if (fd < 0)
		return false;
	while (size) {
		ssize_t n = pwrite(fd, data, size, (off_t)offset);
		if (n < 0)
			return false;
		data += n, size -= (size_t)n, offset += (uint64_t)n;
	}
	/* A file system may keep writes back until here, and fail only now. */
	if (close(fd))
		return false;
	answer_begin(a, 0);
	return true;
}

bool file_operation(struct cbor q, struct answer *a)
{
	static const struct {
		const char *name;
		bool (*run)(struct cbor, const char *, struct answer *);
	} operations[] = {
		{"open", do_open}, {"stat", do_stat}, {"mkdir", do_mkdir}, {"remove", do_remove}, {"rename", do_rename},
		{"chmod", do_chmod}, {"symlink", do_symlink}, {"readlink", do_readlink}, {"list", do_list}, {"read", do_read},
		{"write", do_write}, {"attributes", do_attributes}, {"set_attribute", do_set_attribute},
	};
	struct cbor op;
	errno = EINVAL;
	char *path = cbor_get(q, "op", &op) ? cbor_get_cstring(q, "path") : NULL;
	if (!path)
		return false;
	if (place.framed && cbor_is(op, "open")) {
		errno = EXDEV; /* a descriptor would not get through; what `read` and `write` move does */
		return false;
	}
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (cbor_is(op, operations[i].name))
			return operations[i].run(q, path, a);
	errno = ENOSYS;
	return false;
}
