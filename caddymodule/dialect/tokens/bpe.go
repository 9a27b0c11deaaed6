package tokens

import "math"

// noRank is the rank of a pair of parts that is not a token.
const noRank = math.MaxUint32

// merger counts the tokens of pieces of text by byte-pair encoding. Its memory is reused.
type merger struct {
	*vocabulary
	parts []part
	queue []uint64 // heap of pairs: the rank, and the start of the first part
}

// part is a part of a piece, named by its start.
type part struct {
	prev, next int32  // the starts of its neighbors
	rank       uint32 // of this part joined with the next one
}

// count returns the number of tokens of a piece. It joins the pair with the lowest rank
// until no pair is a token, the leftmost of equal ones first. n bytes take O(n log n).
func (m *merger) count(piece string) int {
	if m.rank(piece) != noRank {
		return 1
	}
	n := len(piece)
	m.parts, m.queue = m.parts[:0], m.queue[:0]
	for i := range int32(n) {
		m.parts = append(m.parts, part{prev: i - 1, next: i + 1})
	}
	for i := range int32(n) {
		m.pair(piece, i)
	}
	for len(m.queue) > 0 {
		first := m.pop()
		i := int32(uint32(first))
		if m.parts[i].rank != uint32(first>>32) {
			continue // it was joined meanwhile
		}
		second := &m.parts[m.parts[i].next]
		m.parts[i].next, second.rank = second.next, noRank
		if int(second.next) < len(piece) {
			m.parts[second.next].prev = i
		}
		n--
		m.pair(piece, i)
		if prev := m.parts[i].prev; prev >= 0 {
			m.pair(piece, prev)
		}
	}
	return n
}

// pair looks up the rank of a part joined with the next one.
func (m *merger) pair(piece string, i int32) {
	p := &m.parts[i]
	p.rank = noRank
	if int(p.next) == len(piece) {
		return
	}
	if p.rank = m.rank(piece[i:m.parts[p.next].next]); p.rank != noRank {
		m.push(uint64(p.rank)<<32 | uint64(i))
	}
}

// push adds a pair to the heap.
func (m *merger) push(pair uint64) {
	m.queue = append(m.queue, pair)
	for i := len(m.queue) - 1; i > 0; {
		parent := (i - 1) / 2
		if m.queue[parent] <= m.queue[i] {
			return
		}
		m.queue[parent], m.queue[i] = m.queue[i], m.queue[parent]
		i = parent
	}
}

// pop removes the lowest pair from the heap.
func (m *merger) pop() uint64 {
	q := m.queue
	lowest, last := q[0], len(q)-1
	q[0], m.queue = q[last], q[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child >= last {
			return lowest
		}
		if child+1 < last && q[child+1] < q[child] {
			child++
		}
		if q[i] <= q[child] {
			return lowest
		}
		q[i], q[child] = q[child], q[i]
		i = child
	}
}
