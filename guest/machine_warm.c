/* What a template has in memory of the system's files: read once when it is made, and forgotten where it is not true any more. */
#define _GNU_SOURCE
#include "machine.h"
#include "machine_mount.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fuse.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define WARM "/warm" /* commands, a line each */
#define WARM_SECONDS 60

static noreturn void run_warm(char *line)
{
	char *words[16], *environment[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", NULL};
	size_t count = 0;
	for (char *word = strtok(line, " "); word && count < 15; word = strtok(NULL, " "))
		words[count++] = word;
	words[count] = NULL;
	int null = open("/dev/null", O_RDWR);
	for (int fd = 0; fd < 3; fd++)
		dup2(null, fd);
	alarm(WARM_SECONDS);
	environ = environment;
	if (!chroot(SYSTEM) && !chdir("/") && count)
		execvp(words[0], words);
	_exit(127);
}

/* What most commands will need is read once, now: clones then find programs, libraries and names in memory, which they share. */
void machine_warm_up(void)
{
	char line[512];
	FILE *list = fopen(WARM, "re");
	while (list && fgets(line, sizeof line, list)) {
		line[strcspn(line, "\n")] = 0;
		pid_t pid = fork();
		if (!pid)
			run_warm(line);
		while (pid > 0 && waitpid(pid, NULL, 0) < 0 && errno == EINTR)
			;
	}
	if (list)
		fclose(list);
}

/* The kernel looks it up again. */
static void forget_name(uint64_t parent, const char *name)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_entry_out entry;
		char name[256];
	} notice = {.head.error = FUSE_NOTIFY_INVAL_ENTRY, .entry = {.parent = parent, .namelen = (uint32_t)strlen(name)}};
	if (strlen(name) >= sizeof notice.name)
		errno = EINVAL, fail("stale", name);
	memcpy(notice.name, name, strlen(name) + 1);
	notice.head.len = (uint32_t)(sizeof notice.head + sizeof notice.entry + strlen(name) + 1);
	if (write(machine_system, &notice, notice.head.len) < 0 && errno != ENOENT && errno != ENOTDIR)
		fail("stale", name);
}

/* What it has of a file's content and attributes. */
static void forget_content(uint64_t number)
{
	struct {
		struct fuse_out_header head;
		struct fuse_notify_inval_inode_out inode;
	} notice = {{sizeof notice, FUSE_NOTIFY_INVAL_INODE, 0}, {.ino = number}};
	if (write(machine_system, &notice, sizeof notice) < 0 && errno != ENOENT)
		fail("stale", NULL);
}

/* Names of the system that lead elsewhere since the template was made. A number with no name: that file itself has changed. */
void machine_forget_stale(struct cbor machine)
{
	struct cbor item;
	uint64_t count, n, parent;
	if (!cbor_get(machine, "stale", &item) || !cbor_array(item, &count, &item))
		errno = EINVAL, fail("stale", NULL);
	for (; count--; cbor_next(&item)) {
		struct cbor entry;
		if (!cbor_array(item, &n, &entry) || n != 2 || !cbor_uint(entry, &parent))
			errno = EINVAL, fail("stale", NULL);
		cbor_next(&entry);
		char *name = cbor_cstring(entry);
		if (!name)
			errno = EINVAL, fail("stale", name);
		if (*name)
			forget_name(parent, name);
		else
			forget_content(parent);
		free(name);
	}
}

/* What is no directory of the system's belongs to the room in which the template is made: clones have another. Of /etc
 * only the list of libraries is ever shown (show_system), which is the host's and which every program opens. */
void machine_forget_the_rest(void)
{
	static const char *const of_the_system[] = {"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "etc"};
	DIR *entries = opendir(SYSTEM);
	for (struct dirent *one; entries && (one = readdir(entries));) {
		bool keep = !strcmp(one->d_name, ".") || !strcmp(one->d_name, "..");
		for (size_t i = 0; i < sizeof of_the_system / sizeof *of_the_system && one->d_type == DT_DIR; i++)
			keep |= !strcmp(one->d_name, of_the_system[i]);
		if (!keep)
			forget_name(FUSE_ROOT_ID, one->d_name);
	}
	if (entries)
		closedir(entries);
}
