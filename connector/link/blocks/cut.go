package blocks

// Lengths of blocks in bytes. The average is 7 KiB. Smaller blocks repeat less of a changed
// prompt, but need more records and hashes.
const (
	minBlock = 4 << 10
	maxBlock = 16 << 10
)

// cutMask are the bits of the hash that are zero at the end of a block. After minBlock, that is
// so at one of 4096 bytes on average.
const cutMask uint64 = 0xfff << 52

// window is the number of bytes that the hash depends on.
const window = 64

// gear has a random number for each byte. It is part of no protocol: the connector does not
// divide bodies.
var gear = func() (table [256]uint64) {
	state := uint64(0)
	for i := range table { // splitmix64
		state += 0x9e3779b97f4a7c15
		z := state
		z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
		z = (z ^ z>>27) * 0x94d049bb133111eb
		table[i] = z ^ z>>31
	}
	return table
}()

// cut returns the length of the first block of p. It is 0 if p is too short to decide, unless
// p is the end of the body. The end depends on the block's last bytes only, by a rolling hash
// (the gear hash of Xia et al., FastCDC, 2016).
func cut(p []byte, end bool) int {
	n := min(len(p), maxBlock)
	if n > minBlock {
		var h uint64
		for _, c := range p[minBlock-window : minBlock] {
			h = h<<1 + gear[c]
		}
		for i, c := range p[minBlock:n] {
			if h = h<<1 + gear[c]; h&cutMask == 0 {
				return minBlock + i + 1
			}
		}
	}
	if n == maxBlock || end {
		return n
	}
	return 0
}
