/* The launcher: a small program of the host's that runs one command in a sandbox that stands already, as if the command
 * were its child. What it says and hears is in protocol.md beside it. */
#ifndef LAUNCHER_H
#define LAUNCHER_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#define OUR_ERROR 125 /* no status of the command's: the sandbox could not be reached, or has ended */

_Noreturn void give_up(const char *what);

/* note.c: where the command runs. A parent's end, seen by the descriptor `parent`, ends the waiting. */
const char *follow(const char *note, const char *socket, int parent);

/* request.c: what is asked of the server, and its answers. */
struct streams {
	int in, out, err;   /* our ends of the command's pipes, -1 where there is none; with a terminal `out` is both */
	bool terminal;
};

struct answer {
	char kind; /* 'S' started, 'F' never ran, 'X' exited, 'K' was killed */
	int value; /* F, X: a status; K: a signal */
};

int reach(const char *path);
void ask(int server, const char *label, char **argv, struct streams *streams);
bool hear(int server, struct answer *answer, int fds[3], int *count);
void tell_signal(int server, int number);

/* relay.c */
struct flow {
	int from, to;
	size_t size, sent;
	char data[65536];
	bool over; /* no more comes, or nobody takes it */
};

bool flow_wants(const struct flow *flow);   /* to read; else, unless it is over, to write */
void flow_move(struct flow *flow);          /* when poll says so */
bool flow_more(struct flow *flow);          /* something is there to be written, of what has come already */

#endif
