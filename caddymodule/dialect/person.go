package dialect

import (
	"bytes"

	"github.com/postern-dev/postern/caddymodule/dialect/jsonscan"
)

// TakePerson returns the person whom the body of a request names: in user, or in metadata.user_id of messages. It
// blanks user in place, which a model server would get otherwise. Call it before [ReadHead].
func TakePerson(op Operation, body []byte) (person string) {
	name := "user"
	if op.Dialect == Messages {
		name = "metadata"
	}
	blank := func(start, end int) {
		for i := start; i < end; i++ {
			body[i] = ' '
		}
	}
	body = bytes.TrimPrefix(body, byteOrderMark)
	m := jsonscan.Object(body)
	kept, start, end := m.Sep+1, -1, 0 // the end of the last member that stays; those after it that do not
	for m.Next() {
		switch named := isLike(m.Name(), name); {
		case named && op.Dialect == Messages:
			person = jsonscan.Text(m.Raw(), "user_id")
		case named:
			if person, end = jsonscan.String(m.Raw()), m.Value.End; start < 0 {
				start = m.Key.Start
			}
		default:
			if start >= 0 {
				blank(start, m.Key.Start)
			}
			kept, start = m.Value.End, -1
		}
	}
	if start >= 0 && m.Err() == nil {
		blank(kept, end)
	}
	return person
}
