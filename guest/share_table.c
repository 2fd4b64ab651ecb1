/* The nodes of a template. A machine that is saved with files of the system in its memory goes on with them as a clone, so its next
 * server must know them by the same numbers. */
#define _GNU_SOURCE
#include "share.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Records with a NUL at the end: number, number of the directory, look-ups, inode, size, times of change in nanoseconds, name. */
#define RECORD "%" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " %" PRIu64 " "

static FILE *table;

static uint64_t nanoseconds(struct timespec time)
{
	return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static void save(struct node *node)
{
	struct stat st;
	const char *name;
	int directory = node->lookups && node->parent ? node_place(node, &name) : -1;
	if (directory < 0 || look_at(directory, name, &st))
		return;
	fprintf(table, RECORD, node_id(node), node_id(node->parent), node->lookups, (uint64_t)st.st_ino, (uint64_t)st.st_size,
		nanoseconds(st.st_mtim), nanoseconds(st.st_ctim));
	fputs(name, table);
	fputc(0, table);
}

bool table_save(int file)
{
	table = fdopen(file, "w");
	if (!table)
		return false;
	node_each(save);
	return !fclose(table);
}

static bool load(const char *record)
{
	uint64_t id, parent, lookups, inode, size, written, changed;
	int at = 0;
	if (sscanf(record, RECORD "%n", &id, &parent, &lookups, &inode, &size, &written, &changed, &at) != 7 || !at)
		return false;
	struct node *above = node_of(parent);
	struct stat st = {.st_ino = inode};
	int directory = above ? node_directory(above) : -1;
	/* One that is another file now, or none, keeps its place in the table: the engine has the kernel forget it. */
	if (directory < 0 || look_at(directory, record + at, &st))
		st = (struct stat){.st_ino = inode};
	return above && node_restore(id, above, record + at, lookups, &st);
}

/* Parents have smaller numbers than what is in them unless a number was used twice; so in several rounds, if need be. */
bool table_load(const char *path)
{
	FILE *from = fopen(path, "re");
	char *record = NULL, **later = NULL;
	size_t room = 0, waiting = 0;
	while (from && getdelim(&record, &room, 0, from) > 0)
		if (!load(record)) {
			char **grown = realloc(later, (waiting + 1) * sizeof *later);
			if (!grown || !(grown[waiting] = strdup(record)))
				return false;
			later = grown, waiting++;
		}
	for (size_t before = waiting + 1; waiting && waiting < before;) {
		before = waiting, waiting = 0;
		for (size_t i = 0; i < before; i++)
			if (!load(later[i]))
				later[waiting++] = later[i];
	}
	free(record);
	return from && !fclose(from) && !waiting;
}
