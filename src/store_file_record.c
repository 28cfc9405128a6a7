/* SPDX-License-Identifier: MIT */
/* store_file_record.c - a page to a record and back; see store_file_int.h. */
#include <xxhash.h>

#include "store_file_int.h"

struct plain_tag {
	u64 sum, seq;
};
_Static_assert(sizeof(struct plain_tag) == TAG_SIZE, "tag of a plain record");

static u64 plain_sum(const void *page, u64 slot, u64 seq)
{
	return XXH3_64bits_withSeed(page, PAGE_SIZE, seq ^ slot * 0x9e3779b97f4a7c15ULL);
}

/* 96 bits: the sequence, which holds the number of the file as well. Every file has its own key. */
struct nonce {
	u8 bytes[crypto_aead_aes256gcm_NPUBBYTES];
};
_Static_assert(crypto_aead_aes256gcm_NPUBBYTES == crypto_aead_chacha20poly1305_ietf_NPUBBYTES,
	       "both ciphers take the same nonce");

static struct nonce make_nonce(u64 seq)
{
	struct nonce n = { { 0 } };

	memcpy(n.bytes, &seq, sizeof(seq));
	return n;
}

void record_encode(struct file_store *fs, struct store_fd *f, u64 slot, u64 seq, const void *page,
		   u8 *record)
{
	const u8 *ad = (const u8 *)&slot;
	struct nonce n;

	if (!fs->opt.encrypt) {
		struct plain_tag tag = { plain_sum(page, slot, seq), seq };

		memcpy(record, page, PAGE_SIZE);
		memcpy(record + PAGE_SIZE, &tag, sizeof(tag));
		return;
	}
	n = make_nonce(seq);
	if (fs->aes)
		crypto_aead_aes256gcm_encrypt_detached_afternm(record, record + PAGE_SIZE, NULL,
							       page, PAGE_SIZE, ad, sizeof(slot),
							       NULL, n.bytes, &f->aes);
	else
		crypto_aead_chacha20poly1305_ietf_encrypt_detached(record, record + PAGE_SIZE, NULL,
								   page, PAGE_SIZE, ad,
								   sizeof(slot), NULL, n.bytes,
								   f->key);
}

int record_decode(struct file_store *fs, struct store_fd *f, u64 slot, u64 seq, const u8 *record,
		  void *page)
{
	const u8 *ad = (const u8 *)&slot;
	struct nonce n;
	int bad;

	if (!fs->opt.encrypt) {
		struct plain_tag tag;

		memcpy(&tag, record + PAGE_SIZE, sizeof(tag));
		if (tag.seq != seq || tag.sum != plain_sum(record, slot, seq))
			return -EIO;
		memcpy(page, record, PAGE_SIZE);
		return 0;
	}
	n = make_nonce(seq);
	if (fs->aes)
		bad = crypto_aead_aes256gcm_decrypt_detached_afternm(page, NULL, record, PAGE_SIZE,
								     record + PAGE_SIZE, ad,
								     sizeof(slot), n.bytes, &f->aes);
	else
		bad = crypto_aead_chacha20poly1305_ietf_decrypt_detached(page, NULL, record,
									 PAGE_SIZE,
									 record + PAGE_SIZE, ad,
									 sizeof(slot), n.bytes,
									 f->key);
	return bad ? -EIO : 0;
}
