package store

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/postern-dev/postern/connector/link"
)

// Bounds of the interleavings of two gateways and a connector.
const (
	modelOffers    = maxOffered + 1
	modelRotations = 2
)

var edges = [2]string{"a", "b"}

// none is a hello that does not exist: 0 is the connector's first secret.
const none = -1

// scene is a state of two gateways, their store and a connector. Secrets are known by their
// numbers. Each end has at most one message of a kind on its way.
type scene struct {
	own, offers    int8                    // connectorRecord.Hash and Offers
	next           [modelOffers]sceneOffer // connectorRecord.Next
	pending        bool                    // connectorRecord.Rotation
	rotations      int8                    // that users have begun
	secret, number int8                    // of the connector's token, as stored
	gateways       [2]sceneOfGateway       // unordered
}

type sceneOffer struct {
	number  int8 // 0: none
	gateway int8
}

type sceneOfGateway struct {
	tunnel       bool
	tunnelSecret int8 // the secret of the tunnel's hello
	memory       int8 // the offer that rotation.Service remembers; 0: none
	offer        int8 // on its way to the connector; 0: none
	answer       int8 // on its way back; 0: none
	hello        int8 // the secret of a hello on its way; none: none
}

// modelRules are the rules that the test replaces by wrong ones.
type modelRules struct {
	finish  func(r *connectorRecord, number int64)
	numbers bool // the connector compares numbers
	durable bool // the connector stores the number with its token
	offers  int8 // at most; modelOffers at most
	// taken has the results of scene.take, for speed.
	taken map[[3]int8][2]int8
}

func modelHash(number int8) digest { return digest{1, byte(number)} }

// record returns the store's record in a scene.
func (s scene) record() *connectorRecord {
	r := &connectorRecord{Hash: modelHash(s.own), Offers: int64(s.offers)}
	for _, n := range s.next {
		if n.number != 0 {
			r.Next = append(r.Next, nextSecret{Number: int64(n.number), Hash: modelHash(n.number), Edge: edges[n.gateway]})
		}
	}
	if s.pending {
		r.Rotation = new(Rotation)
	}
	return r
}

// withRecord returns the scene after a change of the record.
func (s scene) withRecord(r *connectorRecord) scene {
	s.own, s.offers, s.pending, s.next = int8(r.Hash[1]), int8(r.Offers), r.Rotation != nil, [modelOffers]sceneOffer{}
	for i, n := range r.Next {
		s.next[i] = sceneOffer{int8(n.Number), int8(slices.Index(edges[:], n.Edge))}
	}
	return s
}

// accepts reports whether a secret of the connector is valid.
func (s scene) accepts(secret int8) bool {
	want := modelHash(secret)
	return s.record().matches(func(hash []byte) bool { return string(hash) == string(want[:]) })
}

// locked reports whether the connector is locked out.
func (s scene) locked() bool { return !s.accepts(s.secret) }

func (s scene) finish(rules modelRules, number int8) scene {
	r := s.record()
	rules.finish(r, int64(number))
	return s.withRecord(r)
}

func modelToken(secret, number int8) link.Token {
	const pin = "47DEQpj8HBSa-_TImW-5JCeuQeRkm5NMpJWZG3hSuFU"
	return link.Token{
		Server: "gw.example.com:7443", Pin: pin, Connector: "con_1", Secret: fmt.Sprint(secret),
		Number: int64(number),
	}
}

// take returns the scene after the connector has stored an offer, or ignored it.
func (s scene) take(rules modelRules, offer int8) scene {
	before := [3]int8{s.secret, s.number, offer}
	if has, ok := rules.taken[before]; ok {
		s.secret, s.number = has[0], has[1]
		return s
	}
	had := modelToken(s.secret, s.number)
	if !rules.numbers {
		had.Number = 0
	}
	has, err := had.Renewed(link.Rotate{Number: int64(offer), TunnelToken: modelToken(offer, 0).Encode()})
	if err != nil {
		panic(err)
	}
	s.secret, s.number = int8(has.Secret[0]-'0'), int8(has.Number)
	rules.taken[before] = [2]int8{s.secret, s.number}
	return s
}

// cut returns the scene after the connector was killed, and has started again.
func (s scene) cut(rules modelRules) scene {
	if !rules.durable {
		s.number = 0
	}
	for i := range s.gateways {
		s.gateways[i].tunnel, s.gateways[i].tunnelSecret, s.gateways[i].offer = false, 0, 0
	}
	return s
}

// steps calls f with the name and the result of each possible next step.
func (s scene) steps(rules modelRules, f func(what string, next scene)) {
	if s.rotations < modelRotations {
		next := s
		next.pending = true
		next.rotations++
		f("a user rotates", next)
	}
	f("the connector is killed", s.cut(rules))
	for i := range s.gateways {
		s.stepsOf(i, rules, f)
	}
}

