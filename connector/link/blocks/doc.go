// Package blocks encodes the bodies of requests for a tunnel: compressed, and without the
// blocks that the connector already has. An [Encoder] and [Known] are the gateway's end,
// a [Decoder] and a [Store] the connector's.
//
// # Format
//
// An encoded body is a sequence of pieces. The header field [Field] has the length of the
// decoded body. A piece is three lengths of four bytes each, big endian, its records and
// its data:
//
//	length of the records │ of the data │ of the decoded data │ records │ data
//
// The data is a frame of zstd (RFC 8878), or plain if both of its lengths are equal. The
// records say what to append to the body. Each begins with an unsigned varint v. If v is
// even, v/2 is the id of a block that the connector has. If v is odd, v/2 is the length of
// a literal: the next bytes of the data. Another varint follows, the id under which the
// connector keeps them as a block, 0 for none.
//
// A piece has at most [pieceBytes] of decoded data, and is decoded alone. Encoders and
// decoders therefore keep no state between pieces, and a slow tunnel takes no memory for one.
//
// # Blocks
//
// Bodies are divided by their content, so that the blocks before and after an insertion stay
// the same. Each tunnel has its own ids, which the gateway assigns. The connector keeps the blocks
// of a tunnel within the bytes of its hello, and drops the least recently used ones. The
// gateway counts in the same way. It refers to a block only after the answer to the request that
// contained it has begun. The two ends can still differ, as requests run in parallel. A reference to
// an unknown block is [ErrUnknownBlock]. The gateway then sends the request again without
// references.
//
// # Privacy
//
// The gateway finds a block by a hash of its bytes and the API key of the request, under a
// random key of the tunnel. A request thus never refers to a block of another API key, even
// if it has the same bytes. Neither the time nor the size of a request therefore depends on
// the contents of other keys' prompts. Only their volume has an effect, because it evicts
// blocks.
package blocks
