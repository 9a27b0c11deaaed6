package signin

import "time"

// recent is a map that drops entries between one and two times life after they were
// set, or earlier when more than size other entries were set since.
type recent[K comparable, V any] struct {
	life time.Duration
	size int

	latest, before map[K]V
	since          time.Time // creation of latest
}

func (r *recent[K, V]) get(key K) (V, bool) {
	v, ok := r.latest[key]
	if !ok {
		v, ok = r.before[key]
	}
	return v, ok
}

func (r *recent[K, V]) set(key K, v V, now time.Time) {
	if age := now.Sub(r.since); age >= r.life || len(r.latest) >= r.size {
		r.latest, r.before, r.since = make(map[K]V), r.latest, now
		if age >= 2*r.life {
			r.before = nil
		}
	}
	delete(r.before, key)
	r.latest[key] = v
}

func (r *recent[K, V]) remove(key K) {
	delete(r.latest, key)
	delete(r.before, key)
}

func (r *recent[K, V]) len() int { return len(r.latest) + len(r.before) }
