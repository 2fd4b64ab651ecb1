#include "cbor.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum major { UINT, NEGATIVE, BYTES, TEXT, ARRAY, MAP, TAG, SIMPLE };
enum simple { FALSE = 20, TRUE = 21, NOTHING = 22 };

/* The end of a long array in the frame at hand: whoever looks for a key passes by a command's variables again and again. */
static struct {
	const uint8_t *at, *end;
} passed;

/* One head: three bits of kind, then a number in its shortest form. */
static bool head(struct cbor *c, enum major *major, uint64_t *value)
{
	if (c->at >= c->end)
		return false;
	uint8_t first = *c->at++;
	unsigned info = first & 31;
	*major = (enum major)(first >> 5);
	if (info < 24) {
		*value = info;
		return true;
	}
	if (info > 27) /* reserved, or of indefinite length */
		return false;
	size_t width = (size_t)1 << (info - 24);
	if ((size_t)(c->end - c->at) < width)
		return false;
	uint64_t number = 0;
	for (size_t i = 0; i < width; i++)
		number = number << 8 | *c->at++;
	/* One value, one spelling: two readers can never differ about what a frame says. */
	static const uint64_t least[] = {24, 0x100, 0x10000, 0x100000000};
	if (number < least[info - 24])
		return false;
	*value = number;
	return true;
}

