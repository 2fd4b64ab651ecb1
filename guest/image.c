/* An image at `/`: overlayfs of its files, which nobody changes, and of an empty layer in memory, which ends with us.
 *
 * The image is somebody else's: it may have a link where a directory of ours goes, even one to the staging place, where the
 * host's files are. So whatever is made in it is made by way of descriptors that follow no link, and what stands in the way
 * there is replaced, in the layer. Nothing is ever replaced in what the host shows. */
#define _GNU_SOURCE
#include "guest.h"
#include "mount.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define HERE "/.image" /* of the root that the launcher made, and gone with it */

static dev_t device; /* of the image's own directories */

/* A directory in the image for `name`, whatever was there. Returns a descriptor of it. */
static int own_directory(int parent, const char *name)
{
	int fd = openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	struct stat st;
	if (fd >= 0)
		return fd;
	if (errno == ENOTDIR || errno == ELOOP) {
		if (fstat(parent, &st) || st.st_dev != device)
			return errno = ELOOP, -1; /* what the host shows is not ours to replace */
		if (unlinkat(parent, name, 0))
			return -1;
	} else if (errno != ENOENT) {
		return -1;
	}
	if (mkdirat(parent, name, 0755) && errno != EEXIST)
		return -1;
	return openat(parent, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}

bool image_parents(char *path)
{
	int at = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);
	for (char *slash, *name = path + 1; at >= 0 && (slash = strchr(name, '/')); name = slash + 1) {
		*slash = 0;
		int below = *name ? own_directory(at, name) : dup(at);
		*slash = '/';
		int saved = errno;
		close(at);
		errno = saved;
		at = below;
	}
	if (at < 0)
		return false;
	close(at);
	return true;
}

/* Its parents are there, and are no links. */
bool image_make_room(char *path, bool directory)
{
	struct stat st, above;
	char *slash = strrchr(path, '/');
	if (!image_parents(path))
		return false;
	if (lstat(path, &st))
		return errno == ENOENT;
	if (!S_ISLNK(st.st_mode) && S_ISDIR(st.st_mode) == directory)
		return true;
	*slash = 0;
	bool ours = !lstat(*path ? path : "/", &above) && above.st_dev == device;
	*slash = '/';
	if (!ours || S_ISDIR(st.st_mode))
		return errno = ELOOP, false;
	return !unlink(path);
}

static bool move_into(const char *path, int root, const char *name)
{
	int mount = open(path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	int target = mount < 0 ? -1 : own_directory(root, name);
	/* Moved, not copied: what has been done to these mounts stays done, and there is no second way to them. */
	bool done = target >= 0 &&
		    !syscall(SYS_move_mount, mount, "", target, "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH);
	int saved = errno;
	close(mount), close(target);
	errno = saved;
	return done;
}

/* The layer in memory, with the directories that overlayfs wants. */
static bool make_layer(uint64_t size)
{
	int target = mkdir(HERE, 0755) ? -1 : open_place(HERE);
	bool done = target >= 0 && attach(new_tmpfs(size, 0755, 0), target);
	int saved = errno;
	close(target);
	errno = saved;
	return done && !mkdir(HERE "/upper", 0755) && !mkdir(HERE "/work", 0755) && !mkdir(HERE "/root", 0755);
}

/* Returns a descriptor of what the layers show together. */
static int mount_layers(struct cbor image)
{
	int target = open_place(HERE "/root");
	bool done = target >= 0 && mount_overlay(image, target);
	int saved = errno;
	close(target);
	errno = saved;
	return done ? open_place(HERE "/root") : -1;
}

void take_image(struct cbor setup)
{
	struct cbor image;
	struct stat st;
	uint64_t size;
	if (!cbor_get(setup, "image", &image))
		return;
	char *stage = cbor_get_cstring(image, "stage");
	errno = EINVAL;
	if (!stage || stage[0] != '/' || strchr(stage + 1, '/') || !cbor_get_uint(image, "size", INT64_MAX, 0, &size))
		fail("image", NULL);
	int root = make_layer(size) ? mount_layers(image) : -1;
	if (root < 0 || fstat(root, &st))
		fail("image", NULL);
	device = st.st_dev;
	/* An image's own entry of this name would stay when the staging place goes. */
	if (!fstatat(root, stage + 1, &st, AT_SYMLINK_NOFOLLOW))
		errno = EEXIST, fail("image", stage);
	if (!move_into("/proc", root, "proc") || !move_into("/dev", root, "dev") || !move_into(stage, root, stage + 1))
		fail("image", NULL);
	/* The old root ends up on top of the new one, and goes, with the layer's own place: the overlay holds on to it. */
	if (fchdir(root) || syscall(SYS_pivot_root, ".", ".") || detach(".") || chdir("/"))
		fail("image", "/");
	close(root);
	free(stage);
	place.image = true;
}
