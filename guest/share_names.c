/* Names and attributes of the shared files: what is where, and for how long the machine's kernel may remember it. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#define PROC_MAGIC 0x9fa0
#define SYSFS_MAGIC 0x62656572
#define FUSE_MAGIC 0x65735546
#define SOON_NS 100000000u   /* what the host may change unseen */
#define LONG 3600            /* seconds; what is fixed, or watched */
#define ASKED_MOST 2         /* names of a directory that are looked up until the rest is thought to be wanted, too */
#define MISSING 10           /* …and that there is nothing: should watching fail, nobody could tell the kernel which names those were */

static char **fixed_paths;

void names_begin(char **fixed, bool system)
{
	fixed_paths = fixed;
	node_root()->fixed = system;
}

/* One file system inside stands for several outside: their numbers must not meet. */
static dev_t seen[256];
static size_t nseen;

#define DEVICE 0xffffffffu
#define MOUNT_ID 0x1000u /* STATX_MNT_ID and its place, of Linux 5.8, which the C library does not know */
#define MOUNT_ID_AT 0x90

/* As fstatat(), without following a link. In its upper bits `st_dev` has the number of the mount: what the room shows twice, once to be
 * written and once only read, is two files to us. */
int look_at(int directory, const char *name, struct stat *st)
{
	struct statx x;
	if (statx(directory, name, AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH, STATX_BASIC_STATS | MOUNT_ID, &x))
		return -1;
	uint64_t mount = 0;
	if (x.stx_mask & MOUNT_ID)
		memcpy(&mount, (char *)&x + MOUNT_ID_AT, sizeof mount);
	*st = (struct stat){
		.st_dev = (makedev(x.stx_dev_major, x.stx_dev_minor) & DEVICE) | mount << 32, .st_ino = x.stx_ino, .st_mode = x.stx_mode,
		.st_nlink = x.stx_nlink, .st_uid = x.stx_uid, .st_gid = x.stx_gid, .st_rdev = makedev(x.stx_rdev_major, x.stx_rdev_minor),
		.st_size = (off_t)x.stx_size, .st_blksize = x.stx_blksize, .st_blocks = (blkcnt_t)x.stx_blocks,
		.st_atim = {x.stx_atime.tv_sec, x.stx_atime.tv_nsec}, .st_mtim = {x.stx_mtime.tv_sec, x.stx_mtime.tv_nsec},
		.st_ctim = {x.stx_ctime.tv_sec, x.stx_ctime.tv_nsec}};
	return 0;
}

int look_into(int fd, struct stat *st)
{
	return look_at(fd, "", st);
}

unsigned device_number(dev_t device)
{
	size_t i;
	device &= DEVICE;
	for (i = 0; i < nseen && seen[i] != device; i++)
		;
	if (i == nseen && nseen < 256)
		seen[nseen++] = device;
	return (unsigned)i;
}

/* Those before are somebody else's, whose files have the same kernel. */
void devices_from(unsigned number)
{
	for (nseen = 0; nseen < number && nseen < 256; nseen++)
		seen[nseen] = (dev_t)-1;
}

/* A clone's files keep the numbers that programs have seen, where they can. */
void device_again(dev_t device, unsigned number)
{
	device &= DEVICE;
	for (size_t i = 0; i < nseen; i++)
		if (seen[i] == device)
			return;
	for (; nseen <= number && nseen < 256; nseen++)
		seen[nseen] = (dev_t)-1;
	if (number < 256 && seen[number] == (dev_t)-1)
		seen[number] = device;
}

