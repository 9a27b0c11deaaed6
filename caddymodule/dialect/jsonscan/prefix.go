package jsonscan

// Prefix incrementally checks whether its input is the prefix of a JSON text (RFC
// 8259). Clients parse the streamed arguments of a tool call incrementally, and some
// fail at the first invalid byte. It accepts the input of encoding/json up to a depth
// of [MaxDepth]. It neither allocates nor buffers. The zero value is ready to use.
type Prefix struct {
	objects [MaxDepth / 64]uint64 // a bit for each open container: 1 is an object
	depth   int
	state   state
	key     bool   // the current string is a key
	word    string // the expected rest of true, false or null
}

// state describes which input may follow.
type state uint8

const (
	wantValue    state = iota // a value
	wantFirst                 // a value, or the end of the array
	wantFirstKey              // a key, or the end of the object
	wantKey                   // a key
	wantColon                 // the colon after a key
	wantMore                  // a comma, or the end of the container
	complete                  // white space only
	inString                  // the rest of a string
	inEscape                  // the character after a backslash
	inHex4                    // the digits of \u
	inHex3
	inHex2
	inHex1
	inWord     // the rest of true, false or null
	inMinus    // the first digit of a number
	inPoint    // the first digit of the fraction
	inExponent // a sign or the first digit of the exponent
	inSign     // the first digit of the exponent
	inZero     // the rest after a leading zero; from here on, a number may end
	inInteger  // more digits of the integer part
	inFraction // more digits of the fraction
	inDigits   // more digits of the exponent
	broken     // nothing: this is not JSON

	// Actions, which determine the next state.
	openObject
	openArray
	beginKey
	beginText
	endString
	endContainer
	comma
)

const (
	digits    = "0123456789"
	hexDigits = digits + "abcdefABCDEF"
)

// follow maps each state and input byte to the next state or an action.
var follow = func() (table [broken][256]state) {
	for from := range table {
		for c := range table[from] {
			table[from][c] = broken
		}
	}
	on := func(from state, bytes string, to state) {
		for i := range len(bytes) {
			table[from][bytes[i]] = to
		}
	}
	for from := range inString {
		on(from, Space, from)
	}
	for _, from := range [...]state{wantValue, wantFirst} {
		on(from, "{", openObject)
		on(from, "[", openArray)
		on(from, `"`, beginText)
		on(from, "tfn", inWord)
		on(from, "-", inMinus)
		on(from, "0", inZero)
		on(from, digits[1:], inInteger)
	}
	on(wantFirst, "]", endContainer)
	on(wantFirstKey, "}", endContainer)
	on(wantFirstKey, `"`, beginKey)
	on(wantKey, `"`, beginKey)
	on(wantColon, ":", wantValue)
	on(wantMore, "]}", endContainer)
	on(wantMore, ",", comma)
	for c := 0x20; c < 256; c++ {
		table[inString][c] = inString
	}
	on(inString, `\`, inEscape)
	on(inString, `"`, endString)
	on(inEscape, `"\/bfnrt`, inString)
	on(inEscape, "u", inHex4)
	on(inHex4, hexDigits, inHex3)
	on(inHex3, hexDigits, inHex2)
	on(inHex2, hexDigits, inHex1)
	on(inHex1, hexDigits, inString)
	on(inMinus, "0", inZero)
	on(inMinus, digits[1:], inInteger)
	for _, from := range [...]state{inZero, inInteger} {
		on(from, ".", inPoint)
		on(from, "eE", inExponent)
	}
	on(inInteger, digits, inInteger)
	on(inPoint, digits, inFraction)
	on(inFraction, digits, inFraction)
	on(inFraction, "eE", inExponent)
	on(inExponent, "+-", inSign)
	for _, from := range [...]state{inExponent, inSign, inDigits} {
		on(from, digits, inDigits)
	}
	return table
}()

// Add consumes the next piece. It reports whether the input is a prefix of a JSON text.
func (p *Prefix) Add(s string) bool {
	for i := 0; i < len(s) && p.state != broken; i++ {
		if p.state == inString {
			for i < len(s) && s[i] != '"' && s[i] != '\\' && s[i] >= 0x20 {
				i++
			}
			if i == len(s) {
				break
			}
		}
		p.state = p.step(s[i])
	}
	return p.state != broken
}

// Complete reports whether the input is a complete JSON text. A number is never
// complete, because more digits could follow.
func (p *Prefix) Complete() bool { return p.state == complete }

// Broken reports whether the input is not a prefix of a JSON text.
func (p *Prefix) Broken() bool { return p.state == broken }

// step returns the state after the byte c.
func (p *Prefix) step(c byte) state {
	if p.state == inWord {
		if c != p.word[0] {
			return broken
		}
		if p.word = p.word[1:]; p.word == "" {
			return p.afterValue()
		}
		return inWord
	}
	next := follow[p.state][c]
	switch next {
	case broken:
		if p.state >= inZero { // the number has ended before c
			p.state = p.afterValue()
			return p.step(c)
		}
	case inWord:
		p.word = wordRests[c]
	case openObject, openArray:
		return p.open(next == openObject)
	case beginKey, beginText:
		p.key = next == beginKey
		return inString
	case endString:
		if p.key {
			return wantColon
		}
		return p.afterValue()
	case endContainer:
		if p.inObject() != (c == '}') {
			return broken
		}
		p.depth--
		return p.afterValue()
	case comma:
		if p.inObject() {
			return wantKey
		}
		return wantValue
	}
	return next
}

// wordRests are the rests of true, false and null after their first byte.
var wordRests = [...]string{'t': "rue", 'f': "alse", 'n': "ull"} //nolint:misspell // a part of false

// open opens a container.
func (p *Prefix) open(object bool) state {
	if p.depth == MaxDepth {
		return broken
	}
	word, bit := &p.objects[p.depth/64], uint64(1)<<(p.depth%64)
	*word &^= bit
	p.depth++
	if object {
		*word |= bit
		return wantFirstKey
	}
	return wantFirst
}

// inObject reports whether the innermost container is an object.
func (p *Prefix) inObject() bool {
	return p.objects[(p.depth-1)/64]>>((p.depth-1)%64)&1 == 1
}

// afterValue returns the state after a complete value.
func (p *Prefix) afterValue() state {
	if p.depth == 0 {
		return complete
	}
	return wantMore
}
