/* The guest's own reader of frames, alone, so that it can be fed anything under the sanitizers.
 *
 * In: u32 length and that many bytes of a stream, again and again. Out, for each: every frame the reader found, encoded
 * anew by the guest's own writer (u32 length, bytes), then u32 0 when the stream ended between frames, u32 ~0 when it
 * was broken. */
#define _GNU_SOURCE
#include "../../guest/frame.h"

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static void again(struct cbor item, struct out *out)
{
	uint64_t n;
	bool yes;
	const uint8_t *data;
	size_t size;
	struct cbor first;
	if (cbor_uint(item, &n)) {
		put_uint(out, n);
	} else if (cbor_bool(item, &yes)) {
		put_bool(out, yes);
	} else if (cbor_array(item, &n, &first)) {
		put_array(out, n);
		for (; n--; cbor_next(&first))
			again(first, out);
	} else if (!cbor_map(item) && cbor_string(item, &data, &size) && *item.at >> 5 == 2) {
		put_bytes(out, data, size);
	} else { /* text, negative numbers, null, maps: as they stand, which also proves where they end */
		struct cbor end = item;
		cbor_next(&end);
		put_raw(out, item.at, (size_t)(end.at - item.at));
	}
}

static void whole(struct cbor frame, struct out *out)
{
	struct cbor value;
	uint64_t n;
	char *s;
	/* Every look-up the guest is made of, on hostile bytes. */
	cbor_get_uint(frame, "n", 100, 5, &n);
	if (cbor_get(frame, "s", &value) && (s = cbor_cstring(value)))
		free(s);
	if (cbor_get(frame, "v", &value)) {
		put_map(out, 1);
		put_text(out, "v");
		again(value, out);
	} else {
		again(frame, out);
	}
}

static bool get(void *to, size_t size)
{
	for (size_t got = 0; got < size;) {
		ssize_t n = read(0, (char *)to + got, size - got);
		if (n <= 0)
			return false;
		got += (size_t)n;
	}
	return true;
}

static void put(const void *from, size_t size)
{
	if (write(1, from, size) != (ssize_t)size)
		exit(1);
}

int main(void)
{
	uint32_t size;
	while (get(&size, 4)) {
		uint8_t *data = malloc(size + 1);
		int file = memfd_create("stream", 0);
		if (!data || !get(data, size) || write(file, data, size) != (ssize_t)size || lseek(file, 0, SEEK_SET))
			return 1;
		free(data);
		struct channel ch;
		struct cbor frame;
		channel_open(&ch, file, false);
		int got;
		while ((got = channel_read(&ch, &frame)) > 0) {
			struct out out = {0};
			whole(frame, &out);
			put(&(uint32_t){(uint32_t)out.size}, 4);
			put(out.data, out.size);
			free(out.data);
			channel_done(&ch);
		}
		put(&(uint32_t){ch.got ? ~0u : 0}, 4);
		channel_close(&ch);
	}
	return 0;
}