static uint64_t inode_number(const struct stat *st)
{
	return st->st_ino ^ (uint64_t)device_number(st->st_dev) << 52;
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

/* Whether every change of `node` itself is seen. A directory tells of its own, a file is told of by its directory, but
 * for changes that are made by another name of it. */
static bool is_known(const struct node *node)
{
	return node->fixed || is_watched(node) || (node->file && node->parent && is_watched(node->parent) && !node->linked);
}

static void set_validity(struct fuse_entry_out *out, const struct node *parent, const struct node *node)
{
	bool known = is_known(node), name_known = node->fixed || (is_watched(parent) && !node->linked);
	out->entry_valid = name_known ? LONG : 0, out->entry_valid_nsec = name_known || node->linked ? 0 : SOON_NS;
	out->attr_valid = known ? LONG : 0, out->attr_valid_nsec = known ? 0 : SOON_NS;
	if (node->wired) /* it may be lifted at any moment, and no watch tells */
		out->entry_valid = out->attr_valid = out->entry_valid_nsec = out->attr_valid_nsec = 0;
}

/* What the room's guest has put over a blocked file answers each attempt with a refusal, and tells the owner (tripwire.c). It must hear
 * of it: by its mode (000) the machine's kernel would refuse by itself. */
static void show_tripwire(int directory, const char *name, struct node *node, struct stat *st)
{
	struct statfs fs;
	node->wired = false;
	if (st->st_mode & 0777 || !(S_ISREG(st->st_mode) || S_ISDIR(st->st_mode)))
		return;
	int fd = openat(directory, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
	node->wired = fd >= 0 && !fstatfs(fd, &fs) && fs.f_type == FUSE_MAGIC;
	if (fd >= 0)
		close(fd);
	if (node->wired)
		st->st_mode |= S_ISDIR(st->st_mode) ? 0777 : 0666;
}

const char *node_path(const struct node *node, const char *name, char *buffer, size_t size)
{
	size_t at = size - 1;
	buffer[at] = 0;
	if (!name && node != node_root())
		name = node->name, node = node->parent;
	for (; name && node; name = node->name, node = node->parent) {
		size_t length = strlen(name);
		if (length + 1 > at)
			return NULL;
		at -= length + 1;
		buffer[at] = '/';
		memcpy(buffer + at + 1, name, length);
		if (node == node_root())
			break;
	}
	return node == node_root() ? buffer + at : NULL;
}

/* Whether it is what nothing changes. */
static bool is_fixed(const struct node *parent, const char *name)
{
	char buffer[4096];
	const char *path = node_path(parent, name, buffer, sizeof buffer);
	if (!path)
		return false;
	for (char **one = fixed_paths; *one; one++)
		if (!strcmp(*one, path))
			return true;
	return false;
}

/* What the kernel makes up is no file of the host's, and a place for devices no place for files: the machine has its own of both,
 * and these would show this process, or a device that is QEMU's. */
bool is_for_sharing(const struct statfs *fs)
{
	return fs->f_type != PROC_MAGIC && fs->f_type != SYSFS_MAGIC && fs->f_flags & ST_NODEV;
}

bool is_of_qemu(const char *name)
{
	return !strcmp(name, ".machine") || !strcmp(name, ".machine-system") || !strcmp(name, ".machine-run");
}

static bool is_shared(int directory, const char *name, const struct stat *st, const struct node *parent)
{
	struct statfs fs;
	if (parent == node_root() && is_of_qemu(name))
		return false;
	if (!S_ISDIR(st->st_mode) || st->st_dev == parent->device)
		return true;
	int fd = openat(directory, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	bool shared = fd < 0 || (!fstatfs(fd, &fs) && is_for_sharing(&fs));
	if (fd >= 0)
		close(fd);
	return shared;
}

bool good_name(const char *name)
{
	return *name && strlen(name) < 256 && !strchr(name, '/') && strcmp(name, ".") && strcmp(name, "..");
}

bool enter(struct node *parent, const char *name, struct fuse_entry_out *out)
{
	struct stat st;
	if (provided_entry(parent, name, out)) {
		errno = ENOENT;
		return out->nodeid; /* 0: the system's server, which knows none */
	}
	int directory = node_directory(parent);
	if (directory < 0)
		return false;
	watch_directory(parent, directory); /* first: what changes from here on is seen */
	return !look_at(directory, name, &st) && enter_found(parent, directory, name, st, out);
}

bool enter_found(struct node *parent, int directory, const char *name, struct stat st, struct fuse_entry_out *out)
{
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
	if (!node->fixed && !node->closed)
		show_tripwire(directory, name, node, &st);
	node_told(node, &st);
	*out = (struct fuse_entry_out){.nodeid = node_id(node), .generation = 1, .attr = attributes(&st)};
	set_validity(out, parent, node);
	return true;
}

void answer_entry(struct node *parent, const char *name)
{
	struct fuse_entry_out out;
	if (enter(parent, name, &out))
		answer(0, &out, sizeof out);
	else
		failed();
}

void lookup(struct node *parent, const char *name)
{
	struct fuse_entry_out out;
	if (enter(parent, name, &out)) {
		answer(0, &out, sizeof out);
		if (!parent->fixed && is_watched(parent) && parent->asked < ASKED_MOST && ++parent->asked == ASKED_MOST)
			notify_list(parent);
	} else if (errno == ENOENT) {
		bool known = parent->fixed || is_watched(parent);
		struct fuse_entry_out none = {.entry_valid = parent->fixed ? LONG : known ? MISSING : 0,
					      .entry_valid_nsec = known ? 0 : SOON_NS};
		parent->missing = true;
		answer(0, &none, sizeof none); /* node 0: that there is nothing may be remembered, too */
	} else {
		failed();
	}
}

static bool look(struct node *node, struct stat *st)
{
	const char *name;
	if (node == node_root())
		return !look_into(node_directory(node), st);
	int directory = node_place(node, &name);
	if (directory >= 0 && !look_at(directory, name, st) && st->st_dev == node->device &&
	    st->st_ino == node->inode)
		return true;
	if (node->open >= 0)
		return !look_into(node->open, st);
	errno = ENOENT;
	return false;
}

void answer_attributes(struct node *node)
{
	struct stat st;
	/* A command's directory is asked for again and again, though nobody may ever look into it. */
	int directory = node->file ? -1 : node_directory(node);
	if (directory >= 0)
		watch_directory(node, directory); /* first: what changes from here on is seen */
	if (!look(node, &st)) {
		failed();
		return;
	}
	if (node->wired)
		st.st_mode |= S_ISDIR(st.st_mode) ? 0777 : 0666;
	node_told(node, &st);
	bool known = is_known(node) && !node->wired;
	struct fuse_attr_out out = {.attr_valid = known ? LONG : 0, .attr_valid_nsec = known ? 0 : SOON_NS,
				    .attr = attributes(&st)};
	answer(0, &out, sizeof out);
}

void read_link(struct node *node)
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

void space(struct node *node)
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
