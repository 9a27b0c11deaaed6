// Package cut cuts bytes into pieces, as a network may, for tests of parsers of streams.
package cut

import "math/rand/v2"

// Bytewise cuts p into single bytes.
func Bytewise(p []byte) (pieces [][]byte) {
	for i := range p {
		pieces = append(pieces, p[i:i+1])
	}
	return pieces
}

// Anywhere cuts p into pieces, which depend on seed alone.
func Anywhere(p []byte, seed uint64) (pieces [][]byte) {
	rnd := rand.New(rand.NewPCG(seed, 1))
	for len(p) > 0 {
		n := 1 + rnd.IntN(min(len(p), 1+rnd.IntN(40)))
		pieces = append(pieces, p[:n])
		p = p[n:]
	}
	return pieces
}