// stepsOf is steps for the steps of gateway i. A gateway whose view lags sends the offer that it
// remembers even if it is outdated, and each write of the store may fail.
func (s scene) stepsOf(i int, rules modelRules, f func(what string, next scene)) {
	step := func(what string, from scene, change func(g *sceneOfGateway)) {
		change(&from.gateways[i])
		f(fmt.Sprint(what, " at ", i), from)
	}
	g := s.gateways[i]
	step("the gateway is killed", s, func(g *sceneOfGateway) { *g = sceneOfGateway{hello: none} })
	if g.tunnel {
		step("the tunnel is lost", s, func(g *sceneOfGateway) { g.tunnel, g.tunnelSecret, g.offer = false, 0, 0 })
	} else if g.hello == none {
		step("a hello", s, func(g *sceneOfGateway) { g.hello = s.secret })
	}
	r := s.record()
	if r.number(modelHash(g.tunnelSecret)) != 0 {
		step("a hello is stored", s.finish(rules, g.tunnelSecret), func(*sceneOfGateway) {})
	} else if g.tunnel && s.pending && s.offers < rules.offers && r.number(modelHash(g.memory)) == 0 {
		number := r.offer(nextSecret{Hash: modelHash(s.offers + 1), Edge: edges[i]})
		step("an offer is stored", s.withRecord(r), func(g *sceneOfGateway) { g.memory = int8(number) })
	}
	if g.tunnel && g.memory != 0 && g.offer == 0 {
		step("an offer is sent", s, func(g *sceneOfGateway) { g.offer = g.memory })
	}
	if g.offer != 0 && g.answer == 0 {
		took := s.take(rules, g.offer)
		step("an offer is taken", took, func(g *sceneOfGateway) { g.offer, g.answer = 0, took.number })
		step("an offer is taken and the connector killed", took.cut(rules), func(*sceneOfGateway) {})
	}
	if g.answer != 0 {
		step("an answer is lost", s, func(g *sceneOfGateway) { g.answer = 0 })
		step("an answer is stored", s.finish(rules, g.answer), func(g *sceneOfGateway) { g.answer = 0 })
	}
	if g.hello != none {
		step("a hello is lost or refused", s, func(g *sceneOfGateway) { g.hello = none })
		if s.accepts(g.hello) {
			step("a hello is welcome", s, func(g *sceneOfGateway) { g.tunnel, g.tunnelSecret, g.hello = true, g.hello, none })
		}
	}
}

// play visits all scenes and returns their number, and the steps to the first one in which
// the connector is locked out.
func play(rules modelRules) (scenes int, lockOut []string) {
	rules.taken = make(map[[3]int8][2]int8)
	type reached struct {
		from scene
		what string
	}
	first := scene{gateways: [2]sceneOfGateway{{hello: none}, {hello: none}}}
	seen, queue := map[scene]reached{first: {}}, []scene{first}
	for len(queue) > 0 {
		s := queue[0]
		queue = queue[1:]
		if s.locked() {
			for ; s != first; s = seen[s].from {
				lockOut = append([]string{seen[s].what}, lockOut...)
			}
			break
		}
		s.steps(rules, func(what string, next scene) {
			if _, known := seen[next]; !known {
				seen[next] = reached{s, what}
				queue = append(queue, next)
			}
		})
	}
	return len(seen), lockOut
}

// No order of the steps of two gateways and a connector locks the connector out, with
// kills and failing writes. The steps are the store's and the connector's own. Without any
// one of the rules there is an order that does.
func TestNoInterleavingLocksOut(t *testing.T) {
	t.Parallel()
	finish := func(r *connectorRecord, number int64) { r.finish(number, time.Time{}) }
	forget := func(r *connectorRecord, number int64) { // also what was offered later
		if r.finish(number, time.Time{}) {
			r.Next = nil
		}
	}
	for name, c := range map[string]struct {
		rules modelRules
		locks bool
	}{
		"the rules": {modelRules{finish: finish, numbers: true, durable: true}, false},
		"a connector takes any offer, an answer ends all others": {modelRules{finish: forget}, true},
		"an answer ends later offers": {
			modelRules{finish: forget, numbers: true, durable: true},
			true,
		},
		"a connector takes any offer":    {modelRules{finish: finish, durable: true}, true},
		"a connector forgets the number": {modelRules{finish: finish, numbers: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.rules.offers = modelOffers
			if testing.Short() {
				c.rules.offers = 3
			}
			scenes, lockOut := play(c.rules)
			t.Logf("%d scenes", scenes)
			if (len(lockOut) > 0) != c.locks || !c.locks && scenes < 10_000 {
				t.Errorf("%d scenes; the connector is locked out by %q", scenes, lockOut)
			}
		})
	}
}
