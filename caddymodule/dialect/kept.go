package dialect

import (
	"container/list"
	"sync"
	"time"
)

// KeptResponse is a response that is kept for its client to refer to.
type KeptResponse struct {
	Model  string   // public name of the model that made it
	Body   []byte   // the response object
	Input  [][]byte // its input items, those of the responses before it too
	Output [][]byte // its output items
}

// Limits of kept responses.
const (
	KeptTTL   = 30 * time.Minute
	KeptBytes = 64 << 20
	KeptItems = 10_000 // of one response, input and output
)

// What a response and an item cost in addition to their bytes. An item is
// counted at what it costs when a request refers to it and it is read again.
const (
	keptOverhead     = 256
	keptItemOverhead = 1 << 10
)

// KeptOwner is whose a kept response is: that of one key, or of all keys of
// the account if Key is empty.
type KeptOwner struct{ Account, Key string }

// KeptResponses keeps responses in memory, each for its owner alone: for a
// time, and as many as fit into a number of bytes. When there is no room left,
// the oldest response goes of the key that holds most in the account that holds
// most. So neither a key nor an account can push out what others keep within
// their share. It is safe for concurrent use.
type KeptResponses struct {
	ttl   time.Duration
	limit int64 // bytes
	now   func() time.Time

	mu        sync.Mutex
	responses map[keptID]*keptEntry
	items     map[keptID]keptItem
	age       list.List // of *keptEntry, the oldest first
	room      keptRoom
}

// keptID is an id of a response or an item of its owner.
type keptID struct {
	owner KeptOwner
	id    string
}

// keptItem is where an item is, by its id.
type keptItem struct {
	in  *keptEntry
	raw []byte
}

// keptEntry is a response with its time and size.
type keptEntry struct {
	id      keptID
	r       KeptResponse
	items   []string // ids of items
	expires time.Time
	size    int64
	byAge   *list.Element // in KeptResponses.age
	byOwner *list.Element // in the age of its owner's room
}

// NewKeptResponses returns an empty keeper with the usual limits.
func NewKeptResponses(now func() time.Time) *KeptResponses {
	return &KeptResponses{
		ttl: KeptTTL, limit: KeptBytes, now: now,
		responses: make(map[keptID]*keptEntry),
		items:     make(map[keptID]keptItem),
	}
}

// keep keeps a copy of a response under its id. One that has too many items, or
// does not fit into its owner's share, is not kept.
func (k *KeptResponses) keep(id keptID, r KeptResponse) {
	e := &keptEntry{id: id, size: r.Size(), expires: k.now().Add(k.ttl)}
	if e.size > k.limit || len(r.Input)+len(r.Output) > KeptItems {
		return
	}
	e.r = r.clone()
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.responses[id]; ok {
		k.remove(old)
	}
	k.expire()
	k.responses[id] = e
	e.byAge = k.age.PushBack(e)
	k.room.add(e)
	for _, list := range [...][][]byte{e.r.Input, e.r.Output} {
		for _, raw := range list {
			if item := itemID(raw); item != "" {
				e.items = append(e.items, item)
				k.items[keptID{id.owner, item}] = keptItem{e, raw}
			}
		}
	}
	for k.room.size > k.limit {
		k.remove(k.room.oldestOfLargest())
	}
}

// response gives a kept response. Its bytes must not be changed.
func (k *KeptResponses) response(id keptID) (KeptResponse, bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	e, ok := k.responses[id]
	if !ok {
		return KeptResponse{}, false
	}
	return e.r, true
}

// item gives an item of a kept response, of its input or output, and the model
// that made the response.
func (k *KeptResponses) item(id keptID) (raw []byte, model string, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	item, ok := k.items[id]
	if !ok {
		return nil, "", false
	}
	return item.raw, item.in.r.Model, true
}

// delete removes a response if it is there.
func (k *KeptResponses) delete(id keptID) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.expire()
	if e, ok := k.responses[id]; ok {
		k.remove(e)
	}
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
	for {
		front := k.age.Front()
		if front == nil {
			return
		}
		e := front.Value.(*keptEntry)
		if now.Before(e.expires) {
			return
		}
		k.remove(e)
	}
}

// remove removes a response and those of its items that no newer response has.
// k.mu is held.
func (k *KeptResponses) remove(e *keptEntry) {
	k.age.Remove(e.byAge)
	k.room.remove(e)
	delete(k.responses, e.id)
	for _, id := range e.items {
		at := keptID{e.id.owner, id}
		if k.items[at].in == e {
			delete(k.items, at)
		}
	}
}

// Size is about what a response takes in memory, its items when they are used.
func (r KeptResponse) Size() int64 {
	size := int64(keptOverhead + len(r.Body))
	for _, list := range [...][][]byte{r.Input, r.Output} {
		for _, raw := range list {
			size += int64(keptItemOverhead + len(raw))
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
	return KeptResponse{Model: r.Model, Body: append([]byte(nil), r.Body...), Input: copyOf(r.Input), Output: copyOf(r.Output)}
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
