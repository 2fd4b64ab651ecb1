/* Furnishes the place: directories, files, then mounts, in the order given.
 *
 * No path here may have a symbolic link on it: the host gives them resolved, so a link has been put there since, by
 * someone who wants a mask to land elsewhere or a bind to show something else. */
#define _GNU_SOURCE
#include "guest.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/mount.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DETACH 2          /* MNT_DETACH and UMOUNT_NOFOLLOW: <sys/mount.h> and <linux/mount.h> do not mix */
#define NOFOLLOW 8
#define RECURSIVE 0x8000  /* AT_RECURSIVE */
#define PRIVATE (1 << 18) /* MS_PRIVATE */

static int open_place(const char *path)
{
	struct open_how how = {.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC, .resolve = RESOLVE_NO_SYMLINKS};
	return (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof how);
}

static int open_tree(int dir, const char *path, unsigned flags)
{
	return (int)syscall(SYS_open_tree, dir, path, flags | OPEN_TREE_CLOEXEC);
}

/* Private: what the host mounts later below something shown here would else appear here, too, with none of `set`. */
static int set_attributes(int mount, unsigned flags, uint64_t set, uint64_t clear)
{
	struct mount_attr attr = {.attr_set = set, .attr_clr = clear, .propagation = PRIVATE};
	return (int)syscall(SYS_mount_setattr, mount, "", flags | AT_EMPTY_PATH, &attr, sizeof attr);
}

/* Closes what it attaches: nothing that leads to a mount may outlive the set-up. */
static bool attach(int mount, int target)
{
	bool done = mount >= 0 &&
		    !syscall(SYS_move_mount, mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	int saved = errno;
	close(mount);
	errno = saved;
	return done;
}

static int option(int fs, const char *key, const char *value)
{
	return (int)syscall(SYS_fsconfig, fs, value ? FSCONFIG_SET_STRING : FSCONFIG_SET_FLAG, key, value, 0);
}

static int new_mount(int fs, unsigned attributes)
{
	if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
		return -1;
	return (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, attributes);
}

static int number_option(int fs, const char *key, const char *format, uint64_t value)
{
	char text[32];
	snprintf(text, sizeof text, format, (unsigned long long)value);
	return option(fs, key, text);
}

static int new_tmpfs(uint64_t size, uint64_t mode, unsigned attributes)
{
	int fs = (int)syscall(SYS_fsopen, "tmpfs", FSOPEN_CLOEXEC);
	int mount = -1;
	if (fs >= 0 && !number_option(fs, "mode", "%llo", mode) && (!size || !number_option(fs, "size", "%llu", size)))
		mount = new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | attributes);
	int saved = errno;
	close(fs);
	errno = saved;
	return mount;
}

/* Covers: an empty file and an empty directory that nobody may open, on a tmpfs of their own. Their owner is the
 * tenant's own user, who could change their mode, were they not mounted read-only.
 *
 * Before Linux 6.15 only a mount that is somewhere can be cloned, so the tmpfs is put on top of `/` until the place is
 * furnished. No path leads to it there: ours begin at the root that it lies on. */
static int covers = -1;

static bool make_covers(void)
{
	int tmpfs = new_tmpfs(4096, 0755, MOUNT_ATTR_NOEXEC);
	int root = open("/", O_PATH | O_CLOEXEC);
	covers = tmpfs < 0 ? -1 : openat(tmpfs, ".", O_PATH | O_CLOEXEC);
	bool made = covers >= 0 && root >= 0 && !mknodat(covers, "file", S_IFREG, 0) && !mkdirat(covers, "dir", 0) &&
		    attach(tmpfs, root);
	close(root);
	return made;
}

/* "." because no other name leads there. */
static void drop_covers(void)
{
	if (covers >= 0 && (fchdir(covers) || syscall(SYS_umount2, ".", DETACH) || chdir("/") || close(covers)))
		fail("mounts", "covers");
}

