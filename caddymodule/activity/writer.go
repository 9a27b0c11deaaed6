package activity

import (
	"errors"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	bolt "go.etcd.io/bbolt"
)

// writer changes the file in one transaction. After an error, it changes nothing more.
type writer struct {
	tx    *bolt.Tx
	rows  map[string]classCounts
	known func(account string) bool
	err   error
}

// fill is how full pages are after a split: most rows are added at the end of their class.
const fill = .9

// add adds requests, and replaces entries.
func (w *writer) add(requests []logged, entries []counted) {
	for i := range requests {
		w.put(&requests[i], "")
	}
	for i := range entries {
		w.put(&entries[i].logged, entries[i].saved)
	}
}

func (w *writer) put(r *logged, replaced string) {
	if w.err != nil || !w.known(r.account) {
		return
	}
	b, err := w.tx.CreateBucketIfNotExists([]byte(r.account))
	if w.err = err; err != nil {
		return
	}
	b.FillPercent = fill
	n := w.rows[r.account]
	if replaced != "" {
		w.err = b.Delete(key(classCounted, replaced))
		n[classCounted]--
	}
	n[r.class()]++
	w.rows[r.account] = n
	value, err := encode(r.Request)
	w.err = errors.Join(w.err, err, b.Put(key(r.class(), r.cursor()), value))
}

// encode returns the value of a request in the file. Its key has the id and the time.
func encode(r Request) ([]byte, error) {
	r.ID, r.Time = "", time.Time{}
	return json.Marshal(r, json.OmitZeroStructFields(true), jsontext.AllowInvalidUTF8(true))
}

// drop removes the requests of accounts.
func (w *writer) drop(accounts []string) {
	for _, account := range accounts {
		if _, ok := w.rows[account]; ok && w.err == nil {
			w.err = w.tx.DeleteBucket([]byte(account))
			delete(w.rows, account)
		}
	}
}

// expire removes requests of classes with few rows that are too many, or older than a cursor.
func (w *writer) expire(old string) {
	for account, n := range w.rows {
		for _, class := range []int{classCounted, classFailed} {
			left := n[class]
			w.remove(account, class, func(k, _ []byte) bool {
				left--
				return left >= maxRows || string(k[1:]) < old
			})
		}
	}
}

// free removes rows with so many bytes: the oldest ones of the account with the most rows of a class, answered
// ones first.
func (w *writer) free(size int) {
	for class := range classes {
		for size > 0 && w.err == nil {
			largest, most := "", 0
			for account, n := range w.rows {
				if n[class] > most {
					largest, most = account, n[class]
				}
			}
			if most == 0 {
				break
			}
			const part = 8 // so that accounts become equal
			left := most/part + 1
			w.remove(largest, class, func(k, v []byte) bool {
				if left == 0 || size <= 0 {
					return false
				}
				left--
				size -= len(k) + len(v)
				return true
			})
		}
	}
}

// remove removes the oldest rows of a class while more says so, and notes which is the last.
func (w *writer) remove(account string, class int, more func(k, v []byte) bool) {
	b := w.tx.Bucket([]byte(account))
	if w.err != nil || b == nil {
		return
	}
	var keys [][]byte
	c := b.Cursor()
	for k, v := c.Seek(key(class, "")); k != nil && int(k[0]) == class && more(k, v); k, v = c.Next() {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return
	}
	last := string(keys[len(keys)-1][1:])
	for _, k := range keys {
		w.err = errors.Join(w.err, b.Delete(k))
	}
	n := w.rows[account]
	n[class] -= len(keys)
	w.rows[account] = n
	w.err = errors.Join(w.err, b.Put(mark(class), []byte(last)))
}

// key is the key of a request.
func key(class int, cursor string) []byte { return append([]byte{byte(class)}, cursor...) }

// mark is the key of the cursor of the newest request of a class that was removed.
func mark(class int) []byte { return []byte{byte(classes + class)} }
