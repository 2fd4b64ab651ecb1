/* The subset of CBOR that frames are made of (protocol.md, "Frames").
 *
 * Reading never allocates: a frame is checked once as a whole, after which a `struct cbor` is a
 * place inside it and every look-up walks bytes that are known to be well formed. */
#ifndef GUEST_CBOR_H
#define GUEST_CBOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define CBOR_DEPTH 8     /* containers inside one another, the outermost map included */
#define CBOR_KEYS 64     /* of one map: bounds the search for a key that is there twice */

struct cbor {
	const uint8_t *at, *end;
};

/* True when the bytes are exactly one map of the subset. */
bool cbor_is_map(const uint8_t *data, size_t size);

/* All of these return false, and leave their result alone, when the item is of another kind. */
bool cbor_get(struct cbor map, const char *key, struct cbor *value);
bool cbor_uint(struct cbor item, uint64_t *value);
bool cbor_bool(struct cbor item, bool *value);
bool cbor_string(struct cbor item, const uint8_t **data, size_t *size); /* bytes or text */
bool cbor_array(struct cbor item, uint64_t *count, struct cbor *first);
void cbor_next(struct cbor *item);
bool cbor_map(struct cbor item);
bool cbor_is(struct cbor item, const char *text);

/* Look up and convert in one go; a key that is absent gives the default, one of a wrong kind or out
 * of bounds gives false with errno EINVAL. */
bool cbor_get_uint(struct cbor map, const char *key, uint64_t most, uint64_t missing, uint64_t *value);
bool cbor_get_bool(struct cbor map, const char *key, bool missing, bool *value);

/* A fresh C string; NULL with errno EINVAL for another kind or a NUL inside, ENOENT when absent. */
char *cbor_cstring(struct cbor item);
char *cbor_get_cstring(struct cbor map, const char *key);

/* Writing: appends to a buffer that grows. After a failed allocation everything is ignored and
 * `failed` stays set, so that only the end has to be looked at. */
struct out {
	uint8_t *data;
	size_t size, room;
	bool failed;
};

void put_raw(struct out *out, const void *data, size_t size);
void put_map(struct out *out, uint64_t pairs);
void put_array(struct out *out, uint64_t items);
void put_uint(struct out *out, uint64_t value);
void put_int(struct out *out, int64_t value);
void put_bool(struct out *out, bool value);
void put_bytes(struct out *out, const void *data, size_t size);
void put_bytes_head(struct out *out, size_t size); /* the bytes themselves follow by `put_raw` */
void put_text(struct out *out, const char *text);
void put_key_uint(struct out *out, const char *key, uint64_t value);
void put_key_text(struct out *out, const char *key, const char *value);
void put_key_bool(struct out *out, const char *key, bool value);

#endif
