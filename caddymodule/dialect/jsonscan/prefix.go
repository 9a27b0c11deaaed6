package jsonscan

// Prefix tells, piece by piece, whether what has come so far can still
// become a JSON text (RFC 8259): clients parse the streamed arguments of a
// tool call as they come, and some throw at the first byte that cannot be.
// What it takes is what encoding/json takes, but for depth (maxDepth). It
// allocates nothing and remembers no text. The zero value has seen nothing.
type Prefix struct {
	objects [MaxDepth / 64]uint64 // a bit for each open container: 1 is an object
	depth   int
	state   state
	key     bool   // the string that is being read is a key
	word    string // what must follow of true, false or null
	hex     int    // hexadecimal digits that must follow
}

// state is what may come next.
type state uint8

const (
	wantValue    state = iota // a value
	wantFirst                 // a value, or the end of the array
	wantFirstKey              // a key, or the end of the object
	wantKey                   // a key
	wantColon                 // the colon behind a key
	wantMore                  // a comma, or the end of the container
	inString                  // the rest of a string
	inEscape                  // what follows a backslash
	inHex                     // the digits of \u
	inWord                    // the rest of true, false or null
	inMinus                   // the first digit of a number
	inZero                    // what follows a leading zero
	inInteger                 // more digits of the integer part
	inPoint                   // the first digit of the fraction
	inFraction                // more of them
	inExponent                // a sign or the first digit of the exponent
	inSign                    // the first digit of the exponent
	inDigits                  // more of them
	isComplete                // nothing but white space
	isBroken                  // nothing: this is no JSON
)

// Add takes the next piece and reports whether all is the start of a JSON text.
func (p *Prefix) Add(s string) bool {
	for i := 0; i < len(s) && p.state != isBroken; i++ {
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
	return p.state != isBroken
}

// Complete reports whether what has come is a JSON text, and one that no
// further byte can make another of (so a number never is: a digit may follow).
func (p *Prefix) Complete() bool { return p.state == isComplete }

// step is the state behind one more byte.
func (p *Prefix) step(c byte) state {
	switch p.state {
	case inString:
		return p.inText(c)
	case inEscape:
		return p.inEscape(c)
	case inHex:
		if !isHex(c) {
			return isBroken
		}
		if p.hex--; p.hex == 0 {
			return inString
		}
		return inHex
	case inWord:
		if c != p.word[0] {
			return isBroken
		}
		if p.word = p.word[1:]; p.word == "" {
			return p.behindValue()
		}
		return inWord
	case inMinus, inZero, inInteger, inPoint, inFraction, inExponent, inSign, inDigits:
		return p.inNumber(c)
	}
	if c == ' ' || c == '\t' || c == '\n' || c == '\r' {
		return p.state
	}
	return p.between(c)
}

// between is the state behind a byte that is no white space and stands outside
// of strings, numbers and words.
func (p *Prefix) between(c byte) state {
	switch {
	case p.state == wantValue, p.state == wantFirst && c != ']':
		return p.value(c)
	case (p.state == wantFirstKey || p.state == wantKey) && c == '"':
		p.key = true
		return inString
	case p.state == wantColon && c == ':':
		return wantValue
	case p.state == wantFirst && c == ']', p.state == wantFirstKey && c == '}':
		return p.leave()
	case p.state == wantMore && c == ',' && p.inObject():
		return wantKey
	case p.state == wantMore && c == ',':
		return wantValue
	case p.state == wantMore && c == '}' && p.inObject(), p.state == wantMore && c == ']' && !p.inObject():
		return p.leave()
	}
	return isBroken
}

// value is the state behind the first byte of a value.
func (p *Prefix) value(c byte) state {
	switch c {
	case '{':
		return p.enter(true, wantFirstKey)
	case '[':
		return p.enter(false, wantFirst)
	case '"':
		p.key = false
		return inString
	case 't':
		p.word = "rue"
		return inWord
	case 'f':
		p.word = "alse"
		return inWord
	case 'n':
		p.word = "ull"
		return inWord
	case '-':
		return inMinus
	case '0':
		return inZero
	}
	if isDigit(c) {
		return inInteger
	}
	return isBroken
}

// enter opens a container.
func (p *Prefix) enter(object bool, next state) state {
	if p.depth == MaxDepth {
		return isBroken
	}
	word, bit := &p.objects[p.depth/64], uint64(1)<<(p.depth%64)
	*word &^= bit
	if object {
		*word |= bit
	}
	p.depth++
	return next
}

// leave closes the innermost container.
func (p *Prefix) leave() state {
	p.depth--
	return p.behindValue()
}

// inObject reports whether the innermost container is an object.
func (p *Prefix) inObject() bool {
	return p.objects[(p.depth-1)/64]>>((p.depth-1)%64)&1 == 1
}

// behindValue is the state behind a whole value.
func (p *Prefix) behindValue() state {
	if p.depth == 0 {
		return isComplete
	}
	return wantMore
}

// inText is the state behind a byte of a string.
func (p *Prefix) inText(c byte) state {
	switch {
	case c == '"' && p.key:
		return wantColon
	case c == '"':
		return p.behindValue()
	case c == '\\':
		return inEscape
	case c < 0x20:
		return isBroken
	}
	return inString
}

// inEscape is the state behind the byte that follows a backslash.
func (p *Prefix) inEscape(c byte) state {
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		return inString
	case 'u':
		p.hex = 4
		return inHex
	}
	return isBroken
}

// inNumber is the state behind a byte that follows a part of a number.
func (p *Prefix) inNumber(c byte) state {
	digit := isDigit(c)
	switch p.state {
	case inMinus:
		if c == '0' {
			return inZero
		}
		if digit {
			return inInteger
		}
		return isBroken
	case inPoint:
		if digit {
			return inFraction
		}
		return isBroken
	case inExponent, inSign:
		if digit {
			return inDigits
		}
		if p.state == inExponent && (c == '+' || c == '-') {
			return inSign
		}
		return isBroken
	}
	switch {
	case digit && p.state != inZero:
		return p.state
	case c == '.' && (p.state == inZero || p.state == inInteger):
		return inPoint
	case (c == 'e' || c == 'E') && p.state != inDigits:
		return inExponent
	}
	p.state = p.behindValue() // the number has ended before c
	return p.step(c)
}

// isDigit reports whether c is a decimal digit.
func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// isHex reports whether c is a hexadecimal digit.
func isHex(c byte) bool {
	return isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'f'
}
