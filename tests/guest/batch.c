/* guest/nft.c under the sanitizers: its batch is filled with as many attributes of the given size as are asked for, and must
 * either fit or end the set-up. Prints how much of the batch was used. */
#include "../../guest/nft.c"

#include <stdio.h>
#include <stdlib.h>

noreturn void fail(const char *step, const char *path)
{
	(void)path;
	printf("failed %s %d\n", step, errno);
	exit(0);
}

int main(int argc, char **argv)
{
	struct batch *b = calloc(1, sizeof *b); /* on the heap: a byte beyond it is seen */
	char *data = calloc(1, 1 << 20);
	if (argc != 3 || !b || !data)
		return 1;
	for (long n = atol(argv[1]); n > 0; n--)
		attribute(b, 1, data, (size_t)atol(argv[2]));
	printf("used %zu\n", b->size);
	free(data);
	free(b);
	return 0;
}