static bool is_utf8(const uint8_t *s, size_t n)
{
	while (n) {
		size_t more = s[0] < 0x80 ? 0 : (s[0] >> 5) == 6 ? 1 : (s[0] >> 4) == 14 ? 2 : (s[0] >> 3) == 30 ? 3 : 4;
		if (more == 4 || more >= n)
			return false;
		uint32_t point = more ? s[0] & (0x3fu >> more) : s[0];
		for (size_t i = 1; i <= more; i++) {
			if ((s[i] & 0xc0) != 0x80)
				return false;
			point = point << 6 | (s[i] & 0x3f);
		}
		static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
		if (point < least[more] || point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
			return false;
		s += more + 1, n -= more + 1;
	}
	return true;
}

static bool text(struct cbor *c, const uint8_t **data, size_t *size)
{
	enum major major;
	uint64_t n;
	if (!head(c, &major, &n) || major != TEXT || n > (uint64_t)(c->end - c->at) || !is_utf8(c->at, n))
		return false;
	*data = c->at, *size = n;
	c->at += n;
	return true;
}

static bool check(struct cbor *c, unsigned depth);

static bool check_map(struct cbor *c, uint64_t pairs, unsigned depth)
{
	struct { const uint8_t *data; size_t size; } keys[CBOR_KEYS];
	if (pairs > CBOR_KEYS)
		return false;
	for (uint64_t i = 0; i < pairs; i++) {
		if (!text(c, &keys[i].data, &keys[i].size))
			return false;
		for (uint64_t j = 0; j < i; j++)
			if (keys[j].size == keys[i].size && !memcmp(keys[j].data, keys[i].data, keys[i].size))
				return false;
		if (!check(c, depth))
			return false;
	}
	return true;
}

/* Walks over one item, judging it. `depth`: containers that may still open. */
static bool check(struct cbor *c, unsigned depth)
{
	struct cbor start = *c;
	enum major major;
	uint64_t n;
	const uint8_t *data;
	size_t size;
	if (!head(c, &major, &n))
		return false;
	uint64_t left = (uint64_t)(c->end - c->at);
	switch (major) {
	case UINT:
		return true;
	case NEGATIVE:
		return n <= INT64_MAX;
	case BYTES:
		if (n > left)
			return false;
		c->at += n;
		return true;
	case TEXT:
		*c = start;
		return text(c, &data, &size);
	case ARRAY:
		if (!depth || n > left) /* an item takes a byte at least */
			return false;
		while (n--)
			if (!check(c, depth - 1))
				return false;
		return true;
	case MAP:
		return depth && check_map(c, n, depth - 1);
	case SIMPLE:
		return start.at[0] == (SIMPLE << 5 | n) && n >= FALSE && n <= NOTHING;
	default:
		return false;
	}
}

bool cbor_is_map(const uint8_t *data, size_t size)
{
	struct cbor c = {data, data + size};
	passed.at = NULL; /* of the frame before, which may have stood in the same place */
	return size && data[0] >> 5 == MAP && check(&c, CBOR_DEPTH) && c.at == c.end;
}

static bool expect(struct cbor *item, enum major wanted, uint64_t *n)
{
	enum major major;
	return head(item, &major, n) && major == wanted;
}

/* Past one item of a frame that was checked as a whole: only how long it is matters now. Within bounds all the same. */
static bool skip(struct cbor *c, unsigned depth)
{
	enum major major;
	uint64_t n;
	const uint8_t *start = c->at;
	if (start == passed.at && passed.end <= c->end) {
		c->at = passed.end;
		return true;
	}
	if (!head(c, &major, &n))
		return false;
	if (major == BYTES || major == TEXT) {
		bool whole = n <= (uint64_t)(c->end - c->at);
		c->at = whole ? c->at + n : c->end;
		return whole;
	}
	if (major != ARRAY && major != MAP)
		return true;
	for (uint64_t left = major == MAP ? 2 * n : n; left--;)
		if (!depth || !skip(c, depth - 1))
			return false;
	if (n > 8 && major == ARRAY)
		passed.at = start, passed.end = c->at;
	return true;
}

void cbor_next(struct cbor *item)
{
	skip(item, CBOR_DEPTH);
}

bool cbor_get(struct cbor map, const char *key, struct cbor *value)
{
	uint64_t pairs;
	if (!expect(&map, MAP, &pairs))
		return false;
	while (pairs--) {
		bool found = cbor_is(map, key);
		cbor_next(&map);
		if (found) {
			*value = map;
			return true;
		}
		cbor_next(&map);
	}
	return false;
}

bool cbor_uint(struct cbor item, uint64_t *value)
{
	uint64_t n;
	if (!expect(&item, UINT, &n))
		return false;
	*value = n;
	return true;
}

bool cbor_bool(struct cbor item, bool *value)
{
	uint64_t n;
	if (!expect(&item, SIMPLE, &n) || n == NOTHING)
		return false;
	*value = n == TRUE;
	return true;
}

bool cbor_string(struct cbor item, const uint8_t **data, size_t *size)
{
	enum major major;
	uint64_t n;
	if (!head(&item, &major, &n) || (major != BYTES && major != TEXT))
		return false;
	*data = item.at, *size = n;
	return true;
}

bool cbor_array(struct cbor item, uint64_t *count, struct cbor *first)
{
	uint64_t n;
	if (!expect(&item, ARRAY, &n))
		return false;
	*count = n, *first = item;
	return true;
}

bool cbor_map(struct cbor item)
{
	uint64_t n;
	return expect(&item, MAP, &n);
}

bool cbor_is(struct cbor item, const char *wanted)
{
	const uint8_t *data;
	size_t size;
	return cbor_string(item, &data, &size) && size == strlen(wanted) && !memcmp(data, wanted, size);
}

bool cbor_get_uint(struct cbor map, const char *key, uint64_t most, uint64_t missing, uint64_t *value)
{
	struct cbor item;
	*value = missing;
	if (!cbor_get(map, key, &item))
		return true;
	if (cbor_uint(item, value) && *value <= most)
		return true;
	errno = EINVAL;
	return false;
}

bool cbor_get_bool(struct cbor map, const char *key, bool missing, bool *value)
{
	struct cbor item;
	*value = missing;
	if (!cbor_get(map, key, &item) || cbor_bool(item, value))
		return true;
	errno = EINVAL;
	return false;
}

char *cbor_cstring(struct cbor item)
{
	const uint8_t *data;
	size_t size;
	if (!cbor_string(item, &data, &size) || memchr(data, 0, size)) {
		errno = EINVAL;
		return NULL;
	}
	char *copy = malloc(size + 1);
	if (copy) {
		memcpy(copy, data, size);
		copy[size] = 0;
	}
	return copy;
}

char *cbor_get_cstring(struct cbor map, const char *key)
{
	struct cbor item;
	if (!cbor_get(map, key, &item)) {
		errno = EINVAL;
		return NULL;
	}
	return cbor_cstring(item);
}

void put_raw(struct out *out, const void *data, size_t size)
{
	if (out->failed)
		return;
	if (out->room - out->size < size) {
		size_t room = (out->size + size) * 2 + 64;
		uint8_t *grown = realloc(out->data, room);
		if (!grown) {
			out->failed = true;
			return;
		}
		out->data = grown, out->room = room;
	}
	if (size)
		memcpy(out->data + out->size, data, size);
	out->size += size;
}

static void put_head(struct out *out, enum major major, uint64_t n)
{
	uint8_t bytes[9];
	unsigned info = n < 24 ? (unsigned)n : n < 0x100 ? 24 : n < 0x10000 ? 25 : n < 0x100000000 ? 26 : 27;
	size_t width = info < 24 ? 0 : (size_t)1 << (info - 24);
	bytes[0] = (uint8_t)(major << 5 | info);
	for (size_t i = 0; i < width; i++)
		bytes[1 + i] = (uint8_t)(n >> 8 * (width - 1 - i));
	put_raw(out, bytes, 1 + width);
}

void put_map(struct out *out, uint64_t pairs) { put_head(out, MAP, pairs); }
void put_array(struct out *out, uint64_t items) { put_head(out, ARRAY, items); }
void put_uint(struct out *out, uint64_t value) { put_head(out, UINT, value); }
void put_bool(struct out *out, bool value) { put_head(out, SIMPLE, value ? TRUE : FALSE); }

void put_int(struct out *out, int64_t value)
{
	if (value < 0)
		put_head(out, NEGATIVE, (uint64_t)(-1 - value));
	else
		put_uint(out, (uint64_t)value);
}

void put_bytes_head(struct out *out, size_t size) { put_head(out, BYTES, size); }

void put_bytes(struct out *out, const void *data, size_t size)
{
	put_bytes_head(out, size);
	put_raw(out, data, size);
}

void put_text(struct out *out, const char *s)
{
	put_head(out, TEXT, strlen(s));
	put_raw(out, s, strlen(s));
}

void put_key_uint(struct out *out, const char *key, uint64_t value)
{
	put_text(out, key);
	put_uint(out, value);
}

void put_key_text(struct out *out, const char *key, const char *value)
{
	put_text(out, key);
	put_text(out, value);
}

void put_key_bool(struct out *out, const char *key, bool value)
{
	put_text(out, key);
	put_bool(out, value);
}
