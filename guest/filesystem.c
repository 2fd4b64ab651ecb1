/* Builds the file system that tenants see: directories, files, then mounts, in the order given.
 *
 * No path here may contain a symbolic link. The host resolved them all, so a link was put there later, by somebody who wants
 * a mask to land elsewhere or a bind to show something else. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

int open_place(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static bool mount_bind(struct cbor op, int target)
{
	bool ro, dev;
	char *from = cbor_get_cstring(op, "from");
	if (!from || !cbor_get_bool(op, "ro", false, &ro) || !cbor_get_bool(op, "dev", false, &dev))
		return false;
	int source = open_place(from);
	free(from);
	int copy = source < 0 ? -1 : open_tree(source, "", OPEN_TREE_CLONE | RECURSIVE | AT_EMPTY_PATH);
	uint64_t attributes = MOUNT_ATTR_NOSUID | (dev ? 0 : MOUNT_ATTR_NODEV) | (ro ? MOUNT_ATTR_RDONLY : 0);
	bool done = copy >= 0 && !set_attributes(copy, RECURSIVE, attributes, 0) && attach(copy, target);
	int saved = errno;
	close(source);
	errno = saved;
	return done;
}

static bool remount(struct cbor op, int target)
{
	struct cbor item;
	bool ro;
	uint64_t size;
	if (!cbor_get_bool(op, "ro", false, &ro) || !cbor_get_uint(op, "size", INT64_MAX, 0, &size))
		return false;
	if (size) {
		int fs = (int)syscall(SYS_fspick, target, "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC);
		if (fs < 0 || number_option(fs, "size", "%llu", size) ||
		    syscall(SYS_fsconfig, fs, FSCONFIG_CMD_RECONFIGURE, NULL, NULL, 0))
			return false;
		close(fs);
	}
	if (!cbor_get(op, "ro", &item))
		return true;
	return !set_attributes(target, 0, ro ? MOUNT_ATTR_RDONLY : 0, ro ? 0 : MOUNT_ATTR_RDONLY);
}

static bool mount_tmpfs(struct cbor op, int target)
{
	uint64_t size, mode;
	if (!cbor_get_uint(op, "size", INT64_MAX, 0, &size) || !cbor_get_uint(op, "mode", 07777, 0755, &mode))
		return false;
	int mount = new_tmpfs(size, mode, 0);
	return attach(mount, target);
}

/* Creates the parents of `path`. */
static bool make_parents(char *path)
{
	if (place.image)
		return image_parents(path);
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		bool made = !mkdir(path, 0755) || errno == EEXIST || errno == EROFS;
		*slash = '/';
		if (!made)
			return false;
	}
	return true;
}

/* Creates the mount point: a directory, or a file if a file is to be bound or masked there. */
static bool make_place(struct cbor op, char *path)
{
	bool make, directory;
	struct stat st;
	if (!cbor_get_bool(op, "make", false, &make) || !cbor_get_bool(op, "dir", true, &directory))
		return false;
	if (!make || (!place.image && !lstat(path, &st)))
		return true;
	char *from = cbor_get_cstring(op, "from");
	if (from) {
		if (lstat(from, &st))
			return false;
		directory = S_ISDIR(st.st_mode);
		free(from);
	}
	if (!(place.image ? image_make_room(path, directory) : make_parents(path)))
		return false;
	if (place.image && !lstat(path, &st))
		return true;
	return directory ? !mkdir(path, 0755) : !mknod(path, S_IFREG | 0644, 0);
}

static bool make_link(struct cbor op, char *path)
{
	char *target = cbor_get_cstring(op, "target");
	bool room = place.image ? image_make_room(path, true) : make_parents(path);
	bool done = target && room && !symlink(target, path);
	free(target);
	return done;
}

static bool unmount(struct cbor op, const char *path)
{
	bool remove, optional;
	if (!cbor_get_bool(op, "remove", false, &remove) || !cbor_get_bool(op, "optional", false, &optional))
		return false;
	/* EINVAL: nothing is mounted there, because it could not be. */
	if (detach(path) && !(optional && errno == EINVAL))
		return false;
	return !remove || !rmdir(path) || !unlink(path);
}