static bool mask(struct cbor op, int target, const char *path, bool directory)
{
	struct stat st;
	if (fstat(target, &st))
		return false;
	if (S_ISLNK(st.st_mode) || directory != S_ISDIR(st.st_mode)) {
		errno = S_ISLNK(st.st_mode) ? ELOOP : directory ? ENOTDIR : EISDIR;
		return false;
	}
	if (tripwire(op, target, path, directory))
		return true;
	if (covers < 0 && !make_covers())
		return false;
	int copy = open_tree(covers, directory ? "dir" : "file", OPEN_TREE_CLONE);
	return copy >= 0 && !set_attributes(copy, 0, MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOEXEC, 0) && attach(copy, target);
}

static bool bind_mount(struct cbor op, int target)
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

/* overlayfs splits `lowerdir` at colons and takes a backslash as an escape. */
static bool overlay_path(int fs, struct cbor op, const char *key, const char *name)
{
	char *path = cbor_get_cstring(op, key);
	char *escaped = path ? malloc(2 * strlen(path) + 1) : NULL, *to = escaped;
	if (!escaped)
		return false;
	for (char *from = path; *from; from++) {
		if (*from == ':' || *from == '\\')
			*to++ = '\\';
		*to++ = *from;
	}
	*to = 0;
	bool done = !option(fs, name, escaped);
	free(path), free(escaped);
	return done;
}

static bool make_layer(struct cbor op, const char *key)
{
	bool make;
	char *path = cbor_get_cstring(op, key);
	bool done = path && cbor_get_bool(op, "make", false, &make) && (!make || !mkdir(path, 0755) || errno == EEXIST);
	free(path);
	return done;
}

static bool overlay(struct cbor op, int target)
{
	if (!make_layer(op, "upper") || !make_layer(op, "work"))
		return false;
	int fs = (int)syscall(SYS_fsopen, "overlay", FSOPEN_CLOEXEC);
	/* userxattr: the only kind of whiteout and opaque mark a user namespace may write. */
	if (fs < 0 || option(fs, "userxattr", NULL) || !overlay_path(fs, op, "lower", "lowerdir") ||
	    !overlay_path(fs, op, "upper", "upperdir") || !overlay_path(fs, op, "work", "workdir"))
		return false;
	int mount = new_mount(fs, MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV);
	close(fs);
	return attach(mount, target);
}

static bool tmpfs(struct cbor op, int target)
{
	uint64_t size, mode;
	if (!cbor_get_uint(op, "size", INT64_MAX, 0, &size) || !cbor_get_uint(op, "mode", 07777, 0755, &mode))
		return false;
	int mount = new_tmpfs(size, mode, 0);
	return attach(mount, target);
}

/* The directories that lead to `path`. */
static bool make_parents(char *path)
{
	for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
		*slash = 0;
		bool made = !mkdir(path, 0755) || errno == EEXIST || errno == EROFS;
		*slash = '/';
		if (!made)
			return false;
	}
	return true;
}

/* Somewhere to mount: a directory, or a file when a file is to be bound or masked there. */
static bool make_place(struct cbor op, char *path)
{
	bool make, directory;
	struct stat st;
	if (!cbor_get_bool(op, "make", false, &make) || !cbor_get_bool(op, "dir", true, &directory))
		return false;
	if (!make || !lstat(path, &st))
		return true;
	char *from = cbor_get_cstring(op, "from");
	if (from) {
		if (lstat(from, &st))
			return false;
		directory = S_ISDIR(st.st_mode);
		free(from);
	}
	if (!make_parents(path))
		return false;
	return directory ? !mkdir(path, 0755) : !mknod(path, S_IFREG | 0644, 0);
}

static bool make_link(struct cbor op, char *path)
{
	char *target = cbor_get_cstring(op, "target");
	bool done = target && make_parents(path) && !symlink(target, path);
	free(target);
	return done;
}

