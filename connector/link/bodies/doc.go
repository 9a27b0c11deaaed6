// Package bodies encodes the bodies of requests for a tunnel: as the difference to an earlier body of the same API
// key, compressed. An agent sends the whole conversation again with each prompt, and a little more.
//
// The header field [Field] describes an encoded body in JSON: its length, the number under which the connector keeps
// it, and perhaps its base: an earlier body that the connector keeps, with its number, length and CRC-32C.
// The body is the beginning of the base, then the bytes that were sent, then the end of the base. The bytes are sent
// as frames of zstd (RFC 8878), of at most 64 KiB before compression.
//
// Both ends keep bodies, and drop the least recently used ones. The gateway chooses the numbers, and refers to a body
// after the answer to its request has begun. The connector keeps a body that it has received whole. The two may still
// differ, as requests run in parallel and the gateway gives memory back to requests. A connector that does not keep
// exactly the base reports that before it reads or passes on anything, and the gateway sends the body whole.
//
// The gateway never uses the body of another key, even if it has the same bytes. Neither the time nor the size of a
// request therefore depends on the contents of other keys' prompts. Only their volume has an effect, because it
// displaces bodies.
package bodies