static bool operate(struct cbor op, char *path)
{
	struct cbor kind;
	bool directory, done = false;
	errno = EINVAL;
	if (!cbor_get(op, "kind", &kind) || !cbor_get_bool(op, "dir", false, &directory))
		return false;
	if (cbor_is(kind, "umount"))
		return unmount(op, path);
	if (cbor_is(kind, "link"))
		return make_link(op, path);
	int target = make_place(op, path) ? open_place(path) : -1;
	if (target < 0)
		return false;
	if (cbor_is(kind, "tmpfs"))
		done = mount_tmpfs(op, target);
	else if (cbor_is(kind, "remount"))
		done = remount(op, target);
	else if (cbor_is(kind, "mask"))
		done = mount_mask(op, target, path, directory);
	else if (cbor_is(kind, "bind"))
		done = mount_bind(op, target);
	else if (cbor_is(kind, "overlay"))
		done = mount_overlay(op, target);
	else if (cbor_is(kind, "fuse"))
		done = mount_fuse(op, target, path);
	else
		errno = EINVAL;
	int saved = errno;
	close(target);
	errno = saved;
	return done;
}

/* Whether the mask is for a file that the host has seen: the host must know if that has gone. */
static bool of_a_file(struct cbor op)
{
	struct cbor inode;
	return cbor_get(op, "inode", &inode);
}

static bool is_overlay(struct cbor op)
{
	struct cbor kind;
	return cbor_get(op, "kind", &kind) && cbor_is(kind, "overlay");
}

static void do_mount(struct cbor op)
{
	bool optional;
	char *path = cbor_get_cstring(op, "path");
	if (!path || !cbor_get_bool(op, "optional", false, &optional))
		fail("mounts", path);
	if (!operate(op, path)) {
		bool other = errno == ELOOP || errno == EISDIR; /* something else than the host saw is there */
		bool gone = errno == ENOENT || errno == ENOTDIR || (other && of_a_file(op));
		/* An optional overlay is a convenience (a package cache) that not every kernel and file system can give. */
		if (!optional || !(gone || is_overlay(op)))
			fail("mounts", path);
		place.missed += of_a_file(op);
	}
	free(path);
}

static void make_dir(struct cbor entry)
{
	uint64_t n, mode;
	struct stat st;
	if (!cbor_array(entry, &n, &entry) || n != 2)
		errno = EINVAL, fail("dirs", NULL);
	char *path = cbor_cstring(entry);
	cbor_next(&entry);
	if (!path || !cbor_uint(entry, &mode) || mode > 07777)
		errno = EINVAL, fail("dirs", path);
	if (place.image && !image_make_room(path, true))
		fail("dirs", path);
	if (mkdir(path, (mode_t)mode)) {
		/* EROFS: the kernel may return this before it notices that the directory exists. */
		int saved = errno;
		if (stat(path, &st) || !S_ISDIR(st.st_mode))
			errno = saved, fail("dirs", path);
	} else if (chmod(path, (mode_t)mode)) {
		fail("dirs", path);
	}
	free(path);
}

static void write_file(struct cbor entry)
{
	uint64_t n, mode;
	const uint8_t *data;
	size_t size;
	if (!cbor_array(entry, &n, &entry) || n != 3)
		errno = EINVAL, fail("files", NULL);
	char *path = cbor_cstring(entry);
	cbor_next(&entry);
	struct cbor content = entry;
	cbor_next(&content);
	if (!path || !cbor_uint(entry, &mode) || mode > 07777 || !cbor_string(content, &data, &size))
		errno = EINVAL, fail("files", path);
	if (place.image && (!image_make_room(path, false) || (unlink(path) && errno != ENOENT)))
		fail("files", path);
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (fd < 0)
		fail("files", path);
	while (size) {
		ssize_t wrote = write(fd, data, size);
		if (wrote < 0)
			fail("files", path);
		data += wrote, size -= (size_t)wrote;
	}
	if (fchmod(fd, (mode_t)mode) || close(fd))
		fail("files", path);
	free(path);
}

static void each(struct cbor setup, const char *key, void (*do_one)(struct cbor))
{
	struct cbor item;
	uint64_t n;
	if (!cbor_get(setup, key, &item))
		return;
	if (!cbor_array(item, &n, &item))
		errno = EINVAL, fail(key, NULL);
	for (; n--; cbor_next(&item))
		do_one(item);
}

void build_filesystem(struct cbor setup)
{
	umask(0);
	take_image(setup);
	each(setup, "dirs", make_dir);
	each(setup, "files", write_file);
	each(setup, "mounts", do_mount);
	landlock_rules(setup); /* its paths are the last that are looked up */
	fuse_attach();
	drop_covers();
	umask(022);
}