static bool unmount(struct cbor op, const char *path)
{
	bool remove;
	if (!cbor_get_bool(op, "remove", false, &remove) || syscall(SYS_umount2, path, DETACH | NOFOLLOW))
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
		done = tmpfs(op, target);
	else if (cbor_is(kind, "remount"))
		done = remount(op, target);
	else if (cbor_is(kind, "mask"))
		done = mask(op, target, path, directory);
	else if (cbor_is(kind, "bind"))
		done = bind_mount(op, target);
	else if (cbor_is(kind, "overlay"))
		done = overlay(op, target);
	else if (cbor_is(kind, "fuse"))
		done = fuse(op, target);
	else
		errno = EINVAL;
	int saved = errno;
	close(target);
	errno = saved;
	return done;
}

static void do_mount(struct cbor op)
{
	bool optional;
	char *path = cbor_get_cstring(op, "path");
	if (!path || !cbor_get_bool(op, "optional", false, &optional))
		fail("mounts", path);
	if (!operate(op, path) && !(optional && (errno == ENOENT || errno == ENOTDIR)))
		fail("mounts", path);
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
	if (mkdir(path, (mode_t)mode)) {
		/* EROFS: the kernel may say so before it notices that the directory is there. */
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

void furnish(struct cbor setup)
{
	umask(0);
	each(setup, "dirs", make_dir);
	each(setup, "files", write_file);
	each(setup, "mounts", do_mount);
	drop_covers();
	umask(022);
}

/* The nodes in /dev are often the host's own, bound here. A tenant whose user is the host's root owns them: a mode he
 * changes is changed for everybody. On a read-only mount he cannot, and devices work all the same. The directory, too: it
 * would be a scratch place without a bound. Terminals are this place's own, and so is what the plan mounts here later. */
void protect_devices(void)
{
	int dev = open("/dev", O_PATH | O_CLOEXEC), pts = open("/dev/pts", O_PATH | O_CLOEXEC);
	if (dev < 0 || set_attributes(dev, RECURSIVE, MOUNT_ATTR_RDONLY, 0) ||
	    (pts >= 0 && set_attributes(pts, 0, 0, MOUNT_ATTR_RDONLY)))
		fail("dev", "/dev");
	close(dev), close(pts);
}

/* What /proc tells of the machine is the host root's, too, and has one mode for the host and every sandbox. A tenant who
 * is that user can change nothing in there, not even of his own processes. What we ourselves still have to write goes
 * through a copy of the mount, which is without the read-only ones in it. */
static void seal_proc(void)
{
	struct stat st;
	int proc = open("/proc", O_PATH | O_CLOEXEC);
	place.maps = open_tree(proc, "", OPEN_TREE_CLONE | AT_EMPTY_PATH);
	if (place.maps < 0 || stat("/proc/version", &st))
		fail("proc", "/proc");
	bool root = st.st_uid == geteuid();
	if (root && set_attributes(proc, 0, MOUNT_ATTR_RDONLY, 0))
		fail("proc", "/proc");
	/* The group of root's is worth having, other users' is theirs alone, and on directories the bit has its uses. */
	place.set_id = S_ISUID | (root ? S_ISGID : 0);
	close(proc);
}

/* bubblewrap and the container engines make these read-only; where one has not, we do. */
void protect_proc(void)
{
	static const char *const paths[] = {"/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs"};
	for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
		struct statvfs st;
		if (statvfs(paths[i], &st) ? errno == ENOENT : st.f_flag & ST_RDONLY)
			continue;
		int target = open(paths[i], O_PATH | O_CLOEXEC);
		int copy = open_tree(AT_FDCWD, paths[i], OPEN_TREE_CLONE | RECURSIVE);
		if (target < 0 || copy < 0 || set_attributes(copy, RECURSIVE, MOUNT_ATTR_RDONLY, 0) || !attach(copy, target))
			fail("proc", paths[i]);
		close(target);
	}
	seal_proc();
}
