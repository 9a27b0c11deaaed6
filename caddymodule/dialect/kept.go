package dialect

import (
	"container/list"
	"sync"
	"time"
)

// KeptResponse is a response that is kept for its client to refer to.
type KeptResponse struct {
	Body   []byte   // the response object
	Input  [][]byte // its input items, those of the responses before it too
	Output [][]byte // its output items
}

// Limits of kept responses.
const (
	KeptTTL   = 30 * time.Minute
	KeptBytes = 64 << 20
)

// keptOverhead is what a response or an item costs besides its bytes.
const keptOverhead = 128

// KeptResponses keeps responses in memory, each for its account alone: for a
// time, and as many as fit into a number of bytes, of which the oldest go
// first. It is safe for concurrent use.
type KeptResponses struct {
	ttl   time.Duration
	limit int64 // bytes
	now   func() time.Time

	mu        sync.Mutex
	responses map[keptID]*list.Element
	items     map[keptID]keptItem
	age       list.List // of *keptEntry, the oldest first
	size      int64     // bytes
}

// keptID is an id of a response or an item in its account.
type keptID struct{ account, id string }

// keptItem is where an item is, by its id.
type keptItem struct {
	owner *keptEntry
	raw   []byte
}

// keptEntry is a response with its time and size.
type keptEntry struct {
	id      keptID
	r       KeptResponse
	items   []string // ids of items
	expires time.Time
	size    int64
}

// NewKeptResponses returns an empty keeper with the usual limits.
func NewKeptResponses(now func() time.Time) *KeptResponses {
	return &KeptResponses{
		ttl: KeptTTL, limit: KeptBytes, now: now,
		responses: make(map[keptID]*list.Element),
		items:     make(map[keptID]keptItem),
	}
}

// Keep keeps a copy of a response under its id. One that does not fit at all
// is not kept.
func (k *KeptResponses) Keep(account, id string, r KeptResponse) {
	e := &keptEntry{id: keptID{account, id}, size: r.Size(), expires: k.now().Add(k.ttl)}
	if e.size > k.limit {
		return
	}
	e.r = r.clone()
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.responses[e.id]; ok {
		k.remove(old)
	}
	k.expire()
	for k.size+e.size > k.limit {
		k.remove(k.age.Front())
	}
	k.size += e.size
	k.responses[e.id] = k.age.PushBack(e)
	for _, list := range [...][][]byte{e.r.Input, e.r.Output} {
		for _, raw := range list {
			if item := itemID(raw); item != "" {
				e.items = append(e.items, item)
				k.items[keptID{account, item}] = keptItem{e, raw}
			}
		}
	}
}

// Response gives a kept response. Its bytes must not be changed.
func (k *KeptResponses) Response(account, id string) (KeptResponse, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	e, ok := k.responses[keptID{account, id}]
	if !ok {
		return KeptResponse{}, false
	}
	return e.Value.(*keptEntry).r, true
}

// Item gives an item of a kept response, of its input or output.
func (k *KeptResponses) Item(account, id string) ([]byte, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	item, ok := k.items[keptID{account, id}]
	return item.raw, ok
}

// Delete forgets a response, and reports whether it was there.
func (k *KeptResponses) Delete(account, id string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	e, ok := k.responses[keptID{account, id}]
	if ok {
		k.remove(e)
	}
	return ok
}

// Expire removes what has been kept for long enough. All other methods do so
// too; this one is for when none of them is called.
func (k *KeptResponses) Expire() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
}

// expire does Expire's work. k.mu is held.
func (k *KeptResponses) expire() {
	now := k.now()
	for e := k.age.Front(); e != nil && !now.Before(e.Value.(*keptEntry).expires); e = k.age.Front() {
		k.remove(e)
	}
}

// remove removes a response and those of its items that no newer response has.
// k.mu is held.
func (k *KeptResponses) remove(element *list.Element) {
	e := k.age.Remove(element).(*keptEntry)
	delete(k.responses, e.id)
	k.size -= e.size
	for _, id := range e.items {
		at := keptID{e.id.account, id}
		if k.items[at].owner == e {
			delete(k.items, at)
		}
	}
}

// Size is what a response takes in memory, about.
func (r KeptResponse) Size() int64 {
	size := int64(keptOverhead + len(r.Body))
	for _, list := range [...][][]byte{r.Input, r.Output} {
		for _, raw := range list {
			size += int64(keptOverhead + len(raw))
		}
	}
	return size
}

// clone copies a response, whose parts may lie in much larger buffers.
func (r KeptResponse) clone() KeptResponse {
	copyOf := func(list [][]byte) [][]byte {
		out := make([][]byte, len(list))
		for i, raw := range list {
			out[i] = append([]byte(nil), raw...)
		}
		return out
	}
	return KeptResponse{Body: append([]byte(nil), r.Body...), Input: copyOf(r.Input), Output: copyOf(r.Output)}
}

// itemID is the id of an item, "" if it has none.
func itemID(raw []byte) (id string) {
	for m := membersOf(raw, 0); m.next(); {
		if string(m.name()) == "id" && isString(m.raw()) {
			id = unquote(m.raw())
		}
	}
	return id
}
